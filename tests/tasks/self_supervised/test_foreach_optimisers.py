"""Optimisers beside torch's own, and LARS beside its formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tasks.self_supervised.pretraining_loop import LARS, SGD, AdamW

SHAPES = [(4, 3), (5,), (2, 3, 3, 3), (1,)]


def weights(seed: int) -> list[Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draws, dtype=torch.float64) for shape in SHAPES]


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_steps_are_torchs(name: str) -> None:
    ours, theirs = weights(0), [weight.requires_grad_() for weight in weights(0)]
    groups = [
        {"params": [weight for weight in theirs if weight.dim() > 1], "weight_decay": 0.1},
        {"params": [weight for weight in theirs if weight.dim() == 1], "weight_decay": 0.0},
    ]
    own = SGD(ours, 0.1) if name == "sgd" else AdamW(ours, 0.1)
    other = torch.optim.SGD(groups, momentum=0.9) if name == "sgd" else torch.optim.AdamW(groups)
    for number in range(1, 6):
        rate, gradients = 0.1 / number, weights(number)
        for group in other.param_groups:
            group["lr"] = rate
        for weight, gradient in zip(theirs, gradients, strict=True):
            weight.grad = gradient
        other.step()
        own.step(gradients, rate, number)
    # Torch's momentum multiplies no learning rate either.
    for mine, torchs in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torchs.detach(), mine)


def test_lars_moves_a_matrix_by_a_thousandth_of_its_norm_and_biases_by_their_gradient() -> None:
    ours, velocity, decay = weights(0), [torch.zeros_like(weight) for weight in weights(0)], 0.01
    expected, own = weights(0), LARS(ours, decay)
    for number in range(1, 5):
        rate, gradients = 0.3 * number, weights(number)
        own.step(gradients, rate, number)
        for at, (weight, gradient) in enumerate(zip(expected, gradients, strict=True)):
            pull = gradient
            if weight.dim() > 1:
                pull = gradient + decay * weight
                pull = pull * 0.001 * weight.norm() / pull.norm()
            velocity[at] = 0.9 * velocity[at] + pull
            expected[at] = weight - rate * velocity[at]
    for mine, formula in zip(ours, expected, strict=True):
        torch.testing.assert_close(formula, mine)


def test_lars_takes_a_plain_step_where_a_norm_is_zero() -> None:
    ours = [torch.zeros(2, 2), torch.ones(2, 2)]
    LARS(ours, 0.0).step([torch.ones(2, 2), torch.zeros(2, 2)], 0.5, 1)
    torch.testing.assert_close([torch.full((2, 2), -0.5), torch.ones(2, 2)], ours)
