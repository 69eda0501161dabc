"""Runs with a store in a bucket: from the command line, from several machines, and during server failures.

Another working folder stands for another machine: only the bucket is shared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.inspection.results import read
from orchestrator.inspection.status import status
from orchestrator.run_folder.journal import Journal
from orchestrator.store import open_store
from orchestrator.store.entry import content
from tests.support.s3 import BUCKET, Server
from tests.support.shell import Here, Shell
from tests.support.waiting import HANGING

PLACE = f"s3://{BUCKET}/audits"
WAITING = ("trouble=wait", "at=3")  # parts 0 to 2 are computed at once, the others once there is a file `go`


class Machine(Here):
    """A working folder with access to the bucket. `shell` starts processes that run concurrently with the test."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        super().__init__(folder)
        folder.mkdir()
        self.env = {"ENGRAM_STORE": PLACE}
        self.shell = Shell(folder)
        self.shell.env |= {**env, **self.env}


@pytest.fixture
def machine(s3: Server, tmp_path: Path) -> Callable[[str], Machine]:
    def machine(name: str) -> Machine:
        return Machine(tmp_path / name, s3.env)

    return machine


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def computation_counts(log: Path) -> Counter[int]:
    path = log / "computed.log"
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


def test_run_is_readable_from_another_machine(s3: Server, machine: Callable[[str], Machine]) -> None:
    here = machine("here")
    other_machine = machine("there")
    assert {name: here.json("plan", "toys", "--preset", "few")[name] for name in ("planned", "stored")} == {
        "planned": 7,
        "stored": 0,
    }
    assert s3.names() == []  # a plan makes no store
    ended = here.json("run", "toys", "--preset", "few", "--address", "none")
    assert ended["state"] == "finished"
    assert ended["jobs"]["done"] == 7
    assert [ended["run"]] == [listed_run["run"] for listed_run in other_machine.json("runs")["runs"]]
    assert other_machine.json("status")["state"] == "finished"
    assert [row["estimate"] for row in other_machine.json("results", ended["run"])] == [15.0]
    assert other_machine.json("verify") == {"checked": 7, "damaged": []}
    assert other_machine.json("run", "toys", "--preset", "few", "--address", "none")["jobs"]["done"] == 0
    run_files = set()
    for name in s3.names(f"audits/runs/{ended['run']}"):
        run_files.add(name.removeprefix(f"audits/runs/{ended['run']}/"))
    assert run_files >= {"run.json", "plan.json", "events.jsonl", "timings.json"}
    assert sum(name.endswith(".parquet") for name in run_files) == 2
    assert s3.names("audits/claims") == []
    assert here.folder / "engram-runs" / BUCKET / "audits" / "runs" / ended["run"] in list(
        (here.folder / "engram-runs").rglob("toys-*")
    )
    assert not (here.folder / "engram-store").exists()


def test_choices_are_stored_in_the_bucket(s3: Server, machine: Callable[[str], Machine], log: Path) -> None:
    def ways(run: str) -> set[tuple[str, str]]:
        store = open_store(PLACE)
        parts = json.loads(s3.get(f"audits/runs/{run}/plan.json"))["roots"]["parts"]
        result = set()
        for record in map(store.record, parts):
            result.add((record["way"], record["chosen_by"]))
        return result

    here = machine("here")
    other_machine = machine("there")
    run = here.json("run", "toys", "parts=3", "trouble=choose", f"folder={log}", "--address", "none")["run"]
    (choice_file,) = s3.names(f"audits/runs/{run}/ways")
    text = s3.get(choice_file)
    for name in s3.names("audits/results"):
        s3.delete(name)
    (log / "slow").touch()  # it would be chosen otherwise now
    assert other_machine.json("resume", run, "--address", "none")["jobs"]["done"] == 4
    assert ways(run) == {("stack", "part 0")}
    assert (log / "chosen.log").read_text().split() == ["0"]
    assert text == s3.get(choice_file)
    assert [choice_file] == s3.names(f"audits/runs/{run}/ways")
    assert s3.names("audits/claims") == []


def test_verify_finds_damage_and_resume_repairs_it(s3: Server, machine: Callable[[str], Machine], log: Path) -> None:
    here = machine("here")
    command = ("run", "toys", f"folder={log}", "--address", "none")
    here.json(*command)
    keys = []
    for row in s3.names("audits/results"):
        keys.append(row.removesuffix(".arrow").rpartition("/")[2])
    s3.flip(f"audits/results/{keys[0][:2]}/{keys[0]}.arrow", 5000)
    s3.delete(f"audits/results/{keys[1][:2]}/{keys[1]}.arrow")
    assert [keys[0]] == here.json("verify", code=1)["damaged"]
    assert here.json("resume", here.json("runs")["runs"][0]["run"], "--address", "none")["jobs"]["done"] == 2
    assert here.json("verify") == {"checked": 7, "damaged": []}


def test_second_driver_elsewhere_is_refused(s3: Server, machine: Callable[[str], Machine], log: Path) -> None:
    here = machine("here")
    other_machine = machine("there")
    command = ("run", "toys", "parts=5", *WAITING, f"folder={log}", "--address", "none")
    first = here.shell.start(*command)
    here.shell.until(lambda: len(s3.names("audits/results")) >= 3, first)
    run_status = other_machine.json("status")
    assert run_status["state"] == "running"
    assert f"already has a driver: process {first.pid} on" in other_machine(*command, code=1).stderr
    (log / "go").touch()
    assert "finished" in first.communicate(timeout=HANGING)[0]
    assert Counter(range(5)) == computation_counts(log)
    assert other_machine.json("status")["state"] == "finished"


def test_killed_run_continues_on_another_machine(s3: Server, machine: Callable[[str], Machine], log: Path) -> None:
    here = machine("here")
    other_machine = machine("there")
    first = here.shell.start("run", "toys", "parts=6", *WAITING, f"folder={log}", "--address", "none")
    here.shell.until((log / "began.log").exists, first)
    first.kill()
    first.wait()
    assert len(s3.names("audits/results")) == 3
    (log / "go").touch()
    assert other_machine.json("status")["state"] == "interrupted"
    ended = other_machine.json("resume", "--address", "none")
    assert ended["state"] == "finished"
    assert ended["jobs"]["stored"] == 7
    assert ended["jobs"]["done"] == 4
    assert Counter([*range(6), 3]) == computation_counts(log)  # one was running when it died
    assert here.json("status")["state"] == "finished"
    events = []
    for line in s3.get(f"audits/runs/{ended['run']}/events.jsonl").splitlines():
        events.append(json.loads(line))
    assert sum(event["event"] == "started" for event in events) == 2


def test_decided_run_ends_equally_on_two_machines(
    s3: Server, machine: Callable[[str], Machine], log: Path, tmp_path: Path
) -> None:
    here = machine("here")
    other_machine = machine("there")
    arguments = ("run", "toys", "first=20", "trouble=wait", "at=23", f"folder={log}", "--until", "decided", "--most")
    first = here.shell.start(*arguments, "12", "--address", "none")
    here.shell.until((log / "began.log").exists, first)
    concurrent = other_machine.shell.start(*arguments, "14", "--address", "none")  # of the same pairs, at the same time
    other_machine.shell.until(lambda: sum("run.json" in name for name in s3.names("audits/runs")) == 2, concurrent)
    first.kill()
    first.wait()
    (log / "go").touch()
    ended = other_machine.json(*arguments, "12", "--address", "none")
    concurrent.communicate(timeout=HANGING)
    alone = Machine(tmp_path / "alone", {})
    alone.env = {"ENGRAM_STORE": str(tmp_path / "store")}
    for limit in ("12", "14"):
        undisturbed = alone.json(*arguments, limit, "--address", "none")
        stores = [open_store(PLACE), open_store(alone.env["ENGRAM_STORE"])]
        journals = [Journal(store.folder("runs", undisturbed["run"])) for store in stores]
        statuses = []
        for journal, store in zip(journals, stores, strict=True):
            statuses.append(status(journal, store))
        assert [entry.state for entry in statuses] == ["decided"] * 2
        assert statuses[0].note == statuses[1].note
        for name in ("summary", "evidence"):
            apart, undisturbed_table = (read(*entry, name).table for entry in zip(journals, stores, strict=True))
            assert apart.equals(undisturbed_table)
    assert ended["state"] == "decided"
    assert set(range(20, 26)) == computation_counts(log).keys()


@pytest.mark.slow
def test_unreachable_server_pauses_the_run(s3: Server, machine: Callable[[str], Machine], log: Path) -> None:
    here = machine("here")
    command = ("run", "toys", "parts=6", *WAITING, f"folder={log}", "--address", "none")
    run = here.shell.start(*command)
    here.shell.until((log / "began.log").exists, run)
    s3.stop()
    (log / "go").touch()
    try:
        _, err = run.communicate(timeout=HANGING)
        assert run.returncode == 1, err
        assert PLACE in err
        assert "paused" in err
        assert "Traceback" not in err
        refused = here("status", code=1).stderr
        assert "it cannot be reached" in refused
        assert len(refused.strip().splitlines()) == 1
    finally:
        s3.start()
    assert here.json(*command)["state"] == "finished"
    assert Counter([*range(6), 3]) == computation_counts(log)


@pytest.mark.slow
def test_clusters_results_are_equal_in_bucket_and_folder(
    s3: Server, machine: Callable[[str], Machine], ray_cluster: Any
) -> None:
    here = machine("here")
    # Workers have the keys to the bucket where the cluster was started with them.
    for store, address in ((PLACE, "local"), ("./engram-store", ray_cluster.address)):
        ended = here.shell.json("run", "toys", "--preset", "few", "--address", address, "--store", store)
        assert ended["state"] == "finished"
        assert ended["jobs"]["done"] == 7
    bucket = open_store(PLACE)
    folder = open_store(here.folder / "engram-store")
    assert bucket.keys() == folder.keys()
    for name in folder.keys() | bucket.keys():
        in_bucket = bucket.read(name)
        in_folder = folder.read(name)
        apart = [column for column in ("pid",) if column in in_bucket.schema.names]
        assert content(in_bucket.drop_columns(apart)) == content(in_folder.drop_columns(apart))
        assert bucket.record(name)["worker"].rpartition(":")[0]


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_store(s3: Server, machine: Callable[[str], Machine]) -> None:
    here = machine("here")
    few = ("scale=tiny", "canaries=1", "epochs=1", "examples=100", "--address", "none")
    for store in (PLACE, "./engram-store"):
        here.json("run", "unique_feature", *few, "--store", store)
    bucket = open_store(PLACE)
    folder = open_store(here.folder / "engram-store")
    assert bucket.keys() == folder.keys()
    folder_digests = {}
    for name in folder.keys() | set():
        folder_digests[name] = folder.record(name)["content"]
    bucket_digests = {}
    for name in folder.keys() | set():
        bucket_digests[name] = bucket.record(name)["content"]
    assert folder_digests == bucket_digests
