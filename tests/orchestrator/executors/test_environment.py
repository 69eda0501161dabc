"""GPUs are counted as CUDA would count them, without using one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from orchestrator.executors import environment
from orchestrator.executors.environment import handler_kept, no_stderr, variables
from orchestrator.executors.local import LocalExecutor
from orchestrator.store import open_store


def test_variables_are_set_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_ONE", "before")
    monkeypatch.delenv("ENGRAM_TWO", raising=False)
    monkeypatch.setenv("ENGRAM_THREE", "before")
    with variables({"ENGRAM_ONE": "1", "ENGRAM_TWO": "2"}, "ENGRAM_THREE", "ENGRAM_FOUR"):
        assert os.environ["ENGRAM_ONE"] == "1"
        assert os.environ["ENGRAM_TWO"] == "2"
        del os.environ["ENGRAM_THREE"]
        os.environ["ENGRAM_FOUR"] = "unasked"
    assert os.environ["ENGRAM_ONE"] == "before"
    assert os.environ["ENGRAM_THREE"] == "before"
    assert not {"ENGRAM_TWO", "ENGRAM_FOUR"} & set(os.environ)


def test_libraries_loaded_inside_use_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    with environment.use_one_thread():
        assert {os.environ[name] for name in environment.ONE_THREAD} == {"1"}
    assert os.environ["MKL_NUM_THREADS"] == "7"


def test_signal_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with handler_kept(signal.SIGTERM):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert before == signal.getsignal(signal.SIGTERM)


def test_stderr_is_suppressed_temporarily(capfd: pytest.CaptureFixture[str]) -> None:
    with no_stderr():
        os.write(2, b"a library's own words\n")
    os.write(2, b"ours\n")
    assert capfd.readouterr().err == "ours\n"


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver lists four_gpus GPUs."""
    for name in ("0000:1a:00.0", "0000:1b:00.0", "0000:3c:00.0", "0000:3d:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    monkeypatch.setattr(environment, "DRIVER", tmp_path / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4), ("", 0), ("-1", 0), ("NoDevFiles", 0), ("2", 1), ("0,1,2,3", 4), (" 0, 3 ", 2), ("0,4,1", 1),
        ("0,-1,1", 1), ("GPU-8932f937-d72c,GPU-1", 2), ("MIG-GPU-8932f937/1/2", 1),
    ],
)  # fmt: skip
def test_visible_devices_are_counted(visible: str | None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count == environment.count_gpus()


def gpu_count_by_script(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> int:
    """The count on a machine whose driver has no folder, and whose nvidia-smi does this."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(environment, "DRIVER", folder / "nothing")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return environment.count_gpus()


def test_nvidia_smi_is_used_without_driver_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo '  MIG 1g: (UUID: MIG-1)'; echo 'GPU 1: NVIDIA H200'"
    assert gpu_count_by_script(tmp_path, monkeypatch, listing) == 2
    assert gpu_count_by_script(tmp_path, monkeypatch, "echo 'No devices were found'; exit 6") == 0


def test_machine_without_nvidia_smi_has_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "DRIVER", tmp_path / "nothing")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.count_gpus() == 0


@pytest.mark.usefixtures("four_gpus")
def test_local_executor_runs_one_call_at_a_time(tmp_path: Path) -> None:
    executor = LocalExecutor(open_store(tmp_path / "store").location)
    assert executor.slots == 1
    assert executor.window == 1
    assert executor.gpus == 1
    assert executor.sharers == 1
