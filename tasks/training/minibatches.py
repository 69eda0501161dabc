"""Which rows each model of a stack sees in an epoch, minibatch by minibatch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.training.members import Member

Order = NDArray[np.int32]  # (minibatches, batch), -1 where there is no row


def minibatches(rows: int, batch: int) -> int:
    return -(-rows // batch)


def order(member: Member, epoch: int, batch: int, aliases: Mapping[int, int]) -> Order:
    """The member's rows in the order of that epoch (from 1), the last minibatch padded; `aliases` stand in for rows."""
    shuffle = seeds.generator(member.seed, "batch order", epoch).permutation(len(member.rows))
    rows = member.rows[shuffle]
    if aliases:
        stands_in = np.arange(rows.max() + 1)
        for row, alias in aliases.items():
            if row < len(stands_in):
                stands_in[row] = alias
        rows = stands_in[rows]
    padded = np.full(minibatches(len(rows), batch) * batch, -1, np.int32)
    padded[: len(rows)] = rows
    return padded.reshape(-1, batch)
