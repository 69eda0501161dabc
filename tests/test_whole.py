"""From command to result on a real Ray cluster: equal numbers on every route, and no loss after any fault."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from orchestrator.executors.connection import connect
from orchestrator.inspection.results import read
from orchestrator.inspection.status import status
from orchestrator.run_folder.journal import Journal
from orchestrator.store import open_store
from tests.chaos.campaign import KINDS, hold_campaign
from tests.support.shell import ROOT, Here, Shell, refusals, results
from tests.support.waiting import HANGING

CONFIG = ("--preset", "smoke", "family.count=20")
SMOKE = ("run", "unique_feature", *CONFIG)


@pytest.fixture
def engram(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    """The same folder."""
    return Here(tmp_path)


@pytest.fixture(params=["ray", "pool"])
def address(request: pytest.FixtureRequest) -> str:
    """The address of an executor whose workers are processes."""
    if request.param == "pool":
        return "pool"
    return str(request.getfixturevalue("ray_cluster").address)


def computation_counts(folder: Path) -> Counter[int]:
    """Count how often each of the toys' parts was computed."""
    return Counter(map(int, (folder / "computed.log").read_text().split()))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of an undisturbed run in this process, and the JSON that it printed."""
    engram = Here(tmp_path_factory.mktemp("undisturbed"))
    return engram.folder, engram.json(*SMOKE, "--address", "none")


def contents(folder: Path, run: str) -> dict[str, str]:
    """The digest of each of a run's tables by its key."""
    store = open_store(str(folder / "engram-store"))
    tables = Journal(store.folder("runs", run)).roots()
    result = {}
    for keys in tables.values():
        for key in keys:
            result[key] = store.record(key)["content"]
    return result


def workers(folder: Path) -> set[int]:
    """The processes that computed the results of the store in this folder."""
    store = open_store(str(folder / "engram-store"))
    result = set()
    for path in results(folder):
        result.add(int(store.record(path.stem)["worker"].rpartition(":")[2]))
    return result


@pytest.mark.slow
def test_process_ray_and_grouping_give_equal_tables(
    tmp_path: Path, ray_cluster: Any, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    first = undisturbed[0]
    run = undisturbed[1]["run"]
    tables = [contents(first, run)]
    assert tables[0]
    with connect(ray_cluster.address):  # so that the same workers serve both runs
        for name, more in {
            "together": ("--address", "none", "--together", "4"),
            "ray": ("--address", ray_cluster.address, "--together", "1"),
            "ray, together": ("--address", ray_cluster.address, "--together", "3"),
            "pool": ("--address", "pool", "--together", "2"),
        }.items():
            folder = tmp_path / name
            folder.mkdir()
            assert run == Here(folder).json(*SMOKE, *more)["run"]
            tables.append(contents(folder, run))
            assert (name == "together") == (os.getpid() in workers(folder))
            assert len(workers(folder)) >= (2 if name == "ray" else 1)
    assert [tables[0]] * 5 == tables


def test_run_survives_the_loss_of_a_node(engram: Shell, ray_cluster: Any) -> None:
    node = ray_cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    fields = ("parts=24", "trouble=wait", "at=5", f"folder={engram.folder}")
    run = engram.start("run", "toys", *fields, "--address", ray_cluster.address)
    try:
        engram.await_results(5, run)
        engram.await_begun(3, run)  # one per processor, so the second node has one
    finally:  # the cluster is others' too
        ray_cluster.remove_node(node, allow_graceful=False)
    engram.go()
    _, messages = run.communicate(timeout=HANGING)
    assert run.returncode == 0, messages
    assert set(range(24)) == set(computation_counts(engram.folder))
    assert sum(computation_counts(engram.folder).values()) <= 24 + 3  # at most what ran on the lost node
    ray_cluster.wait_for_nodes()  # until Ray has removed the lost one: the next test counts slots


def test_decided_run_ends_equally_after_kills(engram: Shell, here: Here, address: str, tmp_path: Path) -> None:
    arguments = ("run", "toys", "first=20", "trouble=wait", "at=22", f"folder={engram.folder}", "--until", "decided")
    arguments = (*arguments, "--most", "12")
    with nullcontext() if address == "pool" else connect(address):  # the workers of both starts
        first = engram.start(*arguments, "--address", address)
        engram.await_begun(2, first)
        for worker in workers(engram.folder):
            os.kill(worker, signal.SIGKILL)
        engram.await_begun(3, first)  # begun again by another worker
        first.kill()
        first.communicate()
        engram.go()
        ended = here.json("resume", "--address", address)
    here.env["ENGRAM_STORE"] = str(tmp_path / "another")
    undisturbed = here.json(*arguments, "--address", "none")
    del here.env["ENGRAM_STORE"]
    assert ended["state"] == "decided"
    assert ended["jobs"]["stored"] == 8
    run = undisturbed["run"]
    assert ended["run"] == run
    stores = [open_store(str(engram.folder / "engram-store")), open_store(str(tmp_path / "another"))]
    journals = [Journal(store.folder("runs", run)) for store in stores]
    assert len({status(journal, store).note for journal, store in zip(journals, stores, strict=True)}) == 1
    for name in ("summary", "evidence"):
        killed, undisturbed_table = (
            read(*journal_and_store, name).table for journal_and_store in zip(journals, stores, strict=True)
        )
        assert killed.equals(undisturbed_table)


def test_job_that_kills_its_worker_fails_alone(here: Here, address: str) -> None:
    fields = ("parts=12", "trouble=die", "at=5", f"folder={here.folder}")
    report = here.json("run", "toys", *fields, "--address", address, "--together", "4", code=3)
    assert report["jobs"] == {"planned": 13, "stored": 11, "done": 11, "failed": 1}
    assert "worker died 3 times" in here("status", report["run"]).stderr


@pytest.mark.slow
def test_killed_sweep_continues_with_shared_jobs_once(engram: Shell, here: Here, address: str) -> None:
    sweep = ("--sweep", "parts=12,16", "--sweep", "label=a,b", "--address", address)
    command = ("run", "toys", "trouble=wait", "at=6", f"folder={engram.folder}", *sweep)
    first = engram.start(*command)
    engram.await_results(6, first)
    first.kill()
    first.communicate()
    engram.go()
    stored_keys = {path.stem for path in engram.results()}
    report = here.json(*command)
    assert report["state"] == "finished"
    assert report["jobs"]["planned"] == 20  # 16 parts, 4 sums
    assert report["jobs"]["done"] <= 20 - len(stored_keys)
    assert set(range(16)) == set(computation_counts(engram.folder))
    assert (
        sum(computation_counts(engram.folder).values()) <= 16 + 2
    )  # at most the jobs that were running when it was killed


def test_one_signal_stops_a_run(engram: Shell, here: Here, address: str) -> None:
    fields = ("parts=40", "seconds=0.3", "trouble=wait", "at=3", f"folder={engram.folder}")
    run = engram.start("run", "toys", *fields, "--address", address)
    engram.await_results(3, run)
    run.send_signal(signal.SIGINT)
    engram.go()
    _, messages = run.communicate(timeout=HANGING)
    assert run.returncode == 130, messages
    assert "engram resume toys-" in messages
    assert "Traceback" not in messages
    before = len(engram.results())
    assert before < 41
    assert here.json("resume", "--address", address)["state"] == "finished"
    assert Counter(range(40)) == computation_counts(engram.folder)  # no finished job was lost


@pytest.mark.parametrize("address", [pytest.param("local", marks=pytest.mark.slow), "pool"])
def test_signal_to_process_group_stops_the_run(engram: Shell, address: str) -> None:
    fields = ("parts=40", "trouble=wait", "at=1", f"folder={engram.folder}")
    command = [sys.executable, "-m", "orchestrator", "run", "toys", *fields, "--address", address]
    run = subprocess.Popen(
        command, cwd=engram.folder, env=engram.env, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    engram.await_begun(1, run)
    os.killpg(run.pid, signal.SIGTERM)
    _, messages = run.communicate(timeout=HANGING)
    assert run.returncode == 130, messages
    assert "stopping: no new job is started" in messages
    assert "engram resume toys-" in messages
    assert "Traceback" not in messages


def test_second_driver_is_refused_and_names_the_first(engram: Shell, here: Here, ray_cluster: Any) -> None:
    fields = ("parts=20", "trouble=wait", "at=2", f"folder={engram.folder}")
    command = ("run", "toys", *fields, "--address", ray_cluster.address)
    first = engram.start(*command)
    engram.await_results(2, first)
    messages = here(*command, code=1).stderr
    assert str(first.pid) in messages
    assert first.poll() is None  # it is still running
    engram.go()
    first.communicate(timeout=HANGING)
    assert Counter(range(20)) == computation_counts(engram.folder)


def test_one_of_two_concurrent_drivers_runs(engram: Shell) -> None:
    command = ("run", "toys", "parts=40", "trouble=wait", f"folder={engram.folder}", "--address", "none")
    drivers = [engram.start(*command) for _ in range(2)]
    engram.until(lambda: any(started_driver.poll() is not None for started_driver in drivers))
    engram.go()
    messages = []
    for started_driver in drivers:
        messages.append(started_driver.communicate(timeout=HANGING)[1])
    assert sorted(started_driver.returncode for started_driver in drivers) == [0, 1], messages
    assert sum("already has a driver" in text for text in messages) == 1
    assert Counter(range(40)) == computation_counts(engram.folder)


FILLING = """
import subprocess, sys
disk, root, toys = sys.argv[1:]
subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=700k", "none", disk])
command = [sys.executable, "-m", "orchestrator", "run", "toys", "parts=400", f"folder={toys}", "--address", "none",
           "--store", f"{disk}/store"]
full = subprocess.run(command, capture_output=True, text=True)
stored = len(list(__import__("pathlib").Path(disk).glob("store/results/*/*.arrow")))
subprocess.check_call(["mount", "-o", "remount,size=50m", disk])
roomy = subprocess.run(command, capture_output=True, text=True)
print(full.returncode, roomy.returncode, stored)
print(full.stderr.strip().splitlines()[-1], file=sys.stderr)
print(roomy.stderr, file=sys.stderr)
"""


def test_full_disk_pauses_and_the_command_continues(engram: Shell) -> None:
    disk = engram.folder / "disk"
    disk.mkdir()
    script = [sys.executable, "-c", FILLING, str(disk), str(ROOT), str(engram.folder)]
    done = subprocess.run(
        ["unshare", "-m", *script], capture_output=True, text=True, env=engram.env, cwd=engram.folder, timeout=HANGING
    )
    assert done.returncode == 0, done.stderr
    full, roomy, stored_count = map(int, done.stdout.split())
    assert (full, roomy) == (1, 0), done.stderr
    assert "No space left on device" in done.stderr
    assert str(disk) in done.stderr.splitlines()[0]
    assert 0 < stored_count < 400
    counts = computation_counts(engram.folder)
    assert set(range(400)) == set(counts)
    assert sum(counts.values()) <= 400 + 64  # at most the call that found the disk full


def test_tables_after_a_chaos_campaign_are_equal(tmp_path: Path) -> None:
    kinds = [KINDS[name] for name in ("kill driver", "flip bits", "delete")]
    entries = hold_campaign(3, kinds, seed=1, folder=tmp_path, say=print, audits=())
    assert [entry.outcome for entry in entries] == ["equal"] * 3


def test_missing_data_on_resume_give_one_line(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    data = engram.folder / "data"
    data.mkdir()
    pixels = []
    for path in made_pictures(engram.folder, 40):
        pixels.append({"bytes": path.read_bytes(), "path": ""})
    for split in ("train", "test"):
        pq.write_table(pa.table({"image": pixels, "label": [i % 2 for i in range(40)]}), data / f"{split}.parquet")
    fields = (f"data=parquet:{data}", "canaries=1", "epochs=1", "examples=0", "--address", "none")
    run = engram.json(*SMOKE, *fields)
    result_files = engram.results()
    data.rename(engram.folder / "moved")
    result_files[0].unlink()
    # In a separate process, which has not read the data before.
    messages = Shell(tmp_path)("resume", run["run"], "--address", "none", code=1).stderr
    assert str(data) in messages
    assert "unexpected" not in messages
    assert len(refusals(messages)) == 1
    (engram.folder / "moved").rename(data)
    assert engram.json("resume", run["run"], "--address", "none")["jobs"]["done"] == 1


def made_pictures(folder: Path, count: int) -> list[Path]:
    """Grey 28 x 28 PNG files of noise."""
    paths = [folder / f"{i}.png" for i in range(count)]
    for i, path in enumerate(paths):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (28, 28), np.uint8)).save(path)
    return paths
