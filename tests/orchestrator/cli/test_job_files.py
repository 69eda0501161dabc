"""Users see what their trainings print and log, while they run and afterwards, and lose no epoch to a death."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from dashboards.live import LivePages
from orchestrator.cli.progress import metric_lines
from orchestrator.inspection import status
from orchestrator.run_folder.progress import RunProgress
from orchestrator.store import job_files, open_store
from tests.support.shell import Here, Shell
from tests.support.waiting import HANGING


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def training_keys(here: Here) -> list[str]:
    """The keys of the trainings of the newest run, by seed."""
    store = open_store(here.folder / "engram-store", create=False)
    keys = {}
    for key, name in status.newest(store).tasks().items():
        if name == "trainings.train":
            keys[store.record(key)["config"]["seed"] if key in store else key] = key
    return [key for _, key in sorted(keys.items())]


def test_log_of_a_stored_job_has_its_output_and_metrics(here: Here) -> None:
    run = here.json("run", "trainings", "--address", "none")["run"]
    key = training_keys(here)[0]
    log = here.json("logs", run, key[:8])
    assert log["key"] == key
    assert log["printed"] == {"stdout": "".join(f"epoch {epoch} of training 0\n" for epoch in range(3))}
    assert log["logged"]["step"] == 2
    assert log["logged"]["metrics"] == {"loss": 1 / 3, "accuracy": 0.75}
    text = here("logs", key).stdout
    assert "metrics   step 2: loss 0.3333, accuracy 0.75\n" in text
    assert "--- stdout\nepoch 0 of training 0\n" in text
    assert here.json("explain", key)["metrics"] == {"step": 2, "loss": 1 / 3, "accuracy": 0.75}
    assert "no job of trainings-" in here("logs", run, "fff0", code=2).stderr


@pytest.mark.parametrize("trouble", ["die", "segfault"])
def test_lost_training_continues_from_its_state(tmp_path: Path, trouble: str) -> None:
    shell = Shell(tmp_path)
    ended = shell.json("run", "trainings", "--address", "pool", f"trouble={trouble}", f"folder={tmp_path}")
    assert ended["state"] == "finished"
    epochs = (tmp_path / "epochs.log").read_text().split()
    assert sorted(epochs) == [f"{seed}:{epoch}" for seed in range(2) for epoch in range(3)]
    store = open_store(tmp_path / "engram-store", create=False)
    assert job_files.job_states(store) == {}
    assert list((tmp_path / "engram-store" / "job_states").iterdir()) == []


@pytest.mark.parametrize("address", ["none", "pool"])
def test_programs_are_ended_when_the_run_stops(tmp_path: Path, address: str) -> None:
    shell = Shell(tmp_path)
    run = shell.start("run", "trainings", "--address", address, "seconds=600", "epochs=1", "trainings=1")
    shell.until(lambda: bool(list(tmp_path.glob("engram-store/outputs/*/stdout"))), run)
    os.kill(run.pid, signal.SIGINT)
    messages = run.communicate(timeout=HANGING)[1]
    assert run.returncode == 130, messages
    assert "its program was ended because the run stops" in messages
    assert not (tmp_path / "engram-store" / "progress").exists()


def test_unfinished_runs_keep_their_states(here: Here) -> None:
    fields = ("trainings", "--address", "none", "trouble=raise", f"folder={here.folder}", "trainings=1")
    run = here.json("run", *fields, code=3)["run"]
    (key,) = training_keys(here)
    state = here.folder / "engram-store" / "job_states" / key
    assert here.json("gc")["files"] == []
    copy = {path.relative_to(state): path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert here.json("logs", key)["printed"]["stdout"] == "epoch 0 of training 0\n"
    assert here.json("resume", run, "--address", "none")["state"] == "finished"
    assert (here.folder / "epochs.log").read_text().split() == ["0:0", "0:1", "0:2"]
    assert not state.exists()
    for path, data in copy.items():  # as a worker leaves it that is killed after the result is stored
        (state / path).parent.mkdir(parents=True, exist_ok=True)
        (state / path).write_bytes(data)
    assert {name.rpartition("/")[2] for name in here.json("gc", "--delete")["files"]} == {"epoch", "lock"}
    assert not state.exists()
    assert here.json("gc")["files"] == []


def test_outputs_of_removed_runs_are_garbage(here: Here) -> None:
    run = here.json("run", "trainings", "--address", "none", "trainings=1")["run"]
    for path in sorted((here.folder / "engram-store" / "runs" / run).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (here.folder / "engram-store" / "runs" / run).rmdir()
    kinds = {kind["kind"]: kind["files"] for kind in here.json("gc", "--delete")["kinds"]}
    assert kinds == {"results": 2, "outputs of jobs": 2}
    assert list((here.folder / "engram-store" / "outputs").iterdir()) == []


def test_running_training_is_followed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    run = shell.start("run", "trainings", "--address", "none", "trouble=wait", f"folder={tmp_path}", "trainings=1")
    outputs = tmp_path / "engram-store" / "outputs"
    shell.until(lambda: bool(list(outputs.glob("*/metrics.jsonl"))), run)
    (path,) = outputs.glob("*/metrics.jsonl")
    shell.until(lambda: bool(path.read_text()), run)
    store = open_store(tmp_path / "engram-store", create=False)
    tally = RunProgress()
    for event in next(status.follow_reads(status.newest(store), store, 0.1)):
        tally.take(event)
    ((key, logged),) = tally.logged_metrics()
    assert (key, logged.describe()) == (path.parent.name, "step 0: loss 1, accuracy 0.5")
    assert metric_lines(tally) == [f"  {key[:12]}  step 0: loss 1, accuracy 0.5"]
    page = LivePages(store, lambda _: None).draw(status.newest(store).run, still=False)
    assert f"<code>{key[:12]}</code> step 0: loss 1, accuracy 0.5" in page
    output: list[str] = []
    follower = threading.Thread(target=lambda: output.append(shell("logs", key, "--follow").stdout))
    follower.start()
    (tmp_path / "go").touch()
    run.communicate(timeout=HANGING)
    follower.join()
    lines = output[0].splitlines()
    assert lines[:3] == [f"epoch {epoch} of training 0" for epoch in range(3)]
    assert "state     stored" in lines
