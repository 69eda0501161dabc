"""Synchronised batch norm of one process equals torch's, with gradients, statistics and padding."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tasks.models.synchronised_norm import SynchronisedBatchNorm, normalise, unbiased


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3, 5)], ids=["rows", "images"])
def test_one_process_computes_torch_batch_norm(shape: tuple[int, ...]) -> None:
    stream = torch.Generator().manual_seed(0)
    norm = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(4).double()
    with torch.no_grad():
        norm.weight.copy_(torch.randn(4, generator=stream))
        norm.bias.copy_(torch.randn(4, generator=stream))
    synchronised = copy.deepcopy(norm)
    synchronised.__class__ = SynchronisedBatchNorm  # type: ignore[assignment]
    x = torch.randn(shape, generator=stream, dtype=torch.float64)
    slope = torch.randn(shape, generator=stream, dtype=torch.float64)
    results = []
    for module in (norm, synchronised):
        inputs = x.clone().requires_grad_()
        y = module(inputs)
        torch.autograd.backward(y, slope)
        module.eval()
        results.append([y, inputs.grad, module.weight.grad, module.bias.grad, module.running_mean, module(x)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_padding_changes_neither_statistics_nor_gradients() -> None:
    stream = torch.Generator().manual_seed(1)
    x = torch.randn((5, 3), generator=stream, dtype=torch.float64)
    padded = torch.cat([x, torch.full((2, 3), 9.0, dtype=torch.float64)])
    mask = torch.ones(7, 3, dtype=torch.float64)
    mask[5:] = 0
    scale, shift = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    gradients = []
    outputs = []
    for rows, rows_that_count in ((x, None), (padded, mask)):
        inputs = rows.clone().requires_grad_()
        y, mean, variance, count = normalise(inputs, rows_that_count, scale, shift, 1e-5)
        torch.autograd.backward(y[:5].square().sum())
        assert inputs.grad is not None
        gradients.append(inputs.grad[:5])
        outputs.append((y[:5], mean, unbiased(variance, count)))
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(outputs[0][2], x.var(0))
