"""Models trained by two processes equal those of one, up to rounding, for every kind of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.contract.job import Inputs, task
from tasks.datasets.images import Images
from tasks.diffusion.denoising import Denoising
from tasks.diffusion.diffusion_config import Diffusion, UNet
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.models.vae import cifar10, mnist
from tasks.training import dp_sgd
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.custom_density import CustomDensity
from tasks.training.density_objective import Elbo
from tasks.training.members import Member, Spec, Trained
from tasks.training.recipe import Privacy, Recipe
from tasks.training.trainer import Outcome, train_many
from tasks.training.unlearner import unlearn_model
from tasks.training.unlearning_config import Distillation, GradientAscent, Method
from tasks.worker import ranks
from tasks.worker.compute_context import ComputeContext, StrategyName, use_context
from tasks.worker.process_group import compute_together
from tasks.worker.ranks import Ranks, current_ranks, join_rows

OWN = "tests.tasks.training.own_networks"
# Steps in float32, which a larger epsilon of Adam keeps from amplifying rounding.
SINGLE = Recipe(epochs=2, batch=16, learning_rate=1e-3, epsilon=1e-2)
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
    privacy: Privacy | None = None
    method: Method | None = None

    @property
    def tolerance(self) -> float:
        """The largest difference from one process, as a fraction of a tensor's largest value."""
        return 1e-7 if self.recipe.precision == "float64" else 1e-4

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
            case "own density":
                learning = CustomDensity(f"{OWN}:density", shape)
            case "diffusion":
                vectors = draws.normal(size=(10, 5)).astype(np.float32)
                learning = Denoising(Diffusion(8, UNet((4, 4), 1, (), 2), epochs=1), vectors, 4)
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
    Case(f"{OWN}:classifier", recipe=replace(RECIPE, accumulate=2)),
    Case(f"{OWN}:perceptron", way="stack"),
    Case("own density"),
    Case("diffusion", channels=3, rows=(49,)),
    Case("mlp1", regularisers=Regularisers(dropout=True), recipe=SINGLE, privacy=Privacy(8.0)),
    Case("mlp1", regularisers=BOTH, recipe=SINGLE, method=Distillation(2, 1)),
    Case("mlp1", recipe=SINGLE, method=GradientAscent(2)),
)


REFUSED = Case(f"{OWN}:coupled")


def _outcomes(case: Case) -> Iterator[Outcome]:
    device = torch.device("cpu")
    spec = case.spec
    if case.privacy is not None:
        yield from dp_sgd.train_many(spec, case.members, case.privacy, [4, 4][: len(case.members)], device)
    elif case.method is not None:
        rows = np.arange(49)
        weights = spec.learning.initial(0)
        learning: Any = spec.learning
        yield (
            0,
            unlearn_model(learning, case.recipe, case.method, spec.images, rows[:30], rows[30:], weights, 3, device),
        )
    else:
        yield from train_many(spec, case.members, device)


@task(version=1, spreads=True)
def train_case(number: int, inputs: Inputs) -> pa.Table:
    """The weights and losses of the models of a case, as rows of numbers."""
    case = CASES[number]
    values = []
    with use_context(ComputeContext(case.way)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(dp_sgd, "noise", lambda *_: 0.8)  # which takes seconds to find
        outcomes = list(_outcomes(case))
    for _, outcome in sorted(outcomes, key=lambda pair: pair[0]):
        assert isinstance(outcome, Trained), outcome
        losses = [(epoch.train_loss, epoch.validation_loss) for epoch in outcome.history]
        epsilons = np.array(outcome.epsilons or (), np.float64)
        values += [np.ravel(losses), epsilons, *(np.ravel(weights) for weights in outcome.weights.values())]
    own = torch.from_numpy(np.concatenate(values))[None]
    everyone = join_rows(own, 0, [1] * current_ranks().size)
    assert torch.equal(everyone.view(torch.int64), own.view(torch.int64).expand_as(everyone))
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
            values = np.array(expected.as_py())
            largest = np.nan_to_num(np.abs(values)).max(initial=1e-2)
            tolerance = CASES[number].tolerance * largest
            np.testing.assert_allclose(actual.as_py(), values, rtol=0, atol=tolerance, err_msg=str(CASES[number]))


def test_network_whose_rows_affect_each_other_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_ranks", Ranks(0, 2))
    with pytest.raises(ValueError, match=r"affect each other .* to 1"):
        list(_outcomes(REFUSED))
