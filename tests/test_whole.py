"""From command to result on a real Ray cluster: the same numbers however they were come by, and nothing ever lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
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


def computed(folder: Path) -> Counter[int]:
    """How often each of the toys' parts was really computed."""
    return Counter(map(int, (folder / "computed.log").read_text().split()))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a run in this process, to which nothing happens, and what the run told."""
    engram = Here(tmp_path_factory.mktemp("undisturbed"))
    return engram.folder, engram.json(*SMOKE, "--address", "none")


def contents(folder: Path, run: str) -> dict[str, str]:
    """The digest of each of a run's tables by its key."""
    store = open_store(str(folder / "engram-store"))
    tables = Journal(store.folder("runs", run)).roots()
    return {key: store.record(key)["content"] for keys in tables.values() for key in keys}


def workers(folder: Path) -> set[int]:
    """The processes that computed the results of the store in this folder."""
    store = open_store(str(folder / "engram-store"))
    return {int(store.record(path.stem)["worker"].rpartition(":")[2]) for path in results(folder)}


@pytest.mark.slow
def test_this_process_ray_and_any_grouping_give_the_same_tables(
    tmp_path: Path, ray_cluster: Any, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    first, run = undisturbed[0], undisturbed[1]["run"]
    tables = [contents(first, run)]
    assert tables[0]
    with connect(ray_cluster.address):  # the runs' workers serve both of them
        for name, more in {
            "together": ("--address", "none", "--together", "4"),
            "ray": ("--address", ray_cluster.address, "--together", "1"),
            "ray, together": ("--address", ray_cluster.address, "--together", "3"),
        }.items():
            folder = tmp_path / name
            folder.mkdir()
            assert run == Here(folder).json(*SMOKE, *more)["run"]
            tables.append(contents(folder, run))
            assert ("ray" in name) == (os.getpid() not in workers(folder))
            assert len(workers(folder)) >= (2 if name == "ray" else 1)
    assert [tables[0]] * 4 == tables


def test_a_run_outlives_a_node_of_its_cluster(engram: Shell, ray_cluster: Any) -> None:
    node = ray_cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    fields = ("parts=24", "trouble=wait", "at=5", f"folder={engram.folder}")
    run = engram.start("run", "toys", *fields, "--address", ray_cluster.address)
    try:
        engram.await_results(5, run)
        engram.await_begun(3, run)  # one per CPU, so one of them is on the second node
    finally:  # the cluster is others' too
        ray_cluster.remove_node(node, allow_graceful=False)
    engram.go()
    _, said = run.communicate(timeout=HANGING)
    assert run.returncode == 0, said
    assert set(range(24)) == set(computed(engram.folder))
    assert sum(computed(engram.folder).values()) <= 24 + 3  # at most what ran on the lost node
    ray_cluster.wait_for_nodes()  # that is, until Ray has struck off the one that has gone: the next test counts slots


def test_a_run_until_decided_ends_at_the_same_pair_after_its_driver_and_a_worker_were_killed(
    engram: Shell, here: Here, ray_cluster: Any, tmp_path: Path
) -> None:
    asked = ("run", "toys", "first=20", "trouble=wait", "at=22", f"folder={engram.folder}", "--until", "decided")
    asked = (*asked, "--most", "12")
    with connect(ray_cluster.address):  # the workers of both starts
        first = engram.start(*asked, "--address", ray_cluster.address)
        engram.await_begun(2, first)
        for worker in workers(engram.folder):
            os.kill(worker, signal.SIGKILL)
        engram.await_begun(3, first)  # begun anew by another worker
        first.kill()
        first.communicate()
        engram.go()
        ended = here.json("resume", "--address", ray_cluster.address)
    here.env["ENGRAM_STORE"] = str(tmp_path / "another")
    undisturbed = here.json(*asked, "--address", "none")
    del here.env["ENGRAM_STORE"]
    assert (ended["state"], ended["jobs"]["stored"]) == ("decided", 8)
    run = undisturbed["run"]
    assert ended["run"] == run
    stores = [open_store(str(engram.folder / "engram-store")), open_store(str(tmp_path / "another"))]
    journals = [Journal(store.folder("runs", run)) for store in stores]
    assert len({status(journal, store).note for journal, store in zip(journals, stores, strict=True)}) == 1
    for name in ("summary", "evidence"):
        killed, whole = (read(*each, name).table for each in zip(journals, stores, strict=True))
        assert killed.equals(whole)


def test_a_job_that_always_kills_its_worker_is_set_aside_and_the_others_go_on(here: Here, ray_cluster: Any) -> None:
    fields = ("parts=12", "trouble=die", "at=5", f"folder={here.folder}")
    report = here.json("run", "toys", *fields, "--address", ray_cluster.address, "--together", "4", code=3)
    assert report["jobs"] == {"planned": 13, "stored": 11, "done": 11, "failed": 1}
    assert "worker died 3 times" in here("status", report["run"]).stderr


@pytest.mark.slow
def test_a_sweep_killed_midway_goes_on_and_computes_what_its_cells_share_once(
    engram: Shell, here: Here, ray_cluster: Any
) -> None:
    sweep = ("--sweep", "parts=12,16", "--sweep", "label=a,b", "--address", ray_cluster.address)
    command = ("run", "toys", "trouble=wait", "at=6", f"folder={engram.folder}", *sweep)
    first = engram.start(*command)
    engram.await_results(6, first)
    first.kill()
    first.communicate()
    engram.go()
    kept = {path.stem for path in engram.results()}
    report = here.json(*command)
    assert report["state"] == "finished"
    assert report["jobs"]["planned"] == 20  # 16 parts, 4 sums
    assert report["jobs"]["done"] <= 20 - len(kept)
    assert set(range(16)) == set(computed(engram.folder))
    assert sum(computed(engram.folder).values()) <= 16 + 2  # at most what was running when it was killed


def test_one_signal_stops_a_run_on_ray_and_says_how_to_go_on(engram: Shell, here: Here, ray_cluster: Any) -> None:
    fields = ("parts=40", "seconds=0.3", "trouble=wait", "at=3", f"folder={engram.folder}")
    run = engram.start("run", "toys", *fields, "--address", ray_cluster.address)
    engram.await_results(3, run)
    run.send_signal(signal.SIGINT)
    engram.go()
    _, said = run.communicate(timeout=HANGING)
    assert run.returncode == 130, said
    assert "engram resume toys-" in said
    assert "Traceback" not in said
    before = len(engram.results())
    assert before < 41
    assert here.json("resume", "--address", ray_cluster.address)["state"] == "finished"
    assert Counter(range(40)) == computed(engram.folder)  # nothing that had ended was lost


@pytest.mark.slow  # a cluster of its own, whose processes get the signal too
def test_a_signal_to_the_whole_process_group_stops_a_run_as_one_to_the_driver_does(engram: Shell) -> None:
    fields = ("parts=40", "trouble=wait", "at=1", f"folder={engram.folder}")
    command = [sys.executable, "-m", "orchestrator", "run", "toys", *fields, "--address", "local"]
    run = subprocess.Popen(
        command, cwd=engram.folder, env=engram.env, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    engram.await_begun(1, run)
    os.killpg(run.pid, signal.SIGTERM)
    _, said = run.communicate(timeout=HANGING)
    assert run.returncode == 130, said
    assert "stopping: no new job is started" in said
    assert "engram resume toys-" in said
    assert "Traceback" not in said


def test_a_second_driver_is_refused_at_once_and_names_the_first(engram: Shell, here: Here, ray_cluster: Any) -> None:
    fields = ("parts=20", "trouble=wait", "at=2", f"folder={engram.folder}")
    command = ("run", "toys", *fields, "--address", ray_cluster.address)
    first = engram.start(*command)
    engram.await_results(2, first)
    said = here(*command, code=1).stderr
    assert str(first.pid) in said
    assert first.poll() is None  # nobody has waited for its end
    engram.go()
    first.communicate(timeout=HANGING)
    assert Counter(range(20)) == computed(engram.folder)


def test_of_two_drivers_that_start_at_once_on_no_store_one_runs_and_one_is_refused(engram: Shell) -> None:
    command = ("run", "toys", "parts=40", "trouble=wait", f"folder={engram.folder}", "--address", "none")
    both = [engram.start(*command) for _ in range(2)]
    engram.until(lambda: any(each.poll() is not None for each in both))
    engram.go()
    said = [each.communicate(timeout=HANGING)[1] for each in both]
    assert sorted(each.returncode for each in both) == [0, 1], said
    assert sum("already has a driver" in text for text in said) == 1
    assert Counter(range(40)) == computed(engram.folder)


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


def test_a_full_disk_is_a_pause_and_the_same_command_goes_on_when_there_is_room(engram: Shell) -> None:
    disk = engram.folder / "disk"
    disk.mkdir()
    script = [sys.executable, "-c", FILLING, str(disk), str(ROOT), str(engram.folder)]
    done = subprocess.run(
        ["unshare", "-m", *script], capture_output=True, text=True, env=engram.env, cwd=engram.folder, timeout=HANGING
    )
    assert done.returncode == 0, done.stderr
    full, roomy, stored = map(int, done.stdout.split())
    assert (full, roomy) == (1, 0), done.stderr
    assert "No space left on device" in done.stderr
    assert str(disk) in done.stderr.splitlines()[0]
    assert 0 < stored < 400
    counts = computed(engram.folder)
    assert set(range(400)) == set(counts)
    assert sum(counts.values()) <= 400 + 64  # at most the call that found the disk full


def test_after_each_fault_of_a_short_campaign_the_tables_are_those_of_the_undisturbed_run(tmp_path: Path) -> None:
    kinds = [KINDS[name] for name in ("kill driver", "flip bits", "delete")]
    entries = hold_campaign(3, kinds, seed=1, folder=tmp_path, say=print, audits=())
    assert [entry.outcome for entry in entries] == ["equal"] * 3


def test_resuming_where_the_data_has_gone_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    data = engram.folder / "data"
    data.mkdir()
    pixels = [{"bytes": path.read_bytes(), "path": ""} for path in made_pictures(engram.folder, 40)]
    for split in ("train", "test"):
        pq.write_table(pa.table({"image": pixels, "label": [i % 2 for i in range(40)]}), data / f"{split}.parquet")
    fields = (f"data=parquet:{data}", "canaries=1", "epochs=1", "examples=0", "--address", "none")
    run = engram.json(*SMOKE, *fields)
    stored = engram.results()
    data.rename(engram.folder / "moved")
    stored[0].unlink()
    # In a process of its own, which has not read the data before.
    said = Shell(tmp_path)("resume", run["run"], "--address", "none", code=1).stderr
    assert str(data) in said
    assert "unexpected" not in said
    assert len(refusals(said)) == 1
    (engram.folder / "moved").rename(data)
    assert engram.json("resume", run["run"], "--address", "none")["jobs"]["done"] == 1


def made_pictures(folder: Path, count: int) -> list[Path]:
    """So many 28 x 28 grey PNG files of noise."""
    paths = [folder / f"{i}.png" for i in range(count)]
    for i, path in enumerate(paths):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (28, 28), np.uint8)).save(path)
    return paths
