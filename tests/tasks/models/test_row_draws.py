"""The random numbers of a share of rows are those rows of the numbers that one process draws for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tasks.models.row_draws import RowDraws, RowShare

COUNT = 7
SHARES = (RowShare(0, 3, COUNT), RowShare(3, 4, COUNT))
Draw = Callable[[int], Tensor]  # of so many rows
BY_ROW: dict[str, Draw] = {
    "of a shape": lambda rows: torch.randn(rows, 4),
    "dropout": lambda rows: functional.dropout(torch.ones(rows, 5)),
    "in place": lambda rows: torch.empty(rows, 2, 3).normal_(),
    "bernoulli": lambda rows: torch.bernoulli(torch.full((rows, 5), 0.5)),
    "like another": lambda rows: torch.rand_like(torch.empty(rows, 4)),
    "whole numbers": lambda rows: torch.randint(100, (rows, 4)),
}


@pytest.mark.parametrize("name", BY_ROW)
def test_shares_together_draw_what_one_process_draws(name: str) -> None:
    torch.manual_seed(0)
    whole = BY_ROW[name](COUNT)
    after = torch.rand(3)
    parts = []
    for share in SHARES:
        torch.manual_seed(0)
        with RowDraws(share):
            parts.append(BY_ROW[name](share.own))
            assert torch.equal(torch.rand(2, 1), after[:2, None])  # not by row: equal on all ranks
    assert torch.equal(torch.cat(parts), whole)


def test_numbers_that_cannot_be_divided_are_refused() -> None:
    with RowDraws(SHARES[0]), pytest.raises(ValueError, match="torch's randperm draws random numbers that processes"):
        torch.randperm(3)
