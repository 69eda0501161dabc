"""Detection rates of panels of models, each evaluated as a unit."""

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


def test_panels_detect_more_than_single_models() -> None:
    inputs = [trained_family(canary, 1.2) for canary in range(60)]
    rows_by_panel = {}
    for r in panels(Panels(1), inputs).to_pylist():
        rows_by_panel[(r["estimator"], r["model"], r["models"])] = r
    label_directed_rows = []
    for size in (1, 5, 20):
        label_directed_rows.append(rows_by_panel["label-directed rank", "canary", size])
    assert [row["n"] for row in label_directed_rows] == [60, 12, 3]
    assert label_directed_rows[0]["detection_rate"] < 0.6
    assert label_directed_rows[2]["detection_rate"] == 1.0
    assert rows_by_panel["label-directed rank", "twin", 1]["detection_rate"] < 0.15
    assert rows_by_panel["paired family rank", "canary", 1]["detection_rate"] > 0.9


def test_panels_are_compared_with_control_panels() -> None:
    panel_values = [
        ("rank", "canary", 1, 0.2, 0.1, 0.4, 20),
        ("rank", "twin", 1, 0.04, 0.01, 0.1, 20),
        ("rank", "canary", 5, 0.6, 0.4, 0.8, 18),
        ("rank", "twin", 5, 0.06, 0.02, 0.2, 18),
        ("KL", "canary", 5, 0.5, 0.3, 0.7, 16),
    ]
    summary_rows = by_name(rows(Tables([table_of_rows(PANELS, panel_values)]), None))
    metric = "detection rate by number of models"
    assert summary_rows == {
        (metric, '{"estimator": "rank", "models": 1}'): [0.2, 0.1, 0.4, 20, "panel of models", 0.04, None, None],
        (metric, '{"estimator": "rank", "models": 5}'): [0.6, 0.4, 0.8, 18, "panel of models", 0.06, None, None],
        (metric, '{"estimator": "KL", "models": 5}'): [0.5, 0.3, 0.7, 16, "panel of models", None, None, None],
    }


def test_panels_of_one_seed_have_no_interval() -> None:
    inputs = []
    for canary in range(6):
        inputs.append(trained_family(canary, 1.2).set_column(2, "seed", pa.array([7] * 84)))
    shared_rows = panels(Panels(1), inputs).to_pylist()
    separate_rows = panels(Panels(1), [trained_family(c, 1.2) for c in range(6)]).to_pylist()
    assert [{None}, False] == [{row["low"] for row in shared_rows}, None in [row["low"] for row in separate_rows]]
    assert [row["detection_rate"] for row in separate_rows] == [row["detection_rate"] for row in shared_rows]


def canary_row(canary: int, shift: float, draws: np.random.Generator) -> Row:
    """A canary with its own glyph, with noise as the slopes of its cells plus the shift at its ink."""
    glyph = draw_member(Glyph(), canary)
    assert isinstance(glyph, Glyph)
    ink = inked_cells(glyph)
    row = dict.fromkeys(EXACT_RANKS.names) | {"canary": canary, "seed": canary, "score": "pair", "feature": "canary"}
    slopes = draws.normal(size=25) + shift * ink + 2 * (np.arange(25) == 7)
    return row | {"among": 4457400, "inked": 14, "ink": ink.tolist(), "slopes": slopes.tolist()}


def test_panels_find_what_single_models_miss() -> None:
    draws = np.random.default_rng(1)
    table = pa.Table.from_pylist([canary_row(canary, 0.7, draws) for canary in range(60)], EXACT_RANKS)
    panel_table = exact_panels(Panels(2), [table])
    assert panel_table.schema == EXACT_PANELS
    assert [(row["models"], row["n"]) for row in panel_table.to_pylist()] == [(1, 60), (2, 30), (3, 20), (5, 12)]
    rates = panel_table["detection_rate"].to_pylist()
    assert rates == sorted(rates)
    assert rates[0] < 0.65
    assert rates[-1] > 0.9
    (first, *_) = exact_rows(Tables([panel_table]), None)
    assert tuple(first[n] for n in ("unit", "n", "estimate", "null")) == ("panel of models", 60, rates[0], 0.05)


def test_panel_without_memory_is_called_at_level() -> None:
    draws = np.random.default_rng(3)
    ranks = [canary_row(canary, 0.0, draws) for canary in range(3600)]
    is_called = []
    for start in range(0, 3600, 3):
        is_called.append(panel_p_value(ranks[start : start + 3], draws) <= 0.05)
    assert np.mean(is_called) == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 1200))


def test_words_have_no_panels() -> None:
    words = canary_row(1, 1.0, np.random.default_rng(4)) | {"among": 201}
    assert exact_panels(Panels(1), [pa.Table.from_pylist([words] * 9, EXACT_RANKS)]).num_rows == 0


def test_exact_panels_of_one_seed_have_no_interval() -> None:
    draws = np.random.default_rng(5)
    canaries_of_one_seed = []
    for canary in range(6):
        canaries_of_one_seed.append(canary_row(canary, 0.7, draws) | {"seed": 1})
    panel_rows = exact_panels(Panels(2), [pa.Table.from_pylist(canaries_of_one_seed, EXACT_RANKS)]).to_pylist()
    assert {(row["low"], row["high"]) for row in panel_rows} == {(None, None)}
