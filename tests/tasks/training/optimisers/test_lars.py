"""LARS, worked out by hand and by the paper's formula tensor by tensor."""

import numpy as np
import torch

from tasks.training.optimiser_config import LARS, WeightDecay
from tasks.training.optimisers.lars import LARSRule
from tasks.training.optimisers.rule_optimiser import RuleOptimiser
from tasks.training.parameter_buffer import ParameterBuffer
from tests.tasks.training.optimisers.models import CPU, MODELS, RATES, numbers, started


def lars(config: LARS, weights: ParameterBuffer, rates: list[float]) -> RuleOptimiser:
    optimiser = RuleOptimiser(weights, lambda weights, gradients: LARSRule(config, weights, gradients))
    optimiser.rates.copy_(torch.tensor(rates, dtype=torch.float64))
    return optimiser


def test_two_steps_by_hand() -> None:
    weights = ParameterBuffer({"weight": (1, 2), "bias": (1,)}, 1, CPU, torch.float64)
    weights.views["weight"].copy_(torch.tensor([[[3.0, 4.0]]]))
    weights.views["bias"].fill_(1.0)
    optimiser = lars(LARS(momentum=0.5, trust=0.01, weight_decay=WeightDecay(0.1)), weights, [0.5])
    # |w| = 5, |g| = 2: r = 0.01 * 5 / (2 + 0.1 * 5) = 0.02, v = 0.5 * 0.02 * ([0, 2] + 0.1 * [3, 4]).
    optimiser.step([torch.tensor([[[0.0, 2.0]]]), torch.tensor([[2.0]])])
    np.testing.assert_allclose(weights.views["weight"][0], [[3 - 0.003, 4 - 0.024]], rtol=1e-14)
    np.testing.assert_allclose(weights.views["bias"][0], [0.0], atol=1e-15)  # 1 - 0.5 * 2, without decay
    # Without a gradient r is 1: v = 0.5 * v + 0.5 * 0.1 * w.
    optimiser.step([torch.zeros(1, 1, 2), torch.zeros(1, 1)])
    expected = [[2.997 - 0.0015 - 0.05 * 2.997, 3.976 - 0.012 - 0.05 * 3.976]]
    np.testing.assert_allclose(weights.views["weight"][0], expected, rtol=1e-14)
    np.testing.assert_allclose(weights.views["bias"][0], [-0.5], rtol=1e-14)


def test_many_models_follow_the_papers_formula_tensor_by_tensor() -> None:
    stream, weights = started()
    expected = [{name: view[m].numpy().copy() for name, view in weights.views.items()} for m in range(MODELS)]
    velocity = [{name: np.zeros_like(values) for name, values in model.items()} for model in expected]
    optimiser = lars(LARS(), weights, RATES)
    for _ in range(20):
        gradients = {name: numbers(stream, *view.shape) for name, view in weights.views.items()}
        optimiser.step(list(gradients.values()))
        for m, rate in enumerate(RATES):
            for name, w in expected[m].items():
                g, decay, local = gradients[name][m].numpy(), 0.0, 1.0
                if w.ndim > 1:
                    decay = 5e-4
                    local = 0.001 * np.linalg.norm(w) / (np.linalg.norm(g) + decay * np.linalg.norm(w))
                velocity[m][name] = 0.9 * velocity[m][name] + rate * local * (g + decay * w)
                expected[m][name] = w - velocity[m][name]
    for m, model in enumerate(expected):
        for name, values in model.items():
            np.testing.assert_allclose(weights.views[name][m], values, atol=1e-13)
