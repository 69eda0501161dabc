"""Rules of optimisers: all models together, as on a GPU, and one after another, as on a CPU."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from tasks.training.optimiser_config import LARS, SGD, Adafactor, WeightDecay
from tasks.training.optimisers.adafactor import AdafactorRule
from tasks.training.optimisers.adam import Adam
from tasks.training.optimisers.decoupled_decay import DecoupledDecay
from tasks.training.optimisers.lars import LARSRule
from tasks.training.optimisers.rule_optimiser import Rule, RuleOptimiser, decay_row
from tasks.training.optimisers.sgd import SGDRule
from tasks.training.parameter_buffer import ParameterBuffer
from tests.tasks.training.optimisers.models import EPSILON, RATES, numbers, started

RULES = [
    partial(SGDRule, SGD(0.9, True, WeightDecay(0.1))),
    partial(LARSRule, LARS()),
    partial(AdafactorRule, Adafactor(weight_decay=WeightDecay(0.1))),
]


def alike(weights: ParameterBuffer) -> ParameterBuffer:
    other = weights.like()
    other.buffer.copy_(weights.buffer)
    return other


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.func.__name__)
def test_all_models_together_move_as_one_after_another(
    rule: Callable[[ParameterBuffer, ParameterBuffer], Rule],
) -> None:
    stream, weights = started()
    apart, together = RuleOptimiser(weights, rule), RuleOptimiser(alike(weights), rule)
    together.together = True
    for optimiser in (apart, together):
        optimiser.rates.copy_(torch.tensor(RATES, dtype=torch.float64))
    for step in range(5):
        active = torch.tensor([True, step % 2 == 0, False])
        gradients = [numbers(stream, *view.shape) for view in weights.views.values()]
        # What a model that sits out would make of its gradient is nobody's.
        for gradient in gradients:
            gradient[2] = torch.nan
        apart.step(gradients, active)
        together.step(gradients, active)
    assert apart.steps.tolist() == together.steps.tolist() == [5, 3, 0]
    for one, other in zip((apart.weights, *apart.moments), (together.weights, *together.moments), strict=True):
        torch.testing.assert_close(one.buffer, other.buffer, atol=1e-14, rtol=0)


def test_decoupled_decay_of_all_models_together_is_that_of_one_after_another() -> None:
    stream, weights = started()
    other = alike(weights)
    one_by_one, together = (DecoupledDecay(w, Adam(w, EPSILON), WeightDecay(0.5)) for w in (weights, other))
    for optimiser in (one_by_one, together):
        optimiser.rates.copy_(torch.tensor(RATES, dtype=torch.float64))
    together.together = True
    before = weights.buffer.clone()
    for active in (torch.tensor([True, True, False]), None, torch.tensor([False, True, False])):
        gradients = [numbers(stream, *view.shape) for view in weights.views.values()]
        for optimiser in (one_by_one, together):
            optimiser.step(gradients, active)
    assert not torch.equal(before, weights.buffer)
    torch.testing.assert_close(weights.buffer, other.buffer, atol=1e-14, rtol=0)


def test_the_decay_of_a_row_is_that_of_its_tensors() -> None:
    _, weights = started()
    assert decay_row(weights, WeightDecay()) is None
    assert decay_row(weights, WeightDecay(0.5, exempt=("a", "c"))) is None
    row = decay_row(weights, WeightDecay(0.5))
    assert row is not None
    assert {0.0, 0.5} == set(row.tolist())
    assert 0.5 * (9 * 64 + 12) == row.sum()
