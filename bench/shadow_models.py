"""Processor time per shadow model, including process start, compared with one process per model and a typical loop.

Engram trains the models of a membership audit on halves of the records in one process, and evaluates each model on all
records. The rival starts one process per model, which trains the same network on as many images for as many epochs with
a DataLoader (bench/perceptron.py) and evaluates no records. Both use one thread. The benchmark measures the processor
time of child processes, which is little affected by other processes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.measuring import Row
from bench.perceptron import THREAD_SETTINGS

ROOT = Path(__file__).resolve().parent.parent
MODELS = 16
TINY_MODELS = 4


def rows(tiny: bool) -> Iterator[Row]:
    """Measure processor time per model, compared with both loops."""
    if tiny:
        models = TINY_MODELS
        rivals = 1
        records = 512
        epochs = 1
    else:
        models = MODELS
        rivals = 3
        records = 10_000
        epochs = 5
    size = (str(records), str(epochs))
    engram_cpu, engram_wall = (total / models for total in measure_process(str(models), *size))
    for loop in ("tensors", "PIL"):
        rival_seconds = [measure_process(loop, *size) for _ in range(rivals)]
        rival_cpu, rival_wall = (sum(total) / rivals for total in zip(*rival_seconds, strict=True))
        subject = (
            f"shadow model, mlp1 on half of {records:,} records, {epochs} epochs, {models} models, 1 thread, CPU time"
        )
        yield Row(
            subject,
            f"{engram_cpu:.2f} s ({engram_wall:.2f} s wall)",
            f"{rival_cpu:.2f} s ({rival_wall:.2f} s wall), {loop}",
            rival_cpu / engram_cpu,
        )


def measure_process(*arguments: str) -> tuple[float, float]:
    """Run this script with these arguments and return its processor and wall seconds."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    environment = os.environ | dict.fromkeys(THREAD_SETTINGS, "1") | {"PYTHONPATH": str(ROOT)}
    cpu = spent()
    wall = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bench.shadow_models", *arguments], check=True, env=environment)
    return spent() - cpu, time.perf_counter() - wall


def train_shadows(models: int, records: int, epochs: int) -> None:
    """Train the audit's models and evaluate each of them on all records."""
    from tasks.audits.membership.config import Halves, Membership
    from tasks.audits.membership.trainings import answers, trainings
    from tasks.datasets.catalog import pin
    from tasks.datasets.dataset import Dataset, DatasetError
    from tasks.models.catalog import Network
    from tasks.training.classifier_config import ClassifierTraining
    from tasks.training.mixed import train_many

    try:
        data = pin(Dataset("mnist"), {})
    except DatasetError:
        data = pin(Dataset("digits"), {})
        records = min(records, 1400)
    jobs = trainings(Membership(Halves(data, records, models), ClassifierTraining(Network("mlp1"), epochs=epochs)))
    configs = [replace(job.inputs[0].config) for job in jobs]
    for index, model in train_many(configs, [()] * models):
        if isinstance(model, Exception):
            raise model
        answers(jobs[index].config, (model,))


def train_rival(loop: str, records: int, epochs: int) -> None:
    """Train one model with the rival loop on half of the records."""
    import torch

    from bench.perceptron import LOOPS
    from measurement.images import images

    torch.set_num_threads(1)
    epoch = LOOPS[loop](images(records // 2)[1], torch.device("cpu"))
    for _ in range(epochs):
        epoch()


if __name__ == "__main__":
    kind, count, passes = sys.argv[1:]
    if kind.isdigit():
        train_shadows(int(kind), int(count), int(passes))
    else:
        train_rival(kind, int(count), int(passes))
