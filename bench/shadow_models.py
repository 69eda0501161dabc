"""What a shadow model costs, beside one process per model with the usual loop: processor time, start included.

Ours are models of the audit of membership, trained by one process on halves of the records and asked about all of them.
The rival starts a process for each model, which trains the same network on as many images for as many epochs with a
DataLoader (bench/perceptron.py), and is not asked. Both have one thread. Processes are children of the bench, whose
processor time does not depend on what else runs.
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
MODELS, TINY_MODELS = 16, 4


def rows(tiny: bool) -> Iterator[Row]:
    """The ratio beside either loop, by processor time."""
    models, rivals, records, epochs = (TINY_MODELS, 1, 512, 1) if tiny else (MODELS, 3, 10_000, 5)
    size = (str(records), str(epochs))
    ours, wall = (each / models for each in spend(str(models), *size))
    for loop in ("tensors", "pictures"):
        spent = [spend(loop, *size) for _ in range(rivals)]
        cpu, waited = (sum(each) / rivals for each in zip(*spent, strict=True))
        what = (
            f"shadow model, mlp1 on half of {records:,} records, {epochs} epochs, {models} models, 1 thread, CPU time"
        )
        yield Row(what, f"{ours:.2f} s ({wall:.2f} s wall)", f"{cpu:.2f} s ({waited:.2f} s wall), {loop}", cpu / ours)


def spend(*arguments: str) -> tuple[float, float]:
    """The processor and wall seconds of a process that trains so."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    environment = os.environ | dict.fromkeys(THREAD_SETTINGS, "1") | {"PYTHONPATH": str(ROOT)}
    cpu, wall = spent(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "bench.shadow_models", *arguments], check=True, env=environment)
    return spent() - cpu, time.perf_counter() - wall


def train_shadows(models: int, records: int, epochs: int) -> None:
    """Models of the audit, each asked about all records."""
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
        data, records = pin(Dataset("digits"), {}), min(records, 1400)
    jobs = trainings(Membership(Halves(data, records, models), ClassifierTraining(Network("mlp1"), epochs=epochs)))
    configs = [replace(job.inputs[0].config) for job in jobs]
    for index, model in train_many(configs, [()] * models):
        if isinstance(model, Exception):
            raise model
        answers(jobs[index].config, (model,))


def train_rival(loop: str, records: int, epochs: int) -> None:
    """One model by the usual loop, on as many images as a half has."""
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
