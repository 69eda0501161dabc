"""Add up gradients over the ranks of a process group while a backward pass still computes others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tasks.worker.ranks import buckets, current_ranks

if TYPE_CHECKING:
    from torch import Tensor


class GradientSums:
    """Replaces the gradients of leaves by their sums over all ranks, bucket by bucket.

    A backward pass reaches the last layers first, so buckets have the reverse order of the leaves. A bucket is sent as
    soon as it and all buckets before it are complete. All ranks therefore send the same buckets in the same order,
    and the sums are bitwise equal on all of them and independent of timing. Li et al. 2020, "PyTorch Distributed:
    experiences on accelerating data parallel training", section 3.2.
    """

    def __init__(self, leaves: Sequence[Tensor]) -> None:
        self._buckets: list[list[Tensor]] = []
        self._missing: list[int] = []  # number of gradients that each bucket waits for
        self._sent: list[tuple[Tensor, Any]] = []  # the values of each bucket on their way, and the work to wait for
        self._is_adding = False
        if current_ranks().size == 1:
            return
        self._buckets = list(buckets(reversed(leaves)))
        for number, bucket in enumerate(self._buckets):
            for leaf in bucket:
                hook = partial(self._complete, number)
                leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    @contextmanager
    def add(self, is_last: bool = True) -> Iterator[None]:
        """Add up the gradients that the backward pass in the block completes, if it is the last one of a step."""
        if not is_last or not self._buckets:
            yield
            return
        self._missing = [len(bucket) for bucket in self._buckets]
        self._sent = []
        self._is_adding = True
        try:
            yield
        finally:
            self._is_adding = False
        self._finish()

    def _complete(self, number: int, _leaf: Tensor) -> None:
        if self._is_adding:
            self._missing[number] -= 1
            self._send_complete()

    def _send_complete(self) -> None:
        """Send the next buckets, as far as they are complete."""
        while len(self._sent) < len(self._buckets) and not self._missing[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        """Begin to add up the next bucket."""
        import torch
        from torch import distributed

        gradients = [_gradient(leaf).reshape(-1) for leaf in self._buckets[len(self._sent)]]
        with torch.no_grad():
            values = torch.cat(gradients) if len(gradients) > 1 else gradients[0]
        self._sent.append((values, distributed.all_reduce(values, async_op=True)))

    def _finish(self) -> None:
        """Wait for all sums and copy them into the gradients."""
        import torch

        while len(self._sent) < len(self._buckets):
            self._send()
        with torch.no_grad():
            for bucket, (values, work) in zip(self._buckets, self._sent, strict=True):
                work.wait()
                sums = torch.split(values, [leaf.numel() for leaf in bucket])
                for leaf, total in zip(bucket, sums, strict=True):
                    if total.data_ptr() != _gradient(leaf).data_ptr():  # a single gradient may be added up in place
                        _gradient(leaf).copy_(total.view(leaf.shape))
        self._sent = []


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad
