"""Detection rates of panels of models, each evaluated as one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS
from tasks.audits.unique_feature.pairs.panels import (
    EXACT_PANELS,
    PANELS,
    Panels,
    exact_panels,
    exact_rows,
    panels,
    rows,
)
from tasks.audits.unique_feature.pairs.panels import exact_panel_p_value as panel_p_value
from tasks.audits.unique_feature.population import inked_cells
from tasks.contract.measure import Tables
from tasks.contract.schemas import table_of_rows
from tasks.contract.summaries import Row
from tasks.datasets.features import Glyph, draw_member
from tests.tasks.audits.unique_feature.made_up import trained_family
from tests.tasks.summary_rows import by_name


def test_more_models_see_what_one_does_not() -> None:
    inputs = [trained_family(canary, 1.2) for canary in range(60)]
    found = {(r["estimator"], r["model"], r["models"]): r for r in panels(Panels(1), inputs).to_pylist()}
    known = [found["label-directed rank", "canary", size] for size in (1, 5, 20)]
    assert [row["n"] for row in known] == [60, 12, 3]
    assert known[0]["detection_rate"] < 0.6
    assert known[2]["detection_rate"] == 1.0
    assert found["label-directed rank", "twin", 1]["detection_rate"] < 0.15
    assert found["paired family rank", "canary", 1]["detection_rate"] > 0.9


def test_panels_stand_beside_panels_of_as_many_twins() -> None:
    measured = [
        ("rank", "canary", 1, 0.2, 0.1, 0.4, 20),
        ("rank", "twin", 1, 0.04, 0.01, 0.1, 20),
        ("rank", "canary", 5, 0.6, 0.4, 0.8, 18),
        ("rank", "twin", 5, 0.06, 0.02, 0.2, 18),
        ("KL", "canary", 5, 0.5, 0.3, 0.7, 16),
    ]
    found = by_name(rows(Tables([table_of_rows(PANELS, measured)]), None))
    metric = "detection rate by number of models"
    assert {
        (metric, '{"estimator": "rank", "models": 1}'): [0.2, 0.1, 0.4, 20, "panel of models", 0.04, None, None],
        (metric, '{"estimator": "rank", "models": 5}'): [0.6, 0.4, 0.8, 18, "panel of models", 0.06, None, None],
        (metric, '{"estimator": "KL", "models": 5}'): [0.5, 0.3, 0.7, 16, "panel of models", None, None, None],
    } == found


def test_panels_of_canaries_that_share_a_seed_have_no_interval() -> None:
    inputs = [trained_family(canary, 1.2).set_column(2, "seed", pa.array([7] * 84)) for canary in range(6)]
    shared, apart = (
        panels(Panels(1), each).to_pylist() for each in (inputs, [trained_family(c, 1.2) for c in range(6)])
    )
    assert [{None}, False] == [{row["low"] for row in shared}, None in [row["low"] for row in apart]]
    assert [row["detection_rate"] for row in apart] == [row["detection_rate"] for row in shared]


def rank(canary: int, shift: float, draws: np.random.Generator) -> Row:
    """A canary with a glyph of its own, whose cells' slopes are noise and, where it has ink, the shift."""
    glyph = draw_member(Glyph(), canary)
    assert isinstance(glyph, Glyph)
    ink = inked_cells(glyph)
    row = dict.fromkeys(EXACT_RANKS.names) | {"canary": canary, "seed": canary, "score": "pair", "feature": "canary"}
    slopes = draws.normal(size=25) + shift * ink + 2 * (np.arange(25) == 7)
    return row | {"among": 4457400, "inked": 14, "ink": ink.tolist(), "slopes": slopes.tolist()}


def test_panels_find_what_single_models_show_seldom() -> None:
    draws = np.random.default_rng(1)
    table = pa.Table.from_pylist([rank(canary, 0.7, draws) for canary in range(60)], EXACT_RANKS)
    found = exact_panels(Panels(2), [table])
    assert found.schema == EXACT_PANELS
    assert [(row["models"], row["n"]) for row in found.to_pylist()] == [(1, 60), (2, 30), (3, 20), (5, 12)]
    rates = found["detection_rate"].to_pylist()
    assert rates == sorted(rates)
    assert rates[0] < 0.65
    assert rates[-1] > 0.9
    (first, *_) = exact_rows(Tables([found]), None)
    assert ("panel of models", 60, rates[0], 0.05) == tuple(first[n] for n in ("unit", "n", "estimate", "null"))


def test_a_panel_of_glyphs_that_left_nothing_is_called_as_often_as_the_level_says() -> None:
    draws = np.random.default_rng(3)
    ranks = [rank(canary, 0.0, draws) for canary in range(3600)]
    called = [panel_p_value(ranks[at : at + 3], draws) <= 0.05 for at in range(0, 3600, 3)]
    assert np.mean(called) == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 1200))


def test_of_words_there_are_no_panels() -> None:
    words = rank(1, 1.0, np.random.default_rng(4)) | {"among": 201}
    assert exact_panels(Panels(1), [pa.Table.from_pylist([words] * 9, EXACT_RANKS)]).num_rows == 0


def test_exact_panels_of_canaries_that_share_a_seed_have_no_interval() -> None:
    draws = np.random.default_rng(5)
    shared = [rank(canary, 0.7, draws) | {"seed": 1} for canary in range(6)]
    found = exact_panels(Panels(2), [pa.Table.from_pylist(shared, EXACT_RANKS)]).to_pylist()
    assert {(None, None)} == {(row["low"], row["high"]) for row in found}
