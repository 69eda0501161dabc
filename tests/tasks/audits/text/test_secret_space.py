"""Formats of secrets, and exposures by hand and from published numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.audits.text.secrets.space import (
    SecretSpace,
    candidates,
    mean_exposure_of_uniform_ranks,
)
from tasks.numerics.ranks import exposure, rank_p_value


def test_pattern_has_a_size_and_writes_secrets() -> None:
    space = SecretSpace("No. {number}: {letters:2}-{digits:3}/{hex:1}")
    assert space.size == 26**2 * 10**3 * 16
    assert space.write(7, "AB012f") == "No. 7: AB-012/f"
    secret = space.draw(np.random.default_rng(0))
    assert len(secret) == 6
    assert (secret[:2].isupper(), secret[2:5].isdigit()) == (True, True)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{number} {digit:3}", "expected {number}, {digits:N}"),
        ("{number} {digits:0}", "in braces, got"),
        ("{number} {digits:3", "in braces, got"),
        ("{number} only", "expected a random part"),
        ("code {digits:3}", "pattern: expected {number}"),
    ],
)
def test_invalid_pattern_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("{", r"\{")):
        SecretSpace(pattern)


def test_characters_are_drawn_uniformly() -> None:
    rng = np.random.default_rng(1)
    space = SecretSpace("{number} {digits:2}")
    counts = np.zeros((2, 10))
    for _ in range(5000):
        for position, digit in enumerate(space.draw(rng)):
            counts[position, int(digit)] += 1
    assert counts == pytest.approx(np.full((2, 10), 500), abs=5 * math.sqrt(450))


def test_drawing_many_secrets_equals_drawing_each() -> None:
    space = SecretSpace("No. {number}: {letters:2}-{digits:3}/{hex:1}")
    single_rng = np.random.default_rng(1)
    batch_rng = np.random.default_rng(1)
    assert space.draw_many(batch_rng, 20) == [space.draw(single_rng) for _ in range(20)]
    assert batch_rng.random() == single_rng.random()
    alphabets = np.random.default_rng(1)
    by_character = "".join(alphabet[alphabets.integers(len(alphabet))] for alphabet in space.alphabets)
    assert by_character == space.draw(np.random.default_rng(1))


def test_small_space_is_ranked_completely() -> None:
    small = SecretSpace("{number} {digits:2}")
    large = SecretSpace("{number} {digits:6}")
    all_of_them = list(candidates(small, "42", 99, np.random.default_rng(0)))
    assert all_of_them[0] == "42"
    assert len(set(all_of_them)) == 100
    sampled = list(candidates(large, "000042", 99, np.random.default_rng(0)))
    assert sampled[0] == "000042"
    assert len(sampled) == 100


def test_exposures_equal_those_of_secret_sharer() -> None:
    """16 references: ranks 1, 4 and 17 among them (tensorflow/privacy, secret_sharer/exposures_test.py)."""
    expected = [math.log2(16), math.log2(16) - math.log2(4), math.log2(16) - math.log2(17)]
    assert expected == pytest.approx([exposure(rank / 16) for rank in (1, 4, 17)])


def test_mean_exposure_of_uniform_ranks_is_known() -> None:
    for size in (2, 20, 500):
        by_hand = np.mean([exposure(rank / size) for rank in range(1, size + 1)])
        assert by_hand == pytest.approx(mean_exposure_of_uniform_ranks(size))
    assert 1.43 < mean_exposure_of_uniform_ranks(500) < 1 / math.log(2)


def test_tied_secret_is_ranked_last() -> None:
    assert 4 * rank_p_value(np.array([3, 1, 2, 0])) == 1
    assert 4 * rank_p_value(np.array([3, 3, 2, 0])) == 2
    assert 4 * rank_p_value(np.array([1, 1, 1, 1])) == 4
