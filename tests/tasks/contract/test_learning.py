"""Models at chance, and the first sentence of their answer, for each kind of row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.contract.learning import (
    accuracy_row,
    begin_unlearnt,
    chance_accuracy,
    commonest_share,
    describe_unlearnt,
    is_at_chance,
    log_p_row,
)
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, Row


def described(*rows: Row) -> str:
    return describe_unlearnt(pa.Table.from_pylist(list(rows), SUMMARY))


@pytest.mark.parametrize(
    ("estimate", "at_chance"),
    [
        (Estimate(0.3, 0.11, 0.5, 40), False),
        (Estimate(0.3, 0.1, 0.5, 40), True),
        (Estimate(0.1, None, None, 1), True),
        (Estimate(0.11, None, None, 1), False),
        (Estimate(0.95, 0.05, 1.0, 2), False),  # two trainings give no interval
        (Estimate(None, None, None, 0), False),
    ],
)
def test_model_is_at_chance_if_limit_reaches_constant(estimate: Estimate, at_chance: bool) -> None:
    assert is_at_chance(accuracy_row(estimate, "records", 0.1, "record")) == at_chance
    assert not is_at_chance(accuracy_row(estimate, "records", None, "record"))


def test_sentence_names_model_number_and_constant() -> None:
    models = accuracy_row(Estimate(0.12, 0.08, 0.16, 200), "records", 0.1, "record")
    given_model = accuracy_row(Estimate(0.05, None, None, 1), "the control set", 0.1, "image", model_name="given model")
    density = log_p_row(-5.1, -3.7, Estimate(-1.4, -1.5, -1.3, 40), "held-out tokens", "text")
    learnt = log_p_row(-2.0, -3.7, Estimate(1.7, 1.5, 1.9, 40), "held-out images", "text")
    assert described(models) == (
        "The models have not learnt their task: their accuracy on records is 12 % (95 % interval 8 to 16 %), and a "
        "constant answer reaches 10 %."
    )
    assert described(given_model) == (
        "The given model has not learnt its task: its accuracy on the control set is 5 %, and a constant answer "
        "reaches 10 %."
    )
    assert described(density) == (
        "The models have not learnt their task: their mean log-probability of held-out tokens is -5.1 nats (95 % "
        "interval -5.2 to -5 nats), and that by a constant distribution is -3.7 nats."
    )
    assert described(learnt) == ""
    assert described(learnt, models, density) == f"{described(models)} {described(density)}"


def test_sentence_follows_the_answer() -> None:
    assert begin_unlearnt("Not detected: nothing is found.", "not detected", "It is at chance.") == (
        "Not detected: It is at chance. Nothing is found."
    )
    assert begin_unlearnt("Not detected: nothing.", "not detected", "") == "Not detected: nothing."


def test_best_constant_is_most_common_answer() -> None:
    assert chance_accuracy(np.array([0, 1, 1, 2])) == 0.5
    assert commonest_share(["a", "b", "b", "c"]) == 0.5
    assert commonest_share([]) is None
