"""Small real tasks, and calls of them, for the executors' tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from orchestrator.executors.calls import Call, Item
from tasks.contract.job import Inputs, task
from tasks.worker import compute_context
from tasks.worker.job_services import current_services


@dataclass(frozen=True)
class Number:
    value: float


@task(version=1)
def double(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({"value": [2 * config.value + sum(table["value"][0].as_py() for table in inputs)]})


@task(version=1)
def surroundings(config: Number, inputs: Inputs) -> pa.Table:
    names = sorted(name for name in os.environ if name.startswith(("OMP", "MKL", "ENGRAM", "RAY_AUTH_MODE")))
    return pa.table(
        {
            "pid": [os.getpid()],
            "nice": [os.nice(0)],
            "environment": [[f"{name}={os.environ[name]}" for name in names]],
        }
    )


@task(version=1)
def fail(config: Number, inputs: Inputs) -> pa.Table:
    raise ValueError(f"{config.value} is not a number we like\nnor is this line")


@task(version=1)
def sleep(config: Number, inputs: Inputs) -> pa.Table:
    time.sleep(config.value)
    return pa.table({"pid": [os.getpid()]})


@task(version=1)
def until(config: Number, inputs: Inputs) -> pa.Table:
    """Report the start by a file next to the store, and end once the file `go` exists."""
    folder = Path(str(os.environ["ENGRAM_TOLD"]))
    (folder / f"began-{int(config.value)}").touch()
    forgotten = time.monotonic() + 600.0
    while not (folder / "go").exists() and time.monotonic() < forgotten:
        time.sleep(0.01)
    return pa.table({"pid": [os.getpid()]})


@task(version=1)
def serve(config: Number, inputs: Inputs) -> pa.Table:
    """Use all services of the worker. The first of two attempts dies if the number is negative.

    Prints its attempt, and lets a program print, too. Logs the attempt as a metric.
    """
    services = current_services()
    assert services.output is not None
    assert services.state is not None
    attempts = services.state / "attempts"
    number = len(attempts.read_text()) + 1 if attempts.exists() else 1
    attempts.write_text("x" * number)
    services.save_state()
    sys.stdout.write(f"attempt {number}\n")
    services.log({"attempt": number}, step=number)
    with open(services.output / "stderr", "a") as stderr:
        subprocess.run(["sh", "-c", "echo of a program >&2"], stderr=stderr, check=True)
    if config.value < 0 and number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return pa.table({"attempt": [number]})


@task(version=1)
def die(config: Number, inputs: Inputs) -> pa.Table:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


@task(version=1)
def interrupt(config: Number, inputs: Inputs) -> pa.Table:
    raise KeyboardInterrupt


@task(version=1)
def break_the_device(config: Number, inputs: Inputs) -> pa.Table:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def key_of(number: int) -> str:
    """A key for the tests: the number in hexadecimal."""
    return f"{number:064x}"


def call(name: str, *values: float, first: int = 1, inputs: Sequence[str] = ()) -> Call:
    """A call with one job of a task above per value. `first` is the call's number and its first key."""
    items = tuple(
        Item(key_of(first + index), f"{__name__}:{name}", Number(value), tuple(inputs))
        for index, value in enumerate(values)
    )
    return Call(first, f"jobs.{name}", items)


def run_and_locate(config: Number, waits_for_go: bool = False) -> pa.Table:
    """Take `value` seconds, or wait for `go` if `waits_for_go`, and return the place, time and share of the GPU.

    Notes a measurement of the GPU.
    """
    began = time.time()
    if waits_for_go:
        until(config, ())
    else:
        time.sleep(config.value)
    context = compute_context.current_context()
    compute_context.note(way="stack", stack=4, bytes_per_member=1e6, device_bytes=1e9, busy=0.5)
    return pa.table(
        {
            "pid": [os.getpid()],
            "gpu": [os.environ.get("CUDA_VISIBLE_DEVICES")],
            "began": [began],
            "ended": [time.time()],
            "sharers": [context.sharers],
        }
    )


def _placed_together(configs: Sequence[Number], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table]]:
    for index, config in enumerate(configs):
        yield index, run_and_locate(config)


@task(version=1, gpus=1.0, many=_placed_together)
def on_gpu(config: Number, inputs: Inputs) -> pa.Table:
    return run_and_locate(config)


@task(version=1, gpus=1.0)
def held_on_gpu(config: Number, inputs: Inputs) -> pa.Table:
    return run_and_locate(config, waits_for_go=True)


@task(version=1, gpus=1.0)
def visible_gpus(config: Number, inputs: Inputs) -> pa.Table:
    """The GPUs that the job's process sees, and the number that it may use."""
    gpu_count = compute_context.current_context().gpus
    return pa.table({"seen": [os.environ["CUDA_VISIBLE_DEVICES"]], "told": [gpu_count]})


def _small_or_large(config: Number) -> pa.Table:
    """Waits for `go` if the number is at least 16. Notes a GPU of one of two sizes that is a quarter busy."""
    import ray

    context = ray.get_runtime_context()
    began = time.time()
    table = until(config, ()) if config.value >= 16 else pa.table({"pid": [os.getpid()]})
    gpu_type = context.get_node_labels().get("ray.io/accelerator-type", "")
    device = 1e9 if gpu_type == "T4" else 1e10
    compute_context.note(way="stack", stack=4, bytes_per_member=1e8, device_bytes=device, busy=0.25)
    sharers = compute_context.current_context().sharers
    facts = {"node": context.get_node_id(), "type": gpu_type, "began": began, "ended": time.time(), "sharers": sharers}
    for name, fact in facts.items():
        table = table.append_column(name, pa.array([fact]))
    return table


def _small_or_large_together(configs: Sequence[Number], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table]]:
    for index, config in enumerate(configs):
        yield index, _small_or_large(config)


@task(version=1, gpus=1.0, many=_small_or_large_together)
def small_or_large(config: Number, inputs: Inputs) -> pa.Table:
    return _small_or_large(config)


@task(version=1, trains=1)
def on_cpu(config: Number, inputs: Inputs) -> pa.Table:
    return run_and_locate(config)


@task(version=1)
def threads(config: Number, inputs: Inputs) -> pa.Table:
    """The number of threads that torch uses in this process."""
    import torch

    return pa.table({"threads": [torch.get_num_threads()], "pid": [os.getpid()]})
