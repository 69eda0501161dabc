"""Models that were asked alone: the rank of the feature among its family, and the published score."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.feature_family import FAMILY, ModelFamily, model_families
from tasks.audits.unique_feature.measures.single_family import single_family_rows
from tasks.audits.unique_feature.verdict import OTHERS, SAME, UPPER, panel_verdict
from tasks.datasets.features import Glyph
from tasks.schemas import SUMMARY
from tasks.summaries import Row
from tests.tasks.summary_rows import by_name

# By member and class: member 0 stands second in class 0, and highest in class 1.
LOG_P = [[-1.0, -0.5], [-2.0, -1.0], [-3.0, -1.5], [-0.5, -2.0]]
D = [0.5, 0.1, 0.7, 0.3]


def said(label: int | None, d: list[float], log_p: list[list[float]], log_odds: list[list[float]]) -> pa.Table:
    about = {"canary": None, "label": label, "seed": 1, "model": "given"}
    rows = [
        about | {"member": member, "d": d[member], "log_p": log_p[member], "log_odds": log_odds[member]}
        for member in range(len(d))
    ]
    return pa.Table.from_pylist(rows[::-1], FAMILY)


def ranked(tables: list[pa.Table]) -> Iterator[Row]:
    return single_family_rows([model for table in tables for model in model_families(table)])


def test_the_push_towards_a_known_label_is_ranked_among_the_family() -> None:
    odds = [[1.0, 4.0], [0.0, 1.0], [0.5, 2.0], [2.0, 0.0]]
    found = by_name(ranked([said(0, D, LOG_P, odds)]))
    effect = 1.0 - 2.5 / 3
    others = [0.0 - 2.5 / 3, 0.5 - 2.5 / 3, 2.0 - 2.5 / 3]
    assert {
        ("push towards a label", '{"label": 0, "label known": true}'): pytest.approx(
            [effect, None, None, 1, "model", 0.0, 2 / 4, None]
        ),
        (OTHERS, '{"label": 0, "label known": true}'): pytest.approx(
            [0.0, min(others), max(others), 3, "feature", None, None, None]
        ),
        (UPPER, '{"confidence": 0.975}'): pytest.approx(
            [effect - min(others), None, None, 1, "model", None, None, None]
        ),
        # Labels are 0.4375 apart. Pushed by so little none of the three others is above 95 % of a family of so few.
        ("share of pushes that would be found", '{"nats": 0.00875}'): [0.0, None, None, 1, "model", None, None, None],
        (SAME, '{"label": 0}'): pytest.approx([1 / 3, None, None, 1, "model", 1 / 3, None, None]),
        ("rank among the family", "{}"): [2.0, None, None, 1, "model", 2.5, 0.5, None],
        ("KL above the family", "{}"): pytest.approx([0.5 - 1.1 / 3, None, None, 1, "model", 0.0, 0.5, None]),
    } == found


def test_without_a_label_the_one_pushed_most_is_taken_of_the_family_too() -> None:
    odds = [[1.0, 4.0], [0.0, 1.0], [0.5, 2.0], [2.0, 0.0]]
    found = by_name(ranked([said(None, D, LOG_P, odds)]))
    row = found["push towards a label", '{"label": 1, "label known": false}']
    # The others' own best labels: 1, 1 and 0, by how many they are above; the null is the mean of what that gives.
    null = np.mean([1.0 - 1.0, 2.0 - 1.0, 2.0 - 2.5 / 3])
    assert [4.0 - 1.0, 1, "model", null, 1 / 4] == pytest.approx([row[0], row[3], row[4], row[5], row[6]])
    assert [null, 0.0, 2.0 - 2.5 / 3] == pytest.approx(found[OTHERS, '{"label": 1, "label known": false}'][:3])


def test_of_several_models_scores_are_averaged_so_that_all_have_one_p_value() -> None:
    second = [[-0.1, -3.0], [-2.0, -1.0], [-3.0, -1.5], [-2.5, -2.0]]
    found = by_name(ranked([said(0, D, LOG_P, LOG_P), said(0, [0.9, 0.0, 0.1, 0.2], second, second)]))
    assert [1.0, None, None, 2, "model", 2.5, 0.25, None] == found["rank among the family", "{}"]
    kl = found["KL above the family", "{}"]
    assert [(0.5 - 1.1 / 3 + 0.9 - 0.1) / 2, 2, 0.25] == pytest.approx([kl[0], kl[3], kl[6]])
    assert {} == by_name(ranked([]))


def answered(odds: np.ndarray, label: int | None = 1) -> tuple[str, str]:
    log_p = -np.logaddexp(0, -odds)
    model = ModelFamily({"canary": None, "label": label, "seed": 1, "model": "given"}, np.zeros(len(odds)), log_p, odds)
    said = panel_verdict(Glyph(), pa.Table.from_pylist(list(single_family_rows([model])), SUMMARY))
    return said.answer, said.sentence


@pytest.mark.parametrize("label", [None, 1])
def test_a_model_that_says_the_same_of_every_feature_is_not_cleared(label: int | None) -> None:
    same = np.tile([-4.0, 0.0, 2.0], (201, 1))
    assert "undecided" == answered(same, label)[0]
    assert "the same is said of 100 % of the family" in answered(same, label)[1]
    rounded = np.round(same + np.random.default_rng(13).normal(0, 0.2, same.shape), 0)
    assert "undecided" == answered(rounded, label)[0]


def test_a_temperature_clears_no_model_and_one_that_hardly_moves_is_cleared_at_any() -> None:
    rng = np.random.default_rng(14)
    answers = {spread: {1: set[str](), 30: set[str]()} for spread in (0.01, 0.5)}
    for spread, by_temperature in answers.items():
        for _ in range(40):
            odds = np.array([-3.0, 0.0, 3.0]) + rng.normal(0, spread, (201, 3))
            odds[0, 1] = -2 * spread  # stands low by chance, so that no rank accuses it
            for temperature, said in by_temperature.items():
                said.add(answered(odds / temperature)[0])
    assert {0.01: {1: {"not seen"}, 30: {"not seen"}}, 0.5: {1: {"undecided"}, 30: {"undecided"}}} == answers
