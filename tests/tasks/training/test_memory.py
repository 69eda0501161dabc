"""What a step takes: the most that autograd keeps at a time, and what the step says it holds."""

import torch

from tasks.training import memory

CPU = torch.device("cpu")


def test_what_autograd_keeps_counts_once_and_as_long_as_it_is_kept() -> None:
    def work(times: int, together: bool) -> int:
        weight = torch.ones(1000, dtype=torch.float64, requires_grad=True)
        losses = []
        for _ in range(times):
            losses.append((weight.exp() * 2).exp().sum())  # keeps both exponentials: 16,000 bytes
            if not together:
                torch.autograd.grad(losses.pop(), weight)
        return 7

    assert 16_000 + 7 == memory.peak_memory(lambda: work(1, together=False), CPU)
    assert 16_000 + 7 == memory.peak_memory(lambda: work(3, together=False), CPU)
    assert 48_000 + 7 == memory.peak_memory(lambda: work(3, together=True), CPU)
