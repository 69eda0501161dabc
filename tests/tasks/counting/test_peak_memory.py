"""The memory of a traced step: what exists at the same time, each piece once."""

from __future__ import annotations

import torch

from tasks.counting.tracing import META, Tracing

SIZE = 4 * 1024  # bytes of each tensor


def test_peak_counts_what_exists_at_the_same_time() -> None:
    x = torch.empty(1024, device=META)
    with Tracing() as tracing:
        y = x + 1
        y = y * 2  # the sum exists until the product does
        z = y.view(2, 512)  # a view has no memory
        z.add_(x.view(2, 512))  # neither does a change in place
        del y
        w = z.relu()
    assert tracing.peak_bytes == 2 * SIZE
    del z, w


def test_backward_frees_saved_activations() -> None:
    weight = torch.empty(1024, device=META, requires_grad=True)
    with Tracing() as one:
        torch.autograd.backward(weight.exp().sum())
    weight.grad = None
    with Tracing() as four:
        torch.autograd.backward(weight.exp().exp().exp().exp().sum())
    assert four.peak_bytes - one.peak_bytes == 3 * SIZE  # each exponential is saved for the gradient
