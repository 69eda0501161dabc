"""A search as a user has it: on a real cluster, killed and resumed, stopped early, refused, and on real trainings."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.executors.connection import connect
from orchestrator.inspection.search_results import CUT, FRESH, RECOMMENDED, SEARCHED
from orchestrator.run_folder.journal import Journal
from orchestrator.searches import searching
from orchestrator.searches.definition import Settings, build_search, reopen_search
from orchestrator.searches.evaluation import Evaluation
from orchestrator.searches.searching import SearchOutcome
from orchestrator.searches.trials import FAILED, FINISHED, REFUSED, STOPPED, Trial
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store
from tests.support.shell import Here, Shell

OVER = {"rate": "log(0.001..0.1)", "wide": "true,false"}
ASKED = ("rate=0.05", *(f"--over={name}={domain}" for name, domain in OVER.items()))


@pytest.fixture
def engram(tmp_path: Path, ray_cluster: Any) -> Shell:
    shell = Shell(tmp_path)
    shell.env |= {"RAY_ADDRESS": ray_cluster.address}
    return shell


@pytest.fixture(scope="module")
def connection(ray_cluster: Any) -> Iterator[None]:
    """One connection of this process for all its searches, so that a worker serves them all."""
    with connect(ray_cluster.address):
        yield


@pytest.fixture
def here(tmp_path: Path, ray_cluster: Any, connection: None) -> Here:
    """The same folder, and this process with its connection."""
    here = Here(tmp_path)
    here.env = {"RAY_ADDRESS": ray_cluster.address}
    return here


@pytest.fixture
def searched(tmp_path: Path, ray_cluster: Any, connection: None) -> Any:
    """Makes a search of the toy audit in this process."""

    def searched(over: dict[str, Any] = OVER, settings: dict[str, Any] | None = None, **fields: Any) -> SearchOutcome:
        spec = Spec("tunable", None, {"rate": 0.05, "folder": str(tmp_path), **fields})
        how = Execution(address=ray_cluster.address, mlflow="off", report=False)
        return searching.run(
            build_search(spec, Settings(over, **settings or {})), open_store(str(tmp_path / "store")), how
        )

    return searched


def of(found: SearchOutcome, part: str = SEARCHED) -> list[Trial]:
    """The trials of a part by number, without what the search begins from."""
    there = [trial for trial in found.trials if trial.part == part and (trial.number or part == FRESH)]
    return sorted(there, key=lambda trial: trial.number)


def trials(shell: Shell | Here, search: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(
        shell.folder / f"engram-store/runs/{search}/tables/trials/trials.parquet"
    ).to_pylist()
    return rows


def trained(folder: Path) -> list[str]:
    """Every epoch that was really trained, as rate:wide:seed:epoch."""
    log = folder / "epochs.log"
    return log.read_text().splitlines() if log.exists() else []


def stored(folder: Path) -> set[str]:
    """Every epoch behind a stored training."""
    found = set()
    for path in (folder / "engram-store").rglob("*.arrow"):
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        if "rate" in table.column_names:
            row = table.to_pylist()[0]
            found |= {f"{row['rate']}:{row['wide']}:{row['seed']}:{epoch}" for epoch in range(1, row["epochs"] + 1)}
    return found


def workers(store: Path, trials: list[Trial]) -> set[str]:
    """The processes that computed the results of these trials."""
    opened = open_store(str(store))
    return {opened.record(key)["worker"] for trial in trials for key in Journal(store / "runs" / trial.run).tasks()}


def test_a_search_finds_what_remembers_least_and_audits_it_again(searched: Any, tmp_path: Path) -> None:
    settings = {"trials": 6, "give_up": 0.2}
    found = searched(settings=settings, noise=0.05)
    assert (0, list(range(1, 7))) == (found.exit_code, [trial.number for trial in of(found)])
    start, best = of(found, FRESH)
    assert (RECOMMENDED, best.number) == (found.answer.answer, found.answer.winner)
    assert start.seed == best.seed != of(found)[0].seed
    assert found.answer.estimate == pytest.approx(start.memorization.estimate - best.memorization.estimate)
    assert found.answer.low > 0
    chosen = of(found)[best.number - 1]
    assert chosen.setting == best.setting
    assert chosen.memorization != best.memorization  # both are in the table
    # What trials asked for and what the search itself did was computed by the same workers.
    assert workers(tmp_path / "store", of(found)) & workers(tmp_path / "store", of(found, FRESH))
    lines = trained(tmp_path)
    assert len(lines) == len(set(lines))
    # Once more it is the same, and nothing is trained; with more trials the first ones stay.
    assert (found.name, found.trials) == ((again := searched(settings=settings, noise=0.05)).name, again.trials)
    assert lines == trained(tmp_path)
    longer = searched(settings=settings | {"trials": 8}, noise=0.05)
    assert found.name == longer.name
    assert of(found) == of(longer)[:6]


@pytest.mark.slow
def test_a_search_killed_twice_and_resumed_is_the_undisturbed_one(engram: Shell, here: Here, tmp_path: Path) -> None:
    asked = (*ASKED, "noise=0.05", "--trials", "8", "--rungs", "2,4,8", "--give-up", "0.3")
    told = here.json("search", "tunable", f"folder={engram.folder}", *asked)
    undisturbed = trials(engram, told["run"])

    shell = Shell(tmp_path / "killed")
    shell.folder.mkdir()
    shell.env |= {"RAY_ADDRESS": engram.env["RAY_ADDRESS"]}
    line = ("search", "tunable", f"folder={engram.folder}", *asked)  # the same config: another folder is another search
    log = len(trained(engram.folder))
    for lines in (10, 50):
        run = shell.start(*line)
        shell.until(lambda count=lines: len(trained(engram.folder)) >= log + count, run)  # type: ignore[misc]
        run.kill()
        run.wait()
        there, before = stored(shell.folder), len(trained(engram.folder))
    here.folder = shell.folder
    assert told["recommendation"] == here.json("search", "--resume")["recommendation"]
    assert undisturbed == trials(shell, told["run"])
    assert not there & set(trained(engram.folder)[before:])  # what was stored was not trained again


def test_trials_are_stopped_early_and_go_on_from_their_links(searched: Any, tmp_path: Path) -> None:
    found = searched({"rate": "0.04,0.03,0.02,0.01,0.003,0.001"}, {"sampler": "grid", "rungs": (2, 4, 8)})
    stopped = [trial for trial in of(found) if trial.state == STOPPED]
    ended = [trial for trial in of(found) if trial.state == FINISHED]
    assert len(stopped) + len(ended) == 6
    assert stopped
    assert {8} == {trial.epochs for trial in ended}
    assert {2, 4} >= {trial.epochs for trial in stopped}
    lines = trained(tmp_path)
    assert len(lines) == len(set(lines))  # each epoch once: a rung goes on from the one before
    assert all(trial.utility.estimate < min(each.utility.estimate for each in ended) for trial in stopped)


def test_choices_that_do_not_go_together_are_refused_and_trainings_that_fail_are_told(searched: Any) -> None:
    found = searched({"wide": "true,false", "extra": "null,1.0", "broken": "true,false"}, {"sampler": "grid"})
    states = {tuple(trial.setting.values()): trial for trial in of(found)}
    refused = states["true", "1.0", "false"]
    assert (refused.state, "a wide model has none" in refused.note) == (REFUSED, True)
    failed = states["false", "null", "true"]
    assert (failed.state, "nothing is learnt" in failed.note) == (FAILED, True)
    assert states["false", "null", "false"].state == FINISHED
    assert found.exit_code == 3


def test_a_spent_budget_ends_a_search_that_can_be_continued(searched: Any) -> None:
    found = searched(settings={"trials": 3, "budget": 0.001})
    assert (found.exit_code, "the budget was spent" in found.stop_reason) == (1, True)
    again = searched(settings={"trials": 3})
    assert (found.name, 0, 3) == (again.name, again.exit_code, len(of(again)))


def test_optuna_proposes_the_same_trials_again(searched: Any, tmp_path: Path) -> None:
    found = searched(settings={"trials": 4, "sampler": "optuna"})
    lines = trained(tmp_path)
    assert found.trials == searched(settings={"trials": 4, "sampler": "optuna"}).trials
    assert lines == trained(tmp_path)


def test_trials_side_by_side_are_the_same_trials(searched: Any) -> None:
    """Without rungs no trial depends on the pace of another; equal ones wait for each other."""
    over = {"rate": "0.01,0.02", "wide": "true,false"}
    one, many = (searched(over, {"trials": 6, "concurrent": each}) for each in (1, 3))
    assert one.name != many.name
    assert {replace(trial, number=0) for trial in map(plain, of(one))} == {
        replace(trial, number=0) for trial in map(plain, of(many))
    }


def plain(trial: Trial) -> Trial:
    return replace(trial, setting=tuple(trial.setting.items()))  # type: ignore[arg-type]  # to be counted in a set


def test_ctrl_c_stops_a_search_and_tells_how_to_go_on(engram: Shell) -> None:
    run = engram.start("search", "tunable", f"folder={engram.folder}", "wait=true", *ASKED, "--trials", "2")
    engram.await_begun(1, run)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate()
    assert run.returncode == 130, said
    assert "engram search --resume tunable-search-" in said


def test_a_search_is_cancelled_from_another_process(engram: Shell, here: Here) -> None:
    run = engram.start("search", "tunable", f"folder={engram.folder}", "wait=true", *ASKED, "--trials", "2")
    engram.await_begun(1, run)
    (folder,) = engram.folder.glob("engram-store/runs/tunable-search-*")
    here("cancel", folder.name)
    engram.go()
    _, said = run.communicate()
    assert run.returncode == 130, said
    assert "not finished: cancelled by " in said


def test_resume_takes_up_the_search_of_a_trial_that_was_cut_off(engram: Shell, here: Here) -> None:
    """The trial's run is the newest that has not finished, and the search does not know of it yet."""
    run = engram.start("search", "tunable", "epochs=2", f"folder={engram.folder}", "--over", "wait=false,true",
                       "--sampler", "grid")  # fmt: skip
    engram.await_begun(1, run)
    run.kill()
    run.wait()
    run = engram.start("resume", "--json")
    begun = len((engram.folder / "began.log").read_text().splitlines())
    engram.await_begun(begun + 1, run)
    assert "tunable-search-" in here("search", "--resume", code=1).stderr  # while it waits, another is refused
    engram.go()
    told, said = run.communicate()
    assert run.returncode == 0, said
    told = json.loads(told)
    assert (told["state"], told["trials"]) == ("finished", {"planned": 2, "made": 2})
    assert told["run"].startswith("tunable-search-")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)])
    yield place
    subprocess.check_call(["umount", "-l", str(place)])


def fill(disk: Path) -> Path:
    """A file that takes what is left of the disk."""
    filling = disk / "filling"
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filling


def test_a_disk_that_fills_up_in_a_search_loses_nothing_and_it_goes_on_when_there_is_room(
    engram: Shell, here: Here, disk: Path
) -> None:
    store = ("--store", str(disk / "engram-store"))
    run = engram.start("search", "tunable", "epochs=2", f"folder={engram.folder}", "--over", "wait=false,true",
                       "--sampler", "grid", *store)  # fmt: skip
    engram.await_begun(1, run)
    filling = fill(disk)
    engram.go()
    _, said = run.communicate()
    assert run.returncode == 1, said
    (told,) = (line for line in said.splitlines() if line.startswith("not finished: "))
    assert "No space left on device" in told
    assert "continue with: engram search --resume tunable-search-" in told
    assert "Traceback" not in said
    shell = Shell(disk)
    name = told.split("--resume ")[1].split()[0]
    before = trials(shell, name)
    assert [(row["trial"], row["state"]) for row in before][:2] == [(0, FINISHED), (1, FINISHED)]
    # A trial that cannot even begin is cut off, too, instead of being tried again and again.
    about = Journal(disk / "engram-store/runs" / name).about()
    evaluation = Evaluation(reopen_search(about["audit"], about["search"], {}), store[1], Execution(address="none"), {})
    cut = evaluation.trial(open_store(store[1]), 2, {"rate": "0.07"})
    assert (cut.state, "No space left on device" in cut.note) == (CUT, True)
    filling.unlink()
    told = here.json("search", "--resume", *store)
    assert (told["state"], told["trials"]) == ("finished", {"planned": 2, "made": 2})
    assert before[:2] == trials(shell, name)[:2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--over", "rate=0.01,0.02", "--address", "none"), "a search needs Ray Tune"),
        (("--over", "rat=1,2"), "did you mean 'rate'"),
        ((), "needs a field to vary"),
        (("--over", "rate=1,2", "--rungs", "two"), "rungs"),
        (("--over", "rate=1,2", "--budget", "soon"), "'soon' is not a duration"),
        (("--over", "rate=1,2", "--sweep", "wide=true,false"), "No such option"),
    ],
)
def test_bad_usage_is_told_in_a_line_and_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = Here(tmp_path)("search", "tunable", *arguments, code=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "engram-store").exists()


def test_what_is_resumed_is_a_search_and_stays_what_it_was(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here("run", "tunable", "--address", "none")
    name = next(path.name for path in (tmp_path / "engram-store/runs").iterdir() if path.name.startswith("tunable"))
    assert "has no searches" in here("search", "--resume", code=2).stderr
    assert f"engram resume {name}" in here("search", "--resume", name, code=2).stderr
    assert "it would change the search" in here("search", "--resume", "--over", "rate=1,2", code=2).stderr
    assert "give an audit or a file" in here("search", code=2).stderr


@pytest.mark.parametrize("command", [("search", "--resume"), ("resume",)])
def test_search_with_keys_of_another_format_is_not_resumed(tmp_path: Path, command: tuple[str, ...]) -> None:
    here = Here(tmp_path)
    here("run", "tunable", "--address", "none")
    name = "tunable-search-01234567"
    runs = tmp_path / "engram-store" / "runs"
    (trial,) = (path.name for path in runs.iterdir() if path.name.startswith("tunable"))
    Journal(runs / name).create({"audit": "tunable", "cells": [trial], "search": {}}, None)
    refused = here(*command, name, code=1).stderr
    assert f"run {name} was planned by a version of Engram with another key format" in refused
    assert "engram search tunable" in refused


def test_a_file_says_all_of_a_search(here: Here) -> None:
    (here.folder / "search.yaml").write_text(
        f"audit: tunable\nset: {{folder: {here.folder}, epochs: 4}}\n"
        "search:\n  over: {rate: [0.01, 0.02], wide: [true, false]}\n  sampler: grid\n  give_up: 0.3\n"
    )
    told = here.json("search", "search.yaml")
    assert [{}, *({"rate": rate, "wide": wide} for rate in ("0.01", "0.02") for wide in ("true", "false"))] == sorted(
        (json.loads(row["setting"]) for row in trials(here, told["run"]) if row["part"] == "search"),
        key=lambda setting: (len(setting), setting.get("rate"), setting.get("wide") == "false"),
    )
    (here.folder / "search.yaml").write_text("audit: tunable\nsearch: {ovr: {rate: [1, 2]}}\n")
    assert "unknown key 'search.ovr'" in here("search", "search.yaml", code=2).stderr
    here("plan", "search.yaml", code=2)


@pytest.mark.slow
def test_real_trainings_are_searched(here: Here) -> None:
    """Canaries in digits: narrow networks, and none of a canary's neighbours."""
    over = ("--over", "width=0.25,1", "--over", "neighbours_left_out=0,10", "--sampler", "grid")
    told = here.json("search", "unique_feature", "--preset", "smoke", "family.count=20", *over)
    rows = trials(here, told["run"])
    units = {(row["memorization_unit"], row["utility_unit"]) for row in rows}
    assert {("pair of trainings", "training")} == units
    assert {"finished"} == {row["state"] for row in rows}
    settings = [json.loads(row["setting"]) for row in rows if row["part"] == "search"]
    grid = [{"width": width, "neighbours_left_out": count} for width in ("0.25", "1") for count in ("0", "10")]
    assert {} in settings
    assert all(setting in settings for setting in grid)
    assert all(row["memorization"] is not None and 0 < row["utility"] <= 1 for row in rows)
