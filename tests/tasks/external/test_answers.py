"""What was said of images, brought to log-probabilities: cases worked by hand."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.external.answers import FLOOR, read_answers
from tasks.external.model_file import Gives

P = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])


@pytest.mark.parametrize(
    ("said", "gives"), [(np.log(P) + 3, "logits"), (P, "probabilities"), (np.log(P), "log-probabilities")]
)
def test_the_three_ways_of_saying_it_are_one(said: NDArray[np.float64], gives: Gives) -> None:
    found = read_answers(said, gives, 2, where="model")
    assert 0 == found.floored
    np.testing.assert_allclose(found.log_p, np.log(P), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("said", "gives"), [(math.log(3), "logits"), (0.75, "probabilities"), (math.log(0.75), "log-probabilities")]
)
@pytest.mark.parametrize("shape", [(2, 1), (2,)])
def test_one_column_is_the_second_of_two_classes(said: float, gives: Gives, shape: tuple[int, ...]) -> None:
    found = read_answers(np.full(shape, said), gives, 2, where="model", classes=2)
    np.testing.assert_allclose(found.log_p, np.log([[0.25, 0.75]] * 2), rtol=0, atol=1e-12)


def test_zeros_stand_at_the_floor_and_are_counted() -> None:
    found = read_answers(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), "probabilities", 2, where="model")
    assert (3, FLOOR) == (found.floored, found.floor)
    assert pytest.approx(math.log(2**-149)) == found.log_p[0, 1]
    high = read_answers(np.array([[1.0, 0.0]]), "probabilities", 1, where="model", floor=0.25)
    np.testing.assert_allclose(np.exp(high.log_p), [[0.8, 0.2]])
    logs = read_answers(np.array([[0.0, -np.inf]]), "log-probabilities", 1, where="model")
    assert (1, pytest.approx(math.log(FLOOR))) == (logs.floored, logs.log_p[0, 1])


def test_sums_within_the_tolerance_are_divided_out() -> None:
    found = read_answers(P * 1.0005, "probabilities", 2, where="model")
    np.testing.assert_allclose(np.exp(found.log_p).sum(1), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.log_p, np.log(P), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("said", "gives", "told"),
    [
        (np.zeros((3, 2)), "logits", r"model gives \(3, 2\) for 2 images; expected \(2, classes\)"),
        (np.zeros((2, 2, 1)), "logits", r"model gives \(2, 2, 1\)"),
        (np.zeros((2, 3)), "logits", "model gives 3 columns, but there are 4 classes"),
        (np.array([[0, 1, 2, 3], [0, np.nan, 0, 0]]), "logits", "the numbers of row 1 are not all finite: 0, nan"),
        (
            np.array([[1, 0, 0, 0], [0.4, 0.4, 0, 0]]),
            "probabilities",
            r"row 1 do not sum to 1: .* \(sum 0.8\); so are 1 of 2",
        ),
        (
            np.array([[2, -1, 0, 0], [1, 0, 0, 0]]),
            "probabilities",
            r"row 0 are not all probabilities, in \[0, 1\]: 2, -1",
        ),
        (np.full((2, 4), -1.0), "log-probabilities", r"exponentials do not sum to 1: .*\(sum 1.47152\); so are 2 of 2"),
        (np.full((2, 4), -np.inf), "log-probabilities", r"\(sum 0\)"),
        (np.array([[0.25] * 4, [0.1, 0.2, 0.3, 0.4]]), "logits", "these are probabilities, not logits"),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_line(said: NDArray[np.float64], gives: Gives, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        read_answers(said, gives, 2, where="model", classes=4)
    assert "\n" not in str(refused.value)


def test_a_log_probability_above_0_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 are not logarithms of probabilities, 0 or less: 2"):
        read_answers(np.array([-1.0, 2.0]), "log-probabilities", 2, where="model")
