"""Runs whose store lies in a bucket: from the command line, from several machines, and while the server fails.

Another machine is another working folder: nothing but the bucket is shared.
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
    """A working folder and the way to the bucket; what goes on beside the test goes on in processes of `shell`."""

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


def computed(log: Path) -> Counter[int]:
    path = log / "computed.log"
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


def test_a_run_is_seen_and_read_from_a_machine_that_knows_only_the_bucket(
    s3: Server, machine: Callable[[str], Machine]
) -> None:
    here, there = machine("here"), machine("there")
    assert {name: here.json("plan", "toys", "--preset", "few")[name] for name in ("planned", "stored")} == {
        "planned": 7,
        "stored": 0,
    }
    assert s3.names() == []  # a plan makes no store
    ended = here.json("run", "toys", "--preset", "few", "--address", "none")
    assert (ended["state"], ended["jobs"]["done"]) == ("finished", 7)
    assert [ended["run"]] == [each["run"] for each in there.json("runs")["runs"]]
    assert there.json("status")["state"] == "finished"
    assert [row["estimate"] for row in there.json("results", ended["run"])] == [15.0]
    assert there.json("verify") == {"checked": 7, "damaged": []}
    assert there.json("run", "toys", "--preset", "few", "--address", "none")["jobs"]["done"] == 0
    kept = {name.removeprefix(f"audits/runs/{ended['run']}/") for name in s3.names(f"audits/runs/{ended['run']}")}
    assert {"run.json", "plan.json", "events.jsonl", "timings.json"} <= kept
    assert sum(name.endswith(".parquet") for name in kept) == 2
    assert s3.names("audits/claims") == []
    assert here.folder / "engram-runs" / BUCKET / "audits" / "runs" / ended["run"] in list(
        (here.folder / "engram-runs").rglob("toys-*")
    )
    assert not (here.folder / "engram-store").exists()


def test_what_a_run_has_settled_is_kept_in_the_bucket_for_all_machines(
    s3: Server, machine: Callable[[str], Machine], log: Path
) -> None:
    def ways(run: str) -> set[tuple[str, str]]:
        store = open_store(PLACE)
        parts = json.loads(s3.get(f"audits/runs/{run}/plan.json"))["roots"]["parts"]
        return {(record["way"], record["chosen_by"]) for record in map(store.record, parts)}

    here, there = machine("here"), machine("there")
    run = here.json("run", "toys", "parts=3", "trouble=choose", f"folder={log}", "--address", "none")["run"]
    (kept,) = s3.names(f"audits/runs/{run}/ways")
    text = s3.get(kept)
    for name in s3.names("audits/results"):
        s3.delete(name)
    (log / "slow").touch()  # it would be chosen otherwise now
    assert there.json("resume", run, "--address", "none")["jobs"]["done"] == 4
    assert {("stack", "part 0")} == ways(run)
    assert (log / "chosen.log").read_text().split() == ["0"]
    assert (text, [kept]) == (s3.get(kept), s3.names(f"audits/runs/{run}/ways"))
    assert s3.names("audits/claims") == []


def test_a_damaged_result_is_found_by_verify_and_computed_again(
    s3: Server, machine: Callable[[str], Machine], log: Path
) -> None:
    here = machine("here")
    command = ("run", "toys", f"folder={log}", "--address", "none")
    here.json(*command)
    keys = [row.removesuffix(".arrow").rpartition("/")[2] for row in s3.names("audits/results")]
    s3.flip(f"audits/results/{keys[0][:2]}/{keys[0]}.arrow", 5000)
    s3.delete(f"audits/results/{keys[1][:2]}/{keys[1]}.arrow")
    assert [keys[0]] == here.json("verify", code=1)["damaged"]
    assert here.json("resume", here.json("runs")["runs"][0]["run"], "--address", "none")["jobs"]["done"] == 2
    assert here.json("verify") == {"checked": 7, "damaged": []}


def test_a_second_driver_elsewhere_is_refused_and_sees_the_first(
    s3: Server, machine: Callable[[str], Machine], log: Path
) -> None:
    here, there = machine("here"), machine("there")
    command = ("run", "toys", "parts=5", *WAITING, f"folder={log}", "--address", "none")
    first = here.shell.start(*command)
    here.shell.until(lambda: len(s3.names("audits/results")) >= 3, first)
    seen = there.json("status")
    assert seen["state"] == "running"
    assert f"already has a driver: process {first.pid} on" in there(*command, code=1).stderr
    (log / "go").touch()
    assert "finished" in first.communicate(timeout=HANGING)[0]
    assert Counter(range(5)) == computed(log)
    assert there.json("status")["state"] == "finished"


def test_a_killed_run_is_resumed_on_another_machine_and_computes_nothing_twice(
    s3: Server, machine: Callable[[str], Machine], log: Path
) -> None:
    here, there = machine("here"), machine("there")
    first = here.shell.start("run", "toys", "parts=6", *WAITING, f"folder={log}", "--address", "none")
    here.shell.until((log / "began.log").exists, first)
    first.kill()
    first.wait()
    assert len(s3.names("audits/results")) == 3
    (log / "go").touch()
    assert there.json("status")["state"] == "interrupted"
    ended = there.json("resume", "--address", "none")
    assert (ended["state"], ended["jobs"]["stored"], ended["jobs"]["done"]) == ("finished", 7, 4)
    assert Counter([*range(6), 3]) == computed(log)  # one was running when it died
    assert here.json("status")["state"] == "finished"
    events = [json.loads(line) for line in s3.get(f"audits/runs/{ended['run']}/events.jsonl").splitlines()]
    assert sum(event["event"] == "started" for event in events) == 2


def test_a_run_until_decided_ends_at_the_same_pair_on_two_machines_as_on_one(
    s3: Server, machine: Callable[[str], Machine], log: Path, tmp_path: Path
) -> None:
    here, there = machine("here"), machine("there")
    asked = ("run", "toys", "first=20", "trouble=wait", "at=23", f"folder={log}", "--until", "decided", "--most")
    first = here.shell.start(*asked, "12", "--address", "none")
    here.shell.until((log / "began.log").exists, first)
    beside = there.shell.start(*asked, "14", "--address", "none")  # of the same pairs, at the same time
    there.shell.until(lambda: sum("run.json" in name for name in s3.names("audits/runs")) == 2, beside)
    first.kill()
    first.wait()
    (log / "go").touch()
    ended = there.json(*asked, "12", "--address", "none")
    beside.communicate(timeout=HANGING)
    alone = Machine(tmp_path / "alone", {})
    alone.env = {"ENGRAM_STORE": str(tmp_path / "store")}
    for most in ("12", "14"):
        undisturbed = alone.json(*asked, most, "--address", "none")
        stores = [open_store(PLACE), open_store(alone.env["ENGRAM_STORE"])]
        journals = [Journal(store.folder("runs", undisturbed["run"])) for store in stores]
        seen = [status(journal, store) for journal, store in zip(journals, stores, strict=True)]
        assert [each.state for each in seen] == ["decided"] * 2
        assert seen[0].note == seen[1].note
        for name in ("summary", "evidence"):
            apart, whole = (read(*each, name).table for each in zip(journals, stores, strict=True))
            assert apart.equals(whole)
    assert ended["state"] == "decided"
    assert set(range(20, 26)) == computed(log).keys()


@pytest.mark.slow
def test_a_server_that_goes_away_is_a_pause_and_the_same_command_goes_on(
    s3: Server, machine: Callable[[str], Machine], log: Path
) -> None:
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
    assert Counter([*range(6), 3]) == computed(log)


@pytest.mark.slow
def test_a_cluster_s_workers_write_to_the_bucket_what_they_write_to_a_folder(
    s3: Server, machine: Callable[[str], Machine], ray_cluster: Any
) -> None:
    here = machine("here")
    # Workers have the keys to the bucket where the cluster was started with them.
    for store, address in ((PLACE, "local"), ("./engram-store", ray_cluster.address)):
        ended = here.shell.json("run", "toys", "--preset", "few", "--address", address, "--store", store)
        assert (ended["state"], ended["jobs"]["done"]) == ("finished", 7)
    bucket, folder = open_store(PLACE), open_store(here.folder / "engram-store")
    assert bucket.keys() == folder.keys()
    for name in folder.keys() | bucket.keys():
        one, other = (store.read(name) for store in (bucket, folder))
        apart = [each for each in ("pid",) if each in one.schema.names]
        assert content(one.drop_columns(apart)) == content(other.drop_columns(apart))
        assert bucket.record(name)["worker"].rpartition(":")[0]


@pytest.mark.slow
def test_an_audit_s_numbers_do_not_depend_on_where_they_are_stored(
    s3: Server, machine: Callable[[str], Machine]
) -> None:
    here = machine("here")
    few = ("scale=tiny", "canaries=1", "epochs=1", "examples=100", "--address", "none")
    for store in (PLACE, "./engram-store"):
        here.json("run", "unique_feature", *few, "--store", store)
    bucket, folder = open_store(PLACE), open_store(here.folder / "engram-store")
    assert bucket.keys() == folder.keys()
    one, other = ({name: store.record(name)["content"] for name in folder.keys() | set()} for store in (folder, bucket))
    assert one == other
