"""A chain of fine-tunings as a user has it: killed in mid-chain, resumed, and in the end what one training would be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store, open_store
from tests.support.shell import Here, Shell

FIELDS = ("--preset", "smoke", "examples=60", "held_out=8", "replicates=1", "epochs=3", "every=1", "resamples=9")
RUN = ("run", "relational", *FIELDS, "--address", "none")


def answers(store: Store, run: str) -> tuple[pa.Table, list[int | None]]:
    """All answers of a run's trainings by epoch, and the epoch that each link went on from."""
    journal = Journal(Path(store.location) / "runs" / run)
    keys = [key for key, task in journal.tasks().items() if task == "language_models.fine_tune"]
    keys.sort(key=lambda key: int(store.record(key)["config"]["epochs"]))
    table = pa.concat_tables([store.read(key) for key in keys])
    return table, [store.record(key).get("continued_from") for key in keys]


@pytest.mark.slow
def test_a_training_killed_in_mid_chain_gives_the_answers_of_the_unbroken_one(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = Here(tmp_path / "whole").json(*RUN, "link=0")["run"]
    engram, shell = Here(tmp_path), Shell(tmp_path)
    store = open_store(tmp_path / "engram-store")
    driver = shell.start(*RUN, "link=1")
    shell.until(lambda: bool(store.states()), driver)
    driver.kill()
    driver.communicate()
    ended = engram.json(*RUN, "link=1")
    unbroken, _ = answers(open_store(tmp_path / "whole" / "engram-store"), whole)
    chained, continued = answers(store, ended["run"])
    assert [None, 1, 2] == continued
    assert unbroken.equals(chained)
    assert set() == store.states()
