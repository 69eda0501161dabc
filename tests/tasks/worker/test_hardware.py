"""Networks are computed exactly on one thread of a processor; earlier settings are restored."""

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
    """torch's cuDNN settings as changed by a user."""
    kinds = {}
    for name, precision in (("conv", "tf32"), ("rnn", "none")):
        kinds[name] = SimpleNamespace(fp32_precision=precision)
    settings = SimpleNamespace(**kinds, deterministic=False)
    monkeypatch.setattr(torch.backends, "cudnn", settings)
    before = torch.get_float32_matmul_precision()
    yield settings
    assert before == torch.get_float32_matmul_precision()


def test_available_gpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_available, kind in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda is_available=is_available: is_available)
        assert torch.device(kind) == hardware.device()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA number {device.index}")
    assert hardware.device_name(torch.device("cpu")) == "cpu"
    assert hardware.device_name(torch.device("cuda:1")) == "NVIDIA number 1"


def test_processor_uses_one_thread_and_restores_the_count() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with suppress(KeyError), hardware.exactly(torch.device("cpu")):
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_gpu_computes_exact_float32_and_restores_settings(
    library: SimpleNamespace,
) -> None:
    with suppress(KeyError), hardware.exactly(torch.device("cuda")):
        assert (
            library.deterministic,
            library.conv.fp32_precision,
            library.rnn.fp32_precision,
        ) == (True, "ieee", "ieee")
        assert torch.get_float32_matmul_precision() == "highest"
        with hardware.tf32_products():
            assert (library.conv.fp32_precision, torch.get_float32_matmul_precision()) == ("tf32", "high")
        assert (library.conv.fp32_precision, torch.get_float32_matmul_precision()) == ("ieee", "highest")
        raise KeyError
    assert (
        library.deterministic,
        library.conv.fp32_precision,
        library.rnn.fp32_precision,
    ) == (False, "tf32", "none")


def test_thread_count_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with hardware.threads(before + 1):
            assert before + 1 == torch.get_num_threads()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert before == torch.get_num_threads()


def write_memory_files(system: Path, limit: str) -> Path:
    """Write Linux's files about memory: the host's in kilobytes, the container's in bytes."""
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
def test_available_memory_respects_host_and_container(tmp_path: Path, limit: str, available: int) -> None:
    assert available == hardware.available_memory(write_memory_files(tmp_path, limit))


def test_processors_are_those_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert hardware.granted_processors() == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert 1 <= hardware.granted_processors() <= (os.cpu_count() or 1)


def test_unknown_memory_is_half_of_total(tmp_path: Path) -> None:
    (write_memory_files(tmp_path, "max\n") / "sys/fs/cgroup/memory.max").unlink()
    assert hardware.available_memory(tmp_path) == 4000 * 1024
    assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 == hardware.available_memory(tmp_path / "no")


ROOT = Path(__file__).resolve().parents[3]
PRECISION_SETTINGS = {
    "nothing": "",
    "the old way": "torch.set_float32_matmul_precision('medium')",
    "the GPU's new way": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "the CPU's new way": "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "both ways": "torch.set_float32_matmul_precision('high'); torch.backends.cuda.matmul.fp32_precision = 'ieee'",
    "everything": "torch.backends.fp32_precision = 'tf32'",
    "the oldest way": "torch.backends.cuda.matmul.allow_tf32 = True",
}


# Each setting is tested in its own child process, because these settings leave traces in torch.
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
    """The exit status of each setting's check, and the shared error output."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *PRECISION_SETTINGS.values()], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    result = {}
    for name, status in zip(PRECISION_SETTINGS, done.stdout.split(), strict=True):
        result[name] = (int(status), done.stderr)
    return result


@pytest.mark.parametrize("setting", PRECISION_SETTINGS)
def test_products_are_exact_and_settings_restored(setting: str, statuses: Mapping[str, tuple[int, str]]) -> None:
    status, output = statuses[setting]
    assert status == 0, output


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
def test_freed_memory_is_kept_for_reuse() -> None:
    # Whether glibc returns such blocks depends on the rest of the heap, so the threshold is set.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**17)}
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, env=env)
    returned_faults, kept_faults = map(int, done.stdout.split())
    assert returned_faults > 10 * 8 * 2**20 * 4 / 4096 / 2  # half of the pages at least
    assert kept_faults < returned_faults / 100  # almost none: a system short of memory may take some


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
def test_errors_name_the_exhausted_memory(error: Exception, memory: str | None) -> None:
    assert memory == hardware.exhausted_memory(error)


def test_torch_allocation_error_exhausts_host_memory() -> None:
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux reports it")
def test_peak_memory_is_reset() -> None:
    peaks = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, check=True).stdout.split()
    highest, lowest, middle = (int(peak) / 1e6 for peak in peaks)
    assert 300 <= highest <= 340
    assert pytest.approx(highest - middle, abs=5) == 200
    assert pytest.approx(middle - lowest, abs=5) == 50
