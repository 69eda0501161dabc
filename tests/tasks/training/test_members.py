"""The rows of each minibatch of a member."""

from __future__ import annotations

import numpy as np

from tasks.training.members import Member, minibatches, order


def test_orders_are_permutations_by_epoch_and_seed() -> None:
    orders = []
    for seed in (0, 1):
        for epoch in (1, 2):
            orders.append(order(Member(seed, np.arange(10, 60)), epoch, 10, {}))
    assert [rows.shape for rows in orders] == [(5, 10)] * 4
    assert [list(range(10, 60))] * 4 == [sorted(rows.ravel().tolist()) for rows in orders]
    assert len({rows.tobytes() for rows in orders}) == 4


def test_the_last_minibatch_is_padded() -> None:
    rows = order(Member(0, np.arange(7)), 1, 3, {})
    assert (3, 3) == rows.shape == (minibatches(7, 3), 3)
    assert rows[2, 1:].tolist() == [-1, -1]
    assert list(range(7)) == sorted(rows.ravel()[:7].tolist())


def test_replacement_takes_position_of_its_row() -> None:
    plain = order(Member(0, np.arange(20)), 1, 4, {})
    replaced = order(Member(0, np.arange(20)), 1, 4, {3: 100, 19: 101, 50: 102})
    assert np.where(plain == 3, 100, np.where(plain == 19, 101, plain)).tolist() == replaced.tolist()
