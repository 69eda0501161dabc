"""The ranks of a process group: processes that train one model together, each on its own GPU or processor.

`tasks.worker.process_group` starts the ranks. All of them run the same code on the same data, and every training step
divides its rows among them (`share_rows`) and adds up their gradients (`add_over_ranks`), so a result does not depend
on the number of ranks, except for rounding. Outside a group, there is one rank and these functions do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

BUCKET = 25 * 2**20  # bytes that are added up at a time, as in torch's DistributedDataParallel


@dataclass(frozen=True)
class Ranks:
    """This process's number in its group, from 0, and the number of processes."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process returns the results."""
        return self.rank == 0


_ranks = Ranks()


def current_ranks() -> Ranks:
    """Return the place of this process in its group."""
    return _ranks


def set_ranks(ranks: Ranks) -> None:
    """Set the place of this process in its group, for the rest of its life."""
    global _ranks
    _ranks = ranks


def share_rows(start: int, stop: int) -> slice:
    """Return this rank's rows of the rows from `start` to `stop`. The shares differ in size by one row at most."""
    before = sum(row_counts(stop - start)[: _ranks.rank])
    return slice(start + before, start + before + row_counts(stop - start)[_ranks.rank])


def row_counts(count: int) -> list[int]:
    """Return the number of rows of each rank, if `count` rows are shared."""
    edges = [count * rank // _ranks.size for rank in range(_ranks.size + 1)]
    return [end - begin for begin, end in pairwise(edges)]


def share_blocks(count: int, size: int) -> range:
    """Return the first rows of this rank's blocks, if `count` rows are evaluated in blocks of `size` rows."""
    return range(_ranks.rank * size, count, _ranks.size * size)


def add_over_ranks(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over all ranks, which is bitwise equal on all of them."""
    if _ranks.size == 1:
        return
    for bucket in buckets(tensors):
        _add_bucket(bucket)


@contextmanager
def in_turn() -> Iterator[None]:
    """Execute the block on one rank after another, for example because it needs much memory of the machine."""
    for _ in range(_ranks.rank):
        wait_for_ranks()
    try:
        yield
    finally:
        for _ in range(_ranks.rank, _ranks.size):
            wait_for_ranks()


def wait_for_ranks() -> None:
    """Wait until all ranks have called this as often as this one."""
    total_over_ranks(0)


def total_over_ranks(number: int) -> int:
    """Return the sum of a number over all ranks."""
    if _ranks.size == 1:
        return number
    import torch

    total = torch.tensor(number)
    add_over_ranks([total])
    return int(total)


def least_over_ranks(number: int) -> int:
    """Return the least of the ranks' numbers."""
    if _ranks.size == 1:
        return number
    import torch
    from torch import distributed

    least = torch.tensor(number)
    distributed.all_reduce(least, distributed.ReduceOp.MIN)
    return int(least)


def buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Divide the tensors, in order, into lists of one dtype and of at most BUCKET bytes or one tensor."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and (size + tensor.nbytes > BUCKET or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
            size = 0
        bucket.append(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket


def _add_bucket(bucket: Sequence[Tensor]) -> None:
    import torch
    from torch import distributed

    with torch.no_grad():
        if len(bucket) == 1 and bucket[0].is_contiguous():
            distributed.all_reduce(bucket[0])
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        distributed.all_reduce(flat)
        sizes = [tensor.numel() for tensor in bucket]
        for tensor, total in zip(bucket, torch.split(flat, sizes), strict=True):
            tensor.copy_(total.view(tensor.shape))


def join_rows(rows: Tensor, dim: int, counts: Sequence[int]) -> Tensor:
    """Return the rows of all ranks in order, joined along an axis. `counts` has the number of rows of each rank.

    The result has no gradient: each rank computes the same loss of all rows, and passes back the gradient of its own.
    """
    import torch
    from torch import distributed

    if _ranks.size == 1:
        return rows.detach()
    local = rows.detach().movedim(dim, 0).contiguous()
    parts = [local.new_empty((count, *local.shape[1:])) for count in counts]
    if len(set(counts)) == 1:
        distributed.all_gather(parts, local)
    else:  # a collective needs equal shapes
        padded = local.new_zeros((max(counts), *local.shape[1:]))
        padded[: len(local)] = local
        padded_parts = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(padded_parts, padded)
        parts = [part[:count] for part, count in zip(padded_parts, counts, strict=True)]
    return torch.cat(parts).movedim(0, dim)
