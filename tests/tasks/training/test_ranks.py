"""Classifiers and density models trained by two processes equal those of one, up to rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.contract.job import Inputs, task
from tasks.datasets.images import Images
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.models.vae import cifar10, mnist
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo
from tasks.training.members import Member, Spec, Trained
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many
from tasks.worker.compute_context import ComputeContext, StrategyName, use_context
from tasks.worker.process_group import compute_together

RECIPE = Recipe(epochs=2, batch=16, learning_rate=1e-3, patience=10, precision="float64")
BOTH = Regularisers(dropout=True, batch_norm=True)


@dataclass(frozen=True)
class Case:
    """A training of models on a few random images."""

    network: str
    side: int = 8
    channels: int = 1
    regularisers: Regularisers = Regularisers()  # noqa: RUF009
    recipe: Recipe = RECIPE
    rows: tuple[int, ...] = (60, 49)  # with 49, only the second rank has a row of the last minibatch
    way: StrategyName = "loop"

    @property
    def spec(self) -> Spec:
        draws = np.random.default_rng(0)
        pixels = draws.integers(0, 256, (80, self.side, self.side, self.channels), np.uint8)
        labels = draws.integers(0, 10, 80)
        images = Images(pixels[:60], labels[:60], pixels[60:], labels[60:], 10)
        shape = images.shape
        learning: Any
        match self.network:
            case "dense vae":
                learning = Elbo(mnist(shape))
            case "convolutional vae":
                learning = Elbo(cifar10(shape))
            case name:
                learning = CrossEntropy(Architecture(name, shape, 10, self.regularisers, 1.0), augmentation=True)
        return Spec(learning, self.recipe, images)

    @property
    def members(self) -> list[Member]:
        return [Member(seed, np.arange(count)) for seed, count in enumerate(self.rows)]


CASES = (
    Case("mlp1"),
    Case("mlp1", regularisers=BOTH, recipe=replace(RECIPE, accumulate=2)),
    Case("mlp1", regularisers=Regularisers(dropout=True), recipe=replace(RECIPE, optimiser="rmsprop")),
    Case("mlp1", regularisers=BOTH, recipe=replace(RECIPE, accumulate=2), way="stack"),
    Case("cnn1", side=14, regularisers=BOTH, rows=(17,)),
    Case("dense vae", recipe=replace(RECIPE, accumulate=2)),
    Case("convolutional vae", side=32, channels=3, recipe=replace(RECIPE, epochs=1), rows=(17,)),
)


@task(version=1, spreads=True)
def train_case(number: int, inputs: Inputs) -> pa.Table:
    """The weights and losses of the models of a case, as rows of numbers."""
    case = CASES[number]
    values = []
    with use_context(ComputeContext(case.way)):
        outcomes = dict(train_many(case.spec, case.members, torch.device("cpu")))
    for index in range(len(case.members)):
        outcome = outcomes[index]
        assert isinstance(outcome, Trained), outcome
        losses = [(epoch.train_loss, epoch.validation_loss) for epoch in outcome.history]
        values += [np.ravel(losses), *(np.ravel(weights) for weights in outcome.weights.values())]
    return pa.table({"values": [row.tolist() for row in values]})


@pytest.mark.slow
def test_two_processes_equal_one() -> None:
    numbers = range(len(CASES))
    with use_context(ComputeContext(processes=2)):
        tables = dict(compute_together(f"{__name__}:train_case", numbers, [()] * len(CASES)))
    for number in numbers:
        table = tables[number]
        assert isinstance(table, pa.Table)
        for actual, expected in zip(table["values"], train_case(number, ())["values"], strict=True):
            np.testing.assert_allclose(actual.as_py(), expected.as_py(), rtol=1e-7, atol=1e-9, err_msg=str(number))
