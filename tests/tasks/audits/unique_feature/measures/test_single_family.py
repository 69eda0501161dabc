"""Models that were asked alone: the rank of the feature among its family, and the published score."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.feature_family import FAMILY, by_model
from tasks.audits.unique_feature.measures.single_family import among_family
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
    return among_family([model for table in tables for model in by_model(table)])


def test_the_push_towards_a_known_label_is_ranked_among_the_family() -> None:
    odds = [[1.0, 4.0], [0.0, 1.0], [0.5, 2.0], [2.0, 0.0]]
    found = by_name(ranked([said(0, D, LOG_P, odds)]))
    effect = 1.0 - 2.5 / 3
    others = [0.0 - 2.5 / 3, 0.5 - 2.5 / 3, 2.0 - 2.5 / 3]
    assert {
        ("push towards a label", '{"label": 0, "label known": true}'): pytest.approx(
            [effect, effect - max(others), effect - min(others), 1, "model", 0.0, 2 / 4, None]
        ),
        # Pushed by 0.1 none of the three others is above 95 % of a family of so few.
        ("share of pushes that would be found", '{"nats": 0.1}'): [0.0, None, None, 1, "model", None, None, None],
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


def test_of_several_models_scores_are_averaged_so_that_all_have_one_p_value() -> None:
    second = [[-0.1, -3.0], [-2.0, -1.0], [-3.0, -1.5], [-2.5, -2.0]]
    found = by_name(ranked([said(0, D, LOG_P, LOG_P), said(0, [0.9, 0.0, 0.1, 0.2], second, second)]))
    assert [1.0, None, None, 2, "model", 2.5, 0.25, None] == found["rank among the family", "{}"]
    kl = found["KL above the family", "{}"]
    assert [(0.5 - 1.1 / 3 + 0.9 - 0.1) / 2, 2, 0.25] == pytest.approx([kl[0], kl[3], kl[6]])
    assert {} == by_name(ranked([]))
