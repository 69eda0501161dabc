from __future__ import annotations

import math

import pytest

from tasks.audits.relational.entropy import entropy


def test_equally_frequent_answers_have_the_logarithm_of_their_number() -> None:
    assert pytest.approx(math.log(4)) == entropy([("1",), ("2",), ("3",), ("4",)] * 25)


def test_one_answer_has_none() -> None:
    assert 0.0 == entropy(["7"] * 20)


def test_frequencies_count() -> None:
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert pytest.approx(expected) == entropy(["a"] * 75 + ["b"] * 25)


@pytest.mark.parametrize("answers", [[], ["1"] * 9, [str(n) for n in range(1000)], [str(n % 100) for n in range(999)]])
def test_it_is_not_estimated_from_fewer_than_ten_samples_for_each_likely_answer(answers: list[str]) -> None:
    assert entropy(answers) is None
