"""Optimisers compared with torch's, and LARS compared with its formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tasks.self_supervised.pretraining_loop import LARS, SGD, AdamW

SHAPES = [(4, 3), (5,), (2, 3, 3, 3), (1,)]


def weights(seed: int) -> list[Tensor]:
    draws = torch.Generator().manual_seed(seed)
    result = []
    for shape in SHAPES:
        result.append(torch.randn(shape, generator=draws, dtype=torch.float64))
    return result


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_steps_equal_torch(name: str) -> None:
    weights_here = weights(0)
    torch_weights = [weight.requires_grad_() for weight in weights(0)]
    groups = [
        {"params": [weight for weight in torch_weights if weight.dim() > 1], "weight_decay": 0.1},
        {"params": [weight for weight in torch_weights if weight.dim() == 1], "weight_decay": 0.0},
    ]
    optimiser = SGD(weights_here, 0.1) if name == "sgd" else AdamW(weights_here, 0.1)
    if name == "sgd":
        torch_optimiser = torch.optim.SGD(groups, momentum=0.9)
    else:
        torch_optimiser = torch.optim.AdamW(groups)
    for number in range(1, 6):
        rate = 0.1 / number
        gradients = weights(number)
        for group in torch_optimiser.param_groups:
            group["lr"] = rate
        for weight, gradient in zip(torch_weights, gradients, strict=True):
            weight.grad = gradient
        torch_optimiser.step()
        optimiser.step(gradients, rate, number)
    # Torch's momentum multiplies no learning rate either.
    for weight_here, torchs in zip(weights_here, torch_weights, strict=True):
        torch.testing.assert_close(torchs.detach(), weight_here)


def test_lars_scales_matrices_but_not_biases() -> None:
    stepped = weights(0)
    velocity = [torch.zeros_like(weight) for weight in weights(0)]
    decay = 0.01
    expected = weights(0)
    optimiser = LARS(stepped, decay)
    for number in range(1, 5):
        rate = 0.3 * number
        gradients = weights(number)
        optimiser.step(gradients, rate, number)
        for index, (weight, gradient) in enumerate(zip(expected, gradients, strict=True)):
            pull = gradient
            if weight.dim() > 1:
                pull = gradient + decay * weight
                pull = pull * 0.001 * weight.norm() / pull.norm()
            velocity[index] = 0.9 * velocity[index] + pull
            expected[index] = weight - rate * velocity[index]
    for actual, formula in zip(stepped, expected, strict=True):
        torch.testing.assert_close(formula, actual)


def test_lars_takes_plain_step_if_norm_is_zero() -> None:
    stepped = [torch.zeros(2, 2), torch.ones(2, 2)]
    LARS(stepped, 0.0).step([torch.ones(2, 2), torch.zeros(2, 2)], 0.5, 1)
    torch.testing.assert_close([torch.full((2, 2), -0.5), torch.ones(2, 2)], stepped)
