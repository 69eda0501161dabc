"""Training steps with large gradients in two processes, and the start of these processes.

`python -m bench.two_processes --steps` measures both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch

from tasks.contract.job import Inputs, task
from tasks.datasets.boxed.partition import Partition, TrainingImages
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.models.networks import Architecture
from tasks.self_supervised.pretraining import pretrain_encoder
from tasks.self_supervised.pretraining_config import Augmentation, Pretraining
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.device_data import place_images
from tasks.training.members import Member, Spec
from tasks.training.recipe import Recipe
from tasks.training.strategies import Strategy, Workload
from tasks.worker.compute_context import ComputeContext, use_context
from tasks.worker.gradient_sums import GradientSums
from tasks.worker.process_group import compute_together, end_idle_ranks
from tasks.worker.ranks import wait_for_ranks

ROUNDS = 7  # of each way to add up gradients, in turn
BATCH = 16
STARTS = 4


def resnet_steps() -> Callable[[], float]:
    """Return a function that measures a step of a resnet18 (11.2 million weights) on images of 32 x 32, in seconds."""
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (BATCH, 32, 32, 3), np.uint8)
    labels = draws.integers(0, 10, BATCH)
    images = Images(pixels, labels, pixels, labels, 10)
    spec = Spec(CrossEntropy(Architecture("resnet18", images.shape, 10)), Recipe(1, BATCH, 1e-3), images)
    data, aliases = place_images(images, torch.device("cpu")).replace_images([{}])
    member = Member(0, np.arange(BATCH))
    (stack,) = Workload(spec, data, [member], aliases).stacks(Strategy("loop"))
    stack.enter(0, 0, member)

    def measure() -> float:
        (with_padding,) = stack.begin()
        wait_for_ranks()
        start = time.perf_counter()
        stack.step(with_padding)
        return time.perf_counter() - start

    return measure


def encoder_steps() -> Callable[[], float]:
    """Return a function that measures a step of a resnet50 with a projector (57 million weights), in seconds."""
    images = TrainingImages(Dataset("digits-on-photos"), 0.0, Partition(per_class=6, public=20), "A")
    config = Pretraining(
        images,
        backbone="resnet50",
        projector=(4096, 4096, 2048),
        augmentation=Augmentation(resolution=32),
        epochs=1,
        batch=BATCH,
        recorded=None,
    )
    pictures = load_with_boxes(images.data)

    def measure() -> float:
        with use_context(ComputeContext()) as notes:
            pretrain_encoder(config, pictures)
            return 1 / float(notes["steps_per_second"])

    return measure


STEPS = {"resnet18": resnet_steps, "resnet50 encoder": encoder_steps}


@task(version=1, name="bench.steps", spreads=True)
def time_steps(name: str, inputs: Inputs) -> pa.Table:
    """Measure steps whose gradients are added up during the backward pass or after it, in turn, in seconds."""
    measure = STEPS[name]()
    send_early = GradientSums._send_complete
    ways = {"during": send_early, "after": lambda _: None}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(ROUNDS + 1):
        for way, send in ways.items():
            GradientSums._send_complete = send  # type: ignore[method-assign]
            taken = measure()
            if number:  # the first round warms up
                seconds[way].append(taken)
    GradientSums._send_complete = send_early  # type: ignore[method-assign]
    return pa.table(seconds)


@task(version=1, name="bench.nothing", spreads=True)
def compute_nothing(config: None, inputs: Inputs) -> pa.Table:
    return pa.table({"nothing": [0]})


def measure_steps() -> str:
    """Return the measurements as Markdown."""
    lines = ["| step of two processes | sums after the backward pass | during it | ratio |", "|---|---|---|---|"]
    with use_context(ComputeContext(processes=2)):
        for name in STEPS:
            ((_, table),) = compute_together(f"{__name__}:time_steps", [name], [()])
            assert isinstance(table, pa.Table), table
            after, during = (statistics.median(table[way].to_pylist()) for way in ("after", "during"))
            row = [name, f"{after * 1000:.0f} ms", f"{during * 1000:.0f} ms", f"{after / during:.2f}"]
            lines.append(f"| {' | '.join(row)} |")
        end_idle_ranks()
        lines += ["", "| call | seconds |", "|---|---|"]
        for number in range(1, STARTS + 1):
            start = time.perf_counter()
            list(compute_together(f"{__name__}:compute_nothing", [None], [()]))
            lines.append(f"| {number} | {time.perf_counter() - start:.3f} |")
        end_idle_ranks()
    return "\n".join(lines) + "\n"
