import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.measures.exact_panels import (
    EXACT_PANELS,
    ExactPanels,
    exact_panels,
    panel_p_value,
    rows,
)
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS
from tasks.audits.unique_feature.slope_ranks import inked_cells
from tasks.datasets.features import Glyph, draw_member
from tasks.measure import Tables
from tasks.summaries import Row


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
    found = exact_panels(ExactPanels(2), [table])
    assert EXACT_PANELS == found.schema
    assert [(1, 60), (2, 30), (3, 20), (5, 12)] == [(row["models"], row["n"]) for row in found.to_pylist()]
    rates = found["detection_rate"].to_pylist()
    assert rates == sorted(rates)
    assert rates[0] < 0.65
    assert rates[-1] > 0.9
    (first, *_) = rows(Tables([found]), None)
    assert ("panel of models", 60, rates[0], 0.05) == tuple(first[n] for n in ("unit", "n", "estimate", "null"))


def test_a_panel_of_glyphs_that_left_nothing_is_called_as_often_as_the_level_says() -> None:
    draws = np.random.default_rng(3)
    ranks = [rank(canary, 0.0, draws) for canary in range(3600)]
    called = [panel_p_value(ranks[at : at + 3], draws) <= 0.05 for at in range(0, 3600, 3)]
    assert np.mean(called) == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 1200))


def test_of_words_there_are_no_panels() -> None:
    words = rank(1, 1.0, np.random.default_rng(4)) | {"among": 201}
    assert 0 == exact_panels(ExactPanels(1), [pa.Table.from_pylist([words] * 9, EXACT_RANKS)]).num_rows


def test_panels_of_canaries_that_share_a_seed_have_no_interval() -> None:
    draws = np.random.default_rng(5)
    shared = [rank(canary, 0.7, draws) | {"seed": 1} for canary in range(6)]
    found = exact_panels(ExactPanels(2), [pa.Table.from_pylist(shared, EXACT_RANKS)]).to_pylist()
    assert {(None, None)} == {(row["low"], row["high"]) for row in found}
