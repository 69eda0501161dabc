"""Networks are computed on one thread of a processor, exactly; whatever was set before is set again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch

from tasks.worker import hardware


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
    assert [hardware.name(torch.device(each)) for each in ("cpu", "cuda:1")] == ["cpu", "NVIDIA number 1"]


def test_a_processor_computes_on_one_thread_and_on_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with suppress(KeyError), hardware.exactly(torch.device("cpu")):
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_gpu_computes_whole_float32_the_same_way_each_time_and_as_before_afterwards(
    library: SimpleNamespace,
) -> None:
    with suppress(KeyError), hardware.exactly(torch.device("cuda")):
        assert (
            library.deterministic,
            library.conv.fp32_precision,
            library.rnn.fp32_precision,
        ) == (True, "ieee", "ieee")
        assert torch.get_float32_matmul_precision() == "highest"
        raise KeyError
    assert (
        library.deterministic,
        library.conv.fp32_precision,
        library.rnn.fp32_precision,
    ) == (False, "tf32", "none")


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
    assert hardware.available_memory(tmp_path) == 4000 * 1024
    assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 == hardware.available_memory(tmp_path / "no")


ROOT = Path(__file__).resolve().parents[3]
ASKED = {
    "nothing": "",
    "the old way": "torch.set_float32_matmul_precision('medium')",
    "the GPU's new way": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "the CPU's new way": "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "both ways": "torch.set_float32_matmul_precision('high'); torch.backends.cuda.matmul.fp32_precision = 'ieee'",
    "everything": "torch.backends.fp32_precision = 'tf32'",
    "the oldest way": "torch.backends.cuda.matmul.allow_tf32 = True",
}


# Each way is asked for by a child of its own, because these settings leave traces in torch.
SCRIPT = """
import os, sys, traceback
import torch
from tasks.worker.hardware import full_float32

def asked():
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:
        legacy = "contradicting"
    return legacy, torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision

def check(way):
    exec(way)
    before = asked()
    try:
        with full_float32():
            assert ("highest", "ieee", "ieee") == asked(), asked()
            assert not torch.backends.cuda.matmul.allow_tf32
            raise KeyError("inside")
    except KeyError:
        pass
    assert before == asked(), (before, asked())

for way in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            check(way)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def statuses() -> Mapping[str, tuple[int, str]]:
    """How the check of each way ended, and what was said by all."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *ASKED.values()], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name: (int(status), done.stderr) for name, status in zip(ASKED, done.stdout.split(), strict=True)}


@pytest.mark.parametrize("asked", ASKED)
def test_products_are_exact_inside_and_as_the_user_asked_afterwards(
    asked: str, statuses: Mapping[str, tuple[int, str]]
) -> None:
    status, said = statuses[asked]
    assert status == 0, said


FAULTS = """
import resource
from tasks.worker import hardware

def faults():
    for step in range(20):
        if step == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [bytes([step]) * 2**22 for _ in range(8)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
assert hardware.keep_freed_memory()
print(given_back, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's way with freed memory")
def test_freed_memory_is_used_again_without_being_asked_for_page_by_page() -> None:
    # Whether glibc gives back such blocks unasked depends on what else lies on the heap; so it is told to.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**17)}
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, env=env)
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 10 * 8 * 2**20 * 4 / 4096 / 2  # half of the pages at least
    assert kept < given_back / 100  # none of them, but what a system short of memory takes away


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "device"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "device"),
        (MemoryError(), "host"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "host"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), "host"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("out of memory"), None),
    ],
)
def test_errors_say_which_memory_ran_out(error: Exception, memory: str | None) -> None:
    assert memory == hardware.exhausted_memory(error)


def test_a_torch_allocation_that_no_host_can_make_exhausts_the_hosts_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert hardware.exhausted_memory(caught.value) == "host"


TAKEN = """
from tasks.worker import hardware
def of(megabytes):
    hardware.reset_peak_memory()
    bytearray(megabytes * 1000 * 1000)
    return hardware.peak_memory()
print(of(300), of(50), of(100))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_the_peak_of_a_processs_memory_is_counted_anew_after_each_reset() -> None:
    taken = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, check=True).stdout.split()
    most, least, middle = (int(each) / 1e6 for each in taken)
    assert 300 <= most <= 340
    assert pytest.approx(most - middle, abs=5) == 200
    assert pytest.approx(middle - least, abs=5) == 50
