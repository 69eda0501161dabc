"""Agreement of the training strategies on a device. Each strategy trains the same members twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bench.engine import classifiers
from bench.measuring import Row
from tasks.datasets.images import Images
from tasks.training.members import Trained
from tasks.training.strategies import Strategy, Workload
from tasks.training.trainer import Trainer
from tasks.worker import hardware


def agreement(data: Images, device: torch.device, members: int, epochs: int) -> Iterator[Row]:
    """Yield the largest differences from the loop over all members: final validation loss, accuracy and weights."""
    workload = classifiers(data, device, members=members, epochs=epochs)
    gpu = device.type == "cuda"
    half = max(1, members // 2)
    strategies = {
        "loop": Strategy("loop"),
        f"stack of {members}, eager": Strategy("stack", places=members),
        f"stack of {members}, captured": Strategy("stack", places=members, captured=gpu),
        f"stacks of {half}, captured": Strategy("stack", places=half, captured=gpu),
        f"graphs on {members} streams": Strategy("graph", stacks=members, captured=gpu),
    }
    loop_models = None
    for name, strategy in strategies.items():
        models = train_members(workload, strategy)
        repeated_models = train_members(workload, strategy)
        if loop_models is None:
            loop_models = models
        loss, accuracy = largest_differences(models, loop_models)
        yield Row(
            f"mlp1 by {name}, {members} members x {epochs} epochs, compared with the loop",
            f"loss within {loss:.1e} nats, accuracy within {accuracy:.1e}, "
            f"weights {describe_weights(models, loop_models)}",
            f"itself once more: weights {describe_weights(models, repeated_models)}",
        )


def train_members(workload: Workload, strategy: Strategy) -> list[Trained]:
    """Train every member with this strategy."""
    with hardware.exactly(workload.device):
        outcomes = dict(Trainer(workload, strategy, None, dict(enumerate(workload.members))).outcomes())
    models = []
    for index in sorted(outcomes):
        outcome = outcomes[index]
        if isinstance(outcome, Exception):
            raise outcome
        models.append(outcome)
    return models


def largest_differences(first: list[Trained], second: list[Trained]) -> tuple[float, float]:
    """Return the largest differences in the final validation loss (nats) and accuracy."""
    pairs = [(a.history[-1], b.history[-1]) for a, b in zip(first, second, strict=True)]
    loss = max(abs(a.validation_loss - b.validation_loss) for a, b in pairs)
    return loss, max(abs(a.validation_accuracy - b.validation_accuracy) for a, b in pairs)


def describe_weights(first: list[Trained], second: list[Trained]) -> str:
    """Describe the largest difference in weights, or `equal to the bit`."""
    largest = max(
        float(np.abs(a.weights[name] - b.weights[name]).max())
        for a, b in zip(first, second, strict=True)
        for name in a.weights
    )
    if largest == 0:
        return "equal to the bit"
    return f"within {largest:.1e}"
