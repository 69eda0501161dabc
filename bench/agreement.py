"""How far the ways of training agree on a device: the same members by each of them, and each of them twice."""

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


def agreement(data: Images, place: torch.device, members: int, epochs: int) -> Iterator[Row]:
    """Differences of the final validation loss and accuracy from those of the loop, the largest of the members."""
    workload, gpu = classifiers(data, place, members=members, epochs=epochs), place.type == "cuda"
    half = max(1, members // 2)
    ways = {
        "loop": Strategy("loop"),
        f"stack of {members}, eager": Strategy("stack", places=members),
        f"stack of {members}, captured": Strategy("stack", places=members, captured=gpu),
        f"stacks of {half}, captured": Strategy("stack", places=half, captured=gpu),
        f"graphs on {members} streams": Strategy("graph", stacks=members, captured=gpu),
    }
    loops = None
    for name, way in ways.items():
        found, again = (trained(workload, way) for _ in range(2))
        loops = found if loops is None else loops
        loss, accuracy = apart(found, loops)
        yield Row(
            f"mlp1 by {name}, {members} members x {epochs} epochs, beside the loop",
            f"loss within {loss:.1e} nats, accuracy within {accuracy:.1e}, weights {bits(found, loops)}",
            f"itself once more: weights {bits(found, again)}",
        )


def trained(workload: Workload, way: Strategy) -> list[Trained]:
    """Every member, trained that way."""
    with hardware.exactly(workload.device):
        found = dict(Trainer(workload, way, None, dict(enumerate(workload.members))).outcomes())
    ended = []
    for index in sorted(found):
        outcome = found[index]
        if isinstance(outcome, Exception):
            raise outcome
        ended.append(outcome)
    return ended


def apart(one: list[Trained], other: list[Trained]) -> tuple[float, float]:
    """The largest differences of the last validation losses (nats) and accuracies."""
    pairs = [(a.history[-1], b.history[-1]) for a, b in zip(one, other, strict=True)]
    loss = max(abs(a.validation_loss - b.validation_loss) for a, b in pairs)
    return loss, max(abs(a.validation_accuracy - b.validation_accuracy) for a, b in pairs)


def bits(one: list[Trained], other: list[Trained]) -> str:
    """In words: whether the weights are the same, else their largest difference."""
    largest = max(
        float(np.abs(a.weights[name] - b.weights[name]).max())
        for a, b in zip(one, other, strict=True)
        for name in a.weights
    )
    return "equal to the bit" if largest == 0 else f"within {largest:.1e}"
