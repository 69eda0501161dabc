"""The optimisers of many models against torch's own, model by model, and what a model's company bears on: nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tasks.training.optimisers.factory import optimiser_of
from tasks.training.optimisers.optimiser import Optimiser
from tasks.training.parameter_buffer import ParameterBuffer
from tasks.training.recipe import OptimiserName, Recipe
from tests.tasks.training.optimisers.models import CPU, EPSILON, MODELS, RATES, SHAPES, numbers, started

Theirs = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]
EVERY: Sequence[OptimiserName] = ["adam", "rmsprop"]


def made(ours: OptimiserName, weights: ParameterBuffer, rates: Sequence[float] = RATES) -> Optimiser:
    recipe = Recipe(1, 1, 1.0, optimiser=ours)
    optimiser = optimiser_of(recipe, weights)
    optimiser.rates.copy_(torch.tensor(rates, dtype=torch.float64))
    return optimiser


AGAINST: list[tuple[OptimiserName, Theirs]] = [
    ("adam", lambda weights, rate: torch.optim.Adam(weights, lr=rate, eps=EPSILON)),
    ("rmsprop", lambda weights, rate: torch.optim.RMSprop(weights, lr=rate, alpha=0.9, eps=EPSILON)),
]


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(("ours", "theirs"), AGAINST, ids=range(len(AGAINST)))
def test_every_model_steps_as_torchs_optimiser_with_a_rate_and_a_count_of_its_own(
    ours: OptimiserName, theirs: Theirs, one_by_one: bool
) -> None:
    stream, weights = started()
    apart = [[nn.Parameter(view[m].clone()) for view in weights.views.values()] for m in range(MODELS)]
    references = [theirs(parameters, rate) for parameters, rate in zip(apart, RATES, strict=True)]
    optimiser = made(ours, weights)
    for step in range(100):
        active = torch.tensor([True, step % 3 != 1, step > 40])
        # Small gradients, so that epsilon matters.
        gradients = [numbers(stream, *view.shape) * 1e-6 for view in weights.views.values()]
        for m in active.nonzero()[:, 0].tolist():
            for parameter, gradient in zip(apart[m], gradients, strict=True):
                parameter.grad = gradient[m].clone()
            references[m].step()
            if one_by_one:
                optimiser.step_of(m, [gradient[m] for gradient in gradients])
        if not one_by_one:
            optimiser.step(gradients, None if active.all() else active)
    assert [100, 67, 59] == optimiser.steps.tolist()
    for m, parameters in enumerate(apart):
        for parameter, view in zip(parameters, weights.views.values(), strict=True):
            assert (parameter.detach() - view[m]).abs().max() < 1e-13


@pytest.mark.parametrize("ours", EVERY, ids=str)
def test_a_model_is_the_same_to_the_bit_alone_and_in_company(ours: OptimiserName) -> None:
    _, weights = started()
    together = ParameterBuffer(SHAPES, MODELS, CPU, torch.float32)
    together.buffer.copy_(weights.buffer)
    alone = ParameterBuffer(SHAPES, 1, CPU, torch.float32)
    alone.buffer.copy_(together.buffer[1:2])
    optimisers = made(ours, together), made(ours, alone, RATES[1:2])
    stream = torch.Generator().manual_seed(1)
    for _ in range(20):
        gradients = [numbers(stream, *view.shape).float() for view in together.views.values()]
        optimisers[0].step(gradients)
        optimisers[1].step([gradient[1:2] for gradient in gradients])
    assert torch.equal(together.buffer[1], alone.buffer[0])
    for theirs, mine in zip(*(optimiser.moments for optimiser in optimisers), strict=True):
        assert torch.equal(theirs.buffer[1], mine.buffer[0])


@pytest.mark.parametrize("ours", EVERY, ids=str)
def test_a_model_that_sits_out_keeps_its_weights_and_moments(ours: OptimiserName) -> None:
    stream, weights = started()
    optimiser = made(ours, weights)

    def kept() -> list[Tensor]:
        return [flat.buffer[1].clone() for flat in (weights, *optimiser.moments)]

    optimiser.step([numbers(stream, *view.shape) for view in weights.views.values()])
    before = kept()
    optimiser.step([numbers(stream, *view.shape) for view in weights.views.values()], torch.tensor([True, False, True]))
    assert all(torch.equal(was, now) for was, now in zip(before, kept(), strict=True))
    assert [2, 1, 2] == optimiser.steps.tolist()


@pytest.mark.parametrize("ours", EVERY, ids=str)
def test_a_rate_of_zero_moves_nothing(ours: OptimiserName) -> None:
    """As in the first step of a warm-up."""
    stream, weights = started()
    before = weights.buffer.clone()
    made(ours, weights, [0.0] * MODELS).step([numbers(stream, *view.shape) for view in weights.views.values()])
    assert torch.equal(before, weights.buffer)


@pytest.mark.parametrize("ours", EVERY, ids=str)
def test_a_gradient_of_zero_is_no_trap(ours: OptimiserName) -> None:
    """As of the embeddings of words that a minibatch has not."""
    _, weights = started()
    weights.views["c"].zero_()
    optimiser = made(ours, weights)
    for _ in range(3):
        optimiser.step([torch.zeros_like(view) for view in weights.views.values()])
    assert weights.buffer.isfinite().all()


def test_every_name_and_value_is_made() -> None:
    _, weights = started()
    assert [optimiser_of(replace(Recipe(1, 1, 1.0), optimiser=ours), weights) for ours in EVERY]
