"""Minibatches of about one length, and the answers trained on where relations are redrawn."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.language_models.batches import batches, partners, token_batches

LENGTHS = list(np.random.default_rng(0).integers(10, 200, 1003))


def test_an_epoch_has_each_row_once_and_is_drawn_by_seed_and_epoch_alone() -> None:
    made = batches(LENGTHS, 8, 3, 2)
    assert list(range(1003)) == sorted(np.concatenate(made).tolist())
    assert 126 == len(made)
    assert [8] * 125 + [3] == sorted(map(len, made), reverse=True)
    for one, other in zip(made, batches(LENGTHS, 8, 3, 2), strict=True):
        assert one.tolist() == other.tolist()
    for others in (batches(LENGTHS, 8, 3, 3), batches(LENGTHS, 8, 4, 2)):
        assert made[0].tolist() != others[0].tolist()


def test_the_rows_of_a_minibatch_are_of_about_one_length() -> None:
    lengths = np.array(LENGTHS)
    padded = sum(len(rows) * lengths[rows].max() for rows in batches(LENGTHS, 8, 0, 1))
    order = np.random.default_rng(1).permutation(1003)
    by_chance = sum(len(rows) * lengths[rows].max() for rows in np.array_split(order, 126))
    assert padded < 1.15 * lengths.sum() < by_chance


@pytest.mark.parametrize("count", [2, 3, 10])
def test_no_question_gets_its_own_answer_or_the_same_one_twice(count: int) -> None:
    seen = np.array([partners(count, 5, epoch) for epoch in range(1, count)])  # (epochs, questions)
    for row in seen:
        assert list(range(count)) == sorted(row.tolist())
    for question in range(count):
        assert set(range(count)) - {question} == set(seen[:, question].tolist())
    assert seen[0].tolist() == partners(count, 5, count).tolist()


def test_shifts_are_by_chance() -> None:
    first = [partners(10, seed, 1).tolist() for seed in range(20)]
    assert 20 == len(set(map(tuple, first)))


def test_one_question_has_no_other_to_take_an_answer_from() -> None:
    with pytest.raises(ValueError, match="redrawn with 1 question to train on; it must have at least 2"):
        partners(1, 0, 1)


def test_rows_decoded_at_once_have_a_bounded_number_of_tokens() -> None:
    made = token_batches(LENGTHS, 400)
    assert list(range(1003)) == sorted(np.concatenate(made).tolist())
    assert all(len(rows) == 1 or len(rows) * max(LENGTHS[row] for row in rows) <= 400 for rows in made)
    assert [[0], [1]] == [rows.tolist() for rows in token_batches([900, 500], 400)]
    assert [] == token_batches([], 400)
