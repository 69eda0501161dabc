"""Canaries judged one by one by the exact rank of their glyphs."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature import PRESETS, UniqueFeature
from tasks.audits.unique_feature.measures import canary_verdicts, exact_verdicts
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS
from tasks.audits.unique_feature.measures.exact_verdicts import EXACT_VERDICTS, ExactVerdicts
from tasks.audits.unique_feature.slope_ranks import inked_cells
from tasks.audits.unique_feature.trainings import trainings
from tasks.audits.unique_feature.verdict import CALLED, GLYPHS, SHARED
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph, Words
from tasks.measure import Tables
from tasks.summaries import Row
from tests.tasks.summary_rows import by_name

ALL_GLYPHS = 4_457_400


def ranked(canary: int, shift: float, seed: int | None = None, score: str = "pair", feature: str = "canary") -> Row:
    """A canary with the letter A, whose cells' slopes are noise and, where it has ink, the shift."""
    ink = inked_cells(Glyph())
    slopes = np.random.default_rng([canary, seed or 0]).normal(size=25) + shift * ink
    about = {"canary": canary, "label": 3, "seed": canary if seed is None else seed, "score": score, "feature": feature}
    return dict.fromkeys(EXACT_RANKS.names) | about | {"inked": 14, "ink": ink.tolist(), "slopes": slopes.tolist()}


def judged(*rows: Row) -> pa.Table:
    tables = [pa.Table.from_pylist([row], EXACT_RANKS) for row in rows]
    return exact_verdicts.exact_verdicts(ExactVerdicts(), tables[::-1])


def test_each_canary_has_its_glyphs_rank_among_all_and_the_first_are_called() -> None:
    found = judged(
        ranked(1, 20.0), ranked(2, 0.0), ranked(2, 20.0, score="references"), ranked(2, 20.0, feature="other")
    )
    assert EXACT_VERDICTS == found.schema
    first, second = found.to_pylist()
    expected = (1, 3, 1, 14, 14, 1, ALL_GLYPHS, 1 / ALL_GLYPHS, True)
    names = ("canary", "label", "pairs", "read_out", "inked", "rank", "glyphs", "p_value", "called")
    assert expected == tuple(first[name] for name in names)
    assert math.log2(ALL_GLYPHS) == pytest.approx(first["exposure"])
    assert (2, False) == (second["canary"], second["called"])
    assert 0.05 < second["p_value"] <= 1


def test_the_seeds_of_a_canary_are_ranked_together() -> None:
    weak = [ranked(1, 0.7, seed) for seed in range(9)]
    (one,) = judged(*weak).to_pylist()
    alone = [judged(row).to_pylist()[0]["p_value"] for row in weak]
    assert 9 == one["pairs"]
    assert one["p_value"] < np.median(alone)


def test_the_summary_says_how_many_glyphs_they_were_ranked_among() -> None:
    for shared in (False, True):
        table = judged(*(ranked(at, 20.0, 7 if shared else None) for at in range(3)))
        setting = {"false discovery rate": 0.05, GLYPHS: ALL_GLYPHS} | ({SHARED: True} if shared else {})
        found = by_name(exact_verdicts.rows(Tables([table]), None))
        share, *_, n, unit, _, p_value, _ = found[CALLED, json.dumps(setting, sort_keys=True)]
        assert (1.0, 3, "canary") == (share, n, unit)
        assert (None if shared else pytest.approx(1 / ALL_GLYPHS)) == p_value


def test_nothing_to_judge_says_nothing() -> None:
    assert [] == list(exact_verdicts.rows(Tables([judged()]), None))


@pytest.mark.parametrize(
    ("changes", "exact"),
    [
        ({"measures": ("scores",)}, False),
        ({"measures": ("scores", "ranks")}, True),
        ({"measures": ("ranks",)}, True),
        ({"measures": ("scores", "ranks"), "drawn": True, "seeds": 2}, True),
        ({"measures": ("scores", "ranks"), "family": Family("letters", count=25)}, False),
        ({"measures": ("scores", "ranks"), "feature": Words("JOHN", size=8)}, False),
    ],
)
def test_exact_ranks_decide_where_they_are_measured_and_all_glyphs_can_be_counted(
    changes: dict[str, object], exact: bool
) -> None:
    base: UniqueFeature = PRESETS["smoke"]  # type: ignore[assignment]
    config = replace(base, data=pin(Dataset("digits")), probe=pin(Dataset("photos")), **changes)  # type: ignore[arg-type]
    found = trainings(config)
    planned = [bool(measure.plan(config, found)) for measure in (exact_verdicts, canary_verdicts)]
    assert [exact, not exact] == planned
