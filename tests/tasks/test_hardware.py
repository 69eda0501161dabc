"""Networks are computed on one thread of a processor, and whatever was set before is set again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tasks import hardware


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What torch knows of cuDNN, with a user's own settings."""
    kinds = {name: SimpleNamespace(fp32_precision=precision) for name, precision in (("conv", "tf32"), ("rnn", "none"))}
    found = SimpleNamespace(**kinds, deterministic=False)
    monkeypatch.setattr(torch.backends, "cudnn", found)
    before = torch.get_float32_matmul_precision()
    yield found
    assert before == torch.get_float32_matmul_precision()


def test_the_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, kind in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert torch.device(kind) == hardware.device()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: f"NVIDIA number {place.index}")
    assert ["cpu", "NVIDIA number 1"] == [hardware.name(torch.device(each)) for each in ("cpu", "cuda:1")]


def test_a_processor_computes_on_one_thread_and_on_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with suppress(KeyError), hardware.exactly(torch.device("cpu")):
            assert 1 == torch.get_num_threads()
            raise KeyError
        assert 3 == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def test_a_gpu_computes_whole_float32_the_same_way_each_time_and_as_before_afterwards(
    library: SimpleNamespace,
) -> None:
    with suppress(KeyError), hardware.exactly(torch.device("cuda")):
        assert (True, "ieee", "ieee") == (
            library.deterministic,
            library.conv.fp32_precision,
            library.rnn.fp32_precision,
        )
        assert "highest" == torch.get_float32_matmul_precision()
        raise KeyError
    assert (False, "tf32", "none") == (
        library.deterministic,
        library.conv.fp32_precision,
        library.rnn.fp32_precision,
    )


def test_threads_are_set_inside_and_restored_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with hardware.threads(before + 1):
            assert before + 1 == torch.get_num_threads()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert before == torch.get_num_threads()


def told(system: Path, limit: str) -> Path:
    """What Linux tells of its memory in kilobytes, and of a container's in bytes."""
    for name, text in {
        "proc/meminfo": "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:   4000 kB\n",
        "sys/fs/cgroup/memory.max": limit,
        "sys/fs/cgroup/memory.current": "900000\n",
        "sys/fs/cgroup/memory.stat": "anon 400000\nfile 300000\n",
    }.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).write_text(text)
    return system


@pytest.mark.parametrize(
    ("limit", "available"),
    [("max\n", 4000 * 1024), ("1000000\n", 400000), ("100000000\n", 4000 * 1024), ("500000\n", 0)],
)
def test_memory_that_can_be_had_is_the_hosts_or_what_a_container_may_have(
    tmp_path: Path, limit: str, available: int
) -> None:
    assert available == hardware.available_memory(told(tmp_path, limit))


def test_without_either_it_is_half_of_all_memory(tmp_path: Path) -> None:
    (told(tmp_path, "max\n") / "sys/fs/cgroup/memory.max").unlink()
    assert 4000 * 1024 == hardware.available_memory(tmp_path)
    assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 == hardware.available_memory(tmp_path / "no")
