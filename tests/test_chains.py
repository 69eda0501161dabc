"""Chains of real trainings: killed, resumed, kept, and finally equal to an unbroken training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store, open_store
from orchestrator.store.entry import content
from tests.support.shell import Here, Shell

FIELDS = ("density=true", "models=2", "epochs=8", "examples=300")
RUN = ("run", "chains", *FIELDS, "--address", "none", "--way", "loop")
BY_EPOCH = ("log_p", "effective_samples")


def links(store: Store, run: str, root: str = "links") -> list[tuple[str, Mapping[str, Any]]]:
    """The keys of a run's links in order, and their records."""
    keys = Journal(Path(store.location) / "runs" / run).roots()[root]
    return [(key, store.record(key)) for key in keys]


def tables(store: Store, run: str, root: str = "links") -> list[str]:
    return [content(store.read(key)) for key, _ in links(store, run, root)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = Here(folder).json(*RUN, "link=2")["run"]
    return open_store(folder / "engram-store"), run


def test_killed_chain_continues_after_its_last_link(tmp_path: Path, undisturbed: tuple[Store, str]) -> None:
    engram = Here(tmp_path)
    shell = Shell(tmp_path)
    driver = shell.start(*RUN, "link=2")
    shell.await_results(1, driver)
    driver.kill()
    driver.communicate()
    store = open_store(tmp_path / "engram-store")
    before = store.keys()
    states = store.states()
    assert 1 <= len(before) < 8
    assert states
    ended = engram.json(*RUN, "link=2")
    assert ended["state"] == "finished"
    assert 9 - ended["jobs"]["done"] == len(before)
    for key, record in links(store, ended["run"]):
        epochs = record["config"]["epochs"]
        assert (None if epochs == 2 else epochs - 2) == record.get("continued_from"), key
    assert states & {key for key, _ in links(store, ended["run"])}
    assert set() == store.states()
    assert tables(*undisturbed) == tables(store, ended["run"])


def test_last_link_equals_the_unbroken_training(tmp_path: Path, undisturbed: tuple[Store, str]) -> None:
    engram = Here(tmp_path)
    unbroken_run = engram.json(*RUN, "link=0")["run"]
    store = open_store(tmp_path / "engram-store")
    for number, (key, _) in enumerate(links(store, unbroken_run)):
        unbroken = store.read(key)
        chain = [undisturbed[0].read(link) for link, _ in links(*undisturbed)[4 * number : 4 * number + 4]]
        other_columns = [name for name in unbroken.schema.names if name not in BY_EPOCH]
        assert content(unbroken.select(other_columns)) == content(chain[-1].select(other_columns))
        for name in BY_EPOCH:  # each link has only its own epochs
            assert unbroken[name].to_pylist() == [
                values for table in chain for values in table[name].to_pylist() if values
            ]


def test_kept_state_lets_training_continue(tmp_path: Path, undisturbed: tuple[Store, str]) -> None:
    engram = Here(tmp_path)
    short = ("run", "chains", *FIELDS, "epochs=4", "link=2", "--address", "none", "--way", "loop")
    short = tuple(word for word in short if word != "epochs=8")
    engram(*short, "--keep", "state")
    store = open_store(tmp_path / "engram-store")
    assert len(store.states()) == 2
    run = engram.json(*RUN, "link=2")["run"]
    assert [record.get("continued_from") for _, record in links(store, run)] == [None, 2, 4, 6] * 2
    assert tables(*undisturbed) == tables(store, run)
    assert set() == store.states()
    refused = engram(*short, "--keep", "weights", code=2)
    assert refused.stderr == "engram: keep is 'weights'; it must be one of none, state\n"


# Canaries, one drawn by its self-influence: their models are trained by rank.
CANARIES = ("canaries=1", "choice=self-influence", "measures=scores", "examples=60", "epochs=6", "patience=4")
UNIQUE = ("run", "unique_feature", "--preset", "smoke", "scale=tiny", *CANARIES, "--address", "none", "--way", "loop")


def test_killed_classifier_chain_ends_with_equal_tables(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    unbroken_run = Here(tmp_path / "whole").json(*UNIQUE)["run"]
    undisturbed = open_store(tmp_path / "whole" / "engram-store")
    engram = Here(tmp_path)
    shell = Shell(tmp_path)
    store = open_store(tmp_path / "engram-store")
    driver = shell.start(*UNIQUE, "link=1")
    shell.until(lambda: bool(store.states()), driver)
    driver.kill()
    driver.communicate()
    before = store.keys()
    states = store.states()
    ended = engram.json(*UNIQUE, "link=1")
    journal = Journal(tmp_path / "engram-store" / "runs" / ended["run"])
    jobs = journal.tasks()
    assert ended["state"] == "finished"
    assert len(jobs) - ended["jobs"]["done"] == len(before)
    chains: dict[str, dict[int, str]] = {"unique_feature.train_ranked": {}, "unique_feature.train_twin": {}}
    for key, task in jobs.items():
        if task in chains:
            config = store.record(key)["config"]
            chains[task][config.get("training", config)["epochs"]] = key
    for task, links in chains.items():
        assert sorted(links) == [1, 2, 3, 4, 5, 6], task
        gone_on = []
        for epochs in sorted(links):
            gone_on.append(store.record(links[epochs]).get("continued_from"))
        lengths = []
        for epochs in sorted(links):
            lengths.append(store.read(links[epochs])["epochs"][0].as_py())
        assert gone_on == [None, *lengths[:-1]], task
    assert states <= {key for links in chains.values() for key in links.values()}
    assert set() == store.states()
    assert Journal(tmp_path / "whole" / "engram-store" / "runs" / unbroken_run).roots() == journal.roots()
    for name in journal.roots():
        assert tables(undisturbed, unbroken_run, name) == tables(store, ended["run"], name)
