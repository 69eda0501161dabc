"""Time and accuracy of airbench by the recipe of `membership --preset cifar10`, on halves of CIFAR-10.

    python -m bench.airbench [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Each model is trained on another half of the training images and evaluated on all test images. Without CIFAR-10 in
ENGRAM_DATA, nothing is measured, since only the accuracy shows whether the recipe works. `--tiny` uses random images.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from bench.audit import has_data
from bench.engine import PRECISIONS, random_images
from bench.measuring import Row, parse_options, publish
from measurement.report import measurement_facts
from tasks.audits.membership.presets import CIFAR_TRAINING
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.models.networks import Architecture
from tasks.numerics import seeds
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.members import Member, Spec, Trained
from tasks.training.trainer import train_many

MODELS = 4
TINY_MODELS = 2


def rows(device: torch.device, tiny: bool) -> Iterator[Row]:
    """Train a few models in the fastest precision, and state their accuracy."""
    precision = PRECISIONS[-1]
    recipe = replace(CIFAR_TRAINING.recipe, precision=precision)
    models = TINY_MODELS if tiny else MODELS
    if tiny:
        data = random_images((16, 16, 3))
        recipe = replace(recipe, epochs=1, batch=64)
    elif has_data("cifar10"):
        data = load(Dataset("cifar10"))
    else:
        yield Row("airbench on halves of CIFAR-10", "not measured: ENGRAM_DATA has no CIFAR-10")
        return
    count = len(data.train_images)
    members = []
    for seed in range(models):
        order = seeds.generator(seed, "half").permutation(count)
        members.append(Member(seed, np.sort(order[: count // 2])))
    spec = Spec(CrossEntropy(Architecture("airbench", data.shape, data.classes), augmentation=True), recipe, data)
    start = time.perf_counter()
    accuracies = []
    for _, outcome in train_many(spec, members, device):
        if not isinstance(outcome, Trained):
            raise outcome
        accuracies.append(outcome.history[-1].validation_accuracy)
    seconds = time.perf_counter() - start
    design = f"{models} models on halves of {count:,} images, {recipe.epochs} epochs, {precision}"
    spread = f"{min(accuracies):.1%} to {max(accuracies):.1%}"
    yield Row(
        f"airbench, {design}: time of a model",
        f"{seconds / models:.1f} s, accuracy {np.mean(accuracies):.1%} ({spread})",
        "90 %, as intended for the preset cifar10",
        float(np.mean(accuracies)) / 0.9,
    )


def main() -> None:
    arguments = parse_options(__doc__)
    device = torch.device(arguments.device)
    setting = measurement_facts("CIFAR-10", device)
    result = list(rows(device, arguments.tiny))
    publish("Training of airbench", setting, result, arguments.out)


if __name__ == "__main__":
    main()
