"""Searches as by a user: on a real cluster, killed and resumed, stopped early, refused, and with real trainings."""

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
    """The same folder, and this process, connected to the cluster."""
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


def trials_of(outcome: SearchOutcome, part: str = SEARCHED) -> list[Trial]:
    """The trials of a part by number, without the start."""
    trials_of_part = [trial for trial in outcome.trials if trial.part == part and (trial.number or part == FRESH)]
    return sorted(trials_of_part, key=lambda trial: trial.number)


def trial_rows(shell: Shell | Here, search: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(
        shell.folder / f"engram-store/runs/{search}/tables/trials/trials.parquet"
    ).to_pylist()
    return rows


def trained_epochs(folder: Path) -> list[str]:
    """Every epoch that was really trained, as rate:wide:seed:epoch."""
    log = folder / "epochs.log"
    return log.read_text().splitlines() if log.exists() else []


def stored_epochs(folder: Path) -> set[str]:
    """The epochs of all stored trainings."""
    epochs = set()
    for path in (folder / "engram-store").rglob("*.arrow"):
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        if "rate" in table.column_names:
            row = table.to_pylist()[0]
            epochs |= {f"{row['rate']}:{row['wide']}:{row['seed']}:{epoch}" for epoch in range(1, row["epochs"] + 1)}
    return epochs


def workers(store: Path, trials: list[Trial]) -> set[str]:
    """The processes that computed the results of these trials."""
    opened = open_store(str(store))
    result = set()
    for trial in trials:
        for key in Journal(store / "runs" / trial.run).tasks():
            result.add(opened.record(key)["worker"])
    return result


def test_search_finds_least_memorising_trial_and_audits_again(searched: Any, tmp_path: Path) -> None:
    settings = {"trials": 6, "give_up": 0.2}
    outcome = searched(settings=settings, noise=0.05)
    assert outcome.exit_code == 0
    assert [trial.number for trial in trials_of(outcome)] == list(range(1, 7))
    start, best = trials_of(outcome, FRESH)
    assert outcome.answer.answer == RECOMMENDED
    assert outcome.answer.winner == best.number
    assert start.seed == best.seed != trials_of(outcome)[0].seed
    assert outcome.answer.estimate == pytest.approx(start.memorization.estimate - best.memorization.estimate)
    assert outcome.answer.low > 0
    searched_trial = trials_of(outcome)[best.number - 1]
    assert searched_trial.setting == best.setting
    assert searched_trial.memorization != best.memorization  # both are in the table
    # The same workers compute the trials and the search's own results.
    assert workers(tmp_path / "store", trials_of(outcome)) & workers(tmp_path / "store", trials_of(outcome, FRESH))
    lines = trained_epochs(tmp_path)
    assert len(lines) == len(set(lines))
    # A repetition is equal and trains no model; with more trials, the first ones stay.
    assert outcome.name == (repeated := searched(settings=settings, noise=0.05)).name
    assert outcome.trials == repeated.trials
    assert lines == trained_epochs(tmp_path)
    longer = searched(settings=settings | {"trials": 8}, noise=0.05)
    assert outcome.name == longer.name
    assert trials_of(outcome) == trials_of(longer)[:6]


@pytest.mark.slow
def test_killed_and_resumed_search_equals_undisturbed_one(engram: Shell, here: Here, tmp_path: Path) -> None:
    arguments = (*ASKED, "noise=0.05", "--trials", "8", "--rungs", "2,4,8", "--give-up", "0.3")
    undisturbed_run = here.json("search", "tunable", f"folder={engram.folder}", *arguments)
    undisturbed = trial_rows(engram, undisturbed_run["run"])

    shell = Shell(tmp_path / "killed")
    shell.folder.mkdir()
    shell.env |= {"RAY_ADDRESS": engram.env["RAY_ADDRESS"]}
    line = (
        "search",
        "tunable",
        f"folder={engram.folder}",
        *arguments,
    )  # the same config: another folder is another search
    log = len(trained_epochs(engram.folder))
    for lines in (10, 50):
        run = shell.start(*line)
        shell.until(lambda count=lines: len(trained_epochs(engram.folder)) >= log + count, run)  # type: ignore[misc]
        run.kill()
        run.wait()
        stored_before = stored_epochs(shell.folder)
        before = len(trained_epochs(engram.folder))
    here.folder = shell.folder
    assert undisturbed_run["recommendation"] == here.json("search", "--resume")["recommendation"]
    assert undisturbed == trial_rows(shell, undisturbed_run["run"])
    assert not stored_before & set(trained_epochs(engram.folder)[before:])  # no stored epoch was trained again


def test_stopped_trials_continue_from_their_links(searched: Any, tmp_path: Path) -> None:
    outcome = searched({"rate": "0.04,0.03,0.02,0.01,0.003,0.001"}, {"sampler": "grid", "rungs": (2, 4, 8)})
    stopped = [trial for trial in trials_of(outcome) if trial.state == STOPPED]
    ended = [trial for trial in trials_of(outcome) if trial.state == FINISHED]
    assert len(stopped) + len(ended) == 6
    assert stopped
    assert {trial.epochs for trial in ended} == {8}
    assert {trial.epochs for trial in stopped} <= {2, 4}
    lines = trained_epochs(tmp_path)
    assert len(lines) == len(set(lines))  # each epoch once: a rung continues from the one before
    assert all(
        trial.utility.estimate < min(finished_trial.utility.estimate for finished_trial in ended) for trial in stopped
    )


def test_refused_choices_and_failed_trainings_are_reported(searched: Any) -> None:
    outcome = searched({"wide": "true,false", "extra": "null,1.0", "broken": "true,false"}, {"sampler": "grid"})
    states = {tuple(trial.setting.values()): trial for trial in trials_of(outcome)}
    refused = states["true", "1.0", "false"]
    assert (refused.state, "a wide model has none" in refused.note) == (REFUSED, True)
    failed = states["false", "null", "true"]
    assert (failed.state, "nothing is learnt" in failed.note) == (FAILED, True)
    assert states["false", "null", "false"].state == FINISHED
    assert outcome.exit_code == 3


def test_search_with_spent_budget_can_be_continued(searched: Any) -> None:
    outcome = searched(settings={"trials": 3, "budget": 0.001})
    assert (outcome.exit_code, "the budget was spent" in outcome.stop_reason) == (1, True)
    continued = searched(settings={"trials": 3})
    assert continued.name == outcome.name
    assert continued.exit_code == 0
    assert len(trials_of(continued)) == 3


def test_optuna_proposes_the_same_trials_again(searched: Any, tmp_path: Path) -> None:
    outcome = searched(settings={"trials": 4, "sampler": "optuna"})
    lines = trained_epochs(tmp_path)
    assert outcome.trials == searched(settings={"trials": 4, "sampler": "optuna"}).trials
    assert lines == trained_epochs(tmp_path)


def test_concurrent_trials_equal_sequential_ones(searched: Any) -> None:
    """Without rungs, no trial depends on the pace of another. Equal ones wait for each other."""
    over = {"rate": "0.01,0.02", "wide": "true,false"}
    one = searched(over, {"trials": 6, "concurrent": 1})
    many = searched(over, {"trials": 6, "concurrent": 3})
    assert one.name != many.name
    assert {replace(trial, number=0) for trial in map(plain, trials_of(one))} == {
        replace(trial, number=0) for trial in map(plain, trials_of(many))
    }


def plain(trial: Trial) -> Trial:
    return replace(trial, setting=tuple(trial.setting.items()))  # type: ignore[arg-type]  # to be counted in a set


def test_interrupted_search_says_how_to_continue(engram: Shell) -> None:
    run = engram.start("search", "tunable", f"folder={engram.folder}", "wait=true", *ASKED, "--trials", "2")
    engram.await_begun(1, run)
    run.send_signal(signal.SIGINT)
    _, output = run.communicate()
    assert run.returncode == 130, output
    assert "engram search --resume tunable-search-" in output


def test_search_is_cancelled_from_another_process(engram: Shell, here: Here) -> None:
    run = engram.start("search", "tunable", f"folder={engram.folder}", "wait=true", *ASKED, "--trials", "2")
    engram.await_begun(1, run)
    (folder,) = engram.folder.glob("engram-store/runs/tunable-search-*")
    here("cancel", folder.name)
    engram.go()
    _, output = run.communicate()
    assert run.returncode == 130, output
    assert "not finished: cancelled by " in output


def test_resume_continues_the_search_of_a_trial(engram: Shell, here: Here) -> None:
    """The trial's run is the newest unfinished one, and the search's table does not contain it yet."""
    run = engram.start("search", "tunable", "epochs=2", f"folder={engram.folder}", "--over", "wait=false,true",
                       "--sampler", "grid")  # fmt: skip
    engram.await_begun(1, run)
    run.kill()
    run.wait()
    run = engram.start("resume", "--json")
    begun_count = len((engram.folder / "began.log").read_text().splitlines())
    engram.await_begun(begun_count + 1, run)
    assert "tunable-search-" in here("search", "--resume", code=1).stderr  # while it waits, another is refused
    engram.go()
    report, messages = run.communicate()
    assert run.returncode == 0, messages
    report = json.loads(report)
    assert report["state"] == "finished"
    assert report["trials"] == {"planned": 2, "made": 2}
    assert report["run"].startswith("tunable-search-")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small separate disk."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(mount_point)])
    yield mount_point
    subprocess.check_call(["umount", "-l", str(mount_point)])


def fill(disk: Path) -> Path:
    """A file that fills the rest of the disk."""
    filling = disk / "filling"
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filling


def test_full_disk_loses_nothing_and_search_continues(engram: Shell, here: Here, disk: Path) -> None:
    store = ("--store", str(disk / "engram-store"))
    run = engram.start("search", "tunable", "epochs=2", f"folder={engram.folder}", "--over", "wait=false,true",
                       "--sampler", "grid", *store)  # fmt: skip
    engram.await_begun(1, run)
    filling = fill(disk)
    engram.go()
    _, messages = run.communicate()
    assert run.returncode == 1, messages
    (stop_message,) = (line for line in messages.splitlines() if line.startswith("not finished: "))
    assert "No space left on device" in stop_message
    assert "continue with: engram search --resume tunable-search-" in stop_message
    assert "Traceback" not in messages
    shell = Shell(disk)
    name = stop_message.split("--resume ")[1].split()[0]
    before = trial_rows(shell, name)
    assert [(row["trial"], row["state"]) for row in before][:2] == [(0, FINISHED), (1, FINISHED)]
    # A trial that cannot begin is also cut off, instead of being repeated.
    about = Journal(disk / "engram-store/runs" / name).about()
    evaluation = Evaluation(reopen_search(about["audit"], about["search"], {}), store[1], Execution(address="none"), {})
    cut = evaluation.trial(open_store(store[1]), 2, {"rate": "0.07"})
    assert (cut.state, "No space left on device" in cut.note) == (CUT, True)
    filling.unlink()
    stop_message = here.json("search", "--resume", *store)
    assert stop_message["state"] == "finished"
    assert stop_message["trials"] == {"planned": 2, "made": 2}
    assert before[:2] == trial_rows(shell, name)[:2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--over", "rate=0.01,0.02", "--address", "none"), "a search needs Ray Tune"),
        (("--over", "rat=1,2"), "did you mean 'rate'"),
        ((), "needs a field to vary"),
        (("--over", "rate=1,2", "--rungs", "two"), "rungs"),
        (("--over", "rate=1,2", "--budget", "soon"), "'soon' is not a duration"),
        (("--over", "rate=1,2", "--sweep", "wide=true,false"), "No such option"),
    ],
)
def test_bad_usage_is_one_line_without_a_store(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = Here(tmp_path)("search", "tunable", *arguments, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "engram-store").exists()


def test_only_a_search_is_resumed_unchanged(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here("run", "tunable", "--address", "none")
    name = next(path.name for path in (tmp_path / "engram-store/runs").iterdir() if path.name.startswith("tunable"))
    assert "has no searches" in here("search", "--resume", code=2).stderr
    assert f"engram resume {name}" in here("search", "--resume", name, code=2).stderr
    assert "it would change the search" in here("search", "--resume", "--over", "rate=1,2", code=2).stderr
    assert "pass an audit, a file or --resume" in here("search", code=2).stderr


@pytest.mark.parametrize("command", [("search", "--resume"), ("resume",)])
def test_search_with_another_key_format_is_not_resumed(tmp_path: Path, command: tuple[str, ...]) -> None:
    here = Here(tmp_path)
    here("run", "tunable", "--address", "none")
    name = "tunable-search-01234567"
    runs = tmp_path / "engram-store" / "runs"
    (trial,) = (path.name for path in runs.iterdir() if path.name.startswith("tunable"))
    Journal(runs / name).create({"audit": "tunable", "cells": [trial], "search": {}}, None)
    refused = here(*command, name, code=1).stderr
    assert f"run {name} was planned by a version of Engram with another key format" in refused
    assert "engram search tunable" in refused


def test_file_can_state_an_entire_search(here: Here) -> None:
    (here.folder / "search.yaml").write_text(
        f"audit: tunable\nset: {{folder: {here.folder}, epochs: 4}}\n"
        "search:\n  over: {rate: [0.01, 0.02], wide: [true, false]}\n  sampler: grid\n  give_up: 0.3\n"
    )
    report = here.json("search", "search.yaml")
    assert sorted(
        (json.loads(row["setting"]) for row in trial_rows(here, report["run"]) if row["part"] == "search"),
        key=lambda setting: (len(setting), setting.get("rate"), setting.get("wide") == "false"),
    ) == [{}, *({"rate": rate, "wide": wide} for rate in ("0.01", "0.02") for wide in ("true", "false"))]
    (here.folder / "search.yaml").write_text("audit: tunable\nsearch: {ovr: {rate: [1, 2]}}\n")
    assert "unknown key 'search.ovr'" in here("search", "search.yaml", code=2).stderr
    here("plan", "search.yaml", code=2)


@pytest.mark.slow
def test_real_trainings_are_searched(here: Here) -> None:
    """Canaries in digits: narrow networks, and none of a canary's neighbours."""
    over = ("--over", "width=0.25,1", "--over", "neighbours_left_out=0,10", "--sampler", "grid")
    report = here.json("search", "unique_feature", "--preset", "smoke", "family.count=20", *over)
    rows = trial_rows(here, report["run"])
    units = {(row["memorization_unit"], row["utility_unit"]) for row in rows}
    assert units == {("pair of trainings", "training")}
    assert {row["state"] for row in rows} == {"finished"}
    settings = [json.loads(row["setting"]) for row in rows if row["part"] == "search"]
    grid = []
    for width in ("0.25", "1"):
        for count in ("0", "10"):
            grid.append({"width": width, "neighbours_left_out": count})
    assert {} in settings
    assert all(setting in settings for setting in grid)
    assert all(row["memorization"] is not None and 0 < row["utility"] <= 1 for row in rows)
