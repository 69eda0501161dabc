"""Which of the canaries are remembered, by exact ranks: a row per canary, its glyph's rank among all of its ink.

    p = share of all glyphs of its ink that the slopes of its model less those of its twin fit at least as well

(`exact_ranks`, the score `pair`); with several training seeds by the mean of the pairs' slopes, each in units of their
standard deviation over the cells. `canary_calls` says which canaries are called for their p. Decided so wherever
`ranks` is measured and the feature is a glyph that is ranked among all of its ink; else by the rank among the members
of its family (`canary_verdicts`).

Among 4,457,400 glyphs p can be as small as 2.2e-7, so that one remembered canary among 200,000 can be called. It is
exact where the canary's glyph was drawn; of one that somebody chose it is as good as its likeness to all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.canary_calls import CALLS, call_canaries, count_rows
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.feature_family import relatives
from tasks.audits.unique_feature.measures.exact_ranks import rank_jobs
from tasks.audits.unique_feature.pixel_slopes import strongest_pixels
from tasks.audits.unique_feature.slope_ranks import is_counted, mean_standardised_slopes
from tasks.audits.unique_feature.subset_ranks import Subsets, exposure, subset_count
from tasks.audits.unique_feature.trainings import Trainings
from tasks.audits.unique_feature.verdict import GLYPHS
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row

EXACT_VERDICTS = pa.schema(
    [
        ("canary", pa.int64()),  # row of the training images
        ("label", pa.int32()),
        ("pairs", pa.int32()),  # of trainings
        ("read_out", pa.int32()),  # of the cells of the largest slopes, as many as the glyph inks: how many it inks
        ("inked", pa.int32()),
        ("read_by_chance", pa.float64()),
        ("exposure", pa.float64()),  # bits
        ("rank", pa.int64()),  # of the glyph, 1: first
        ("glyphs", pa.int64()),  # of its ink
        *CALLS,
    ]
)


@dataclass(frozen=True)
class ExactVerdicts:
    """Nothing but its inputs bears on the table."""


@task(version=1, name="unique_feature.exact_verdicts", gathers=True)
def exact_verdicts(config: ExactVerdicts, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """A row for every canary (EXACT_VERDICTS), the smallest p first. The inputs are exact ranks, in any order."""
    by_canary: dict[int, list[Row]] = {}
    for table in inputs:
        for rank in table.to_pylist():
            if (rank["score"], rank["feature"]) == ("pair", "canary"):
                by_canary.setdefault(rank["canary"], []).append(rank)
    trainings = [(canary, rank["seed"]) for canary, pairs in by_canary.items() for rank in pairs]
    found = [verdict_row(canary, pairs) for canary, pairs in by_canary.items()]
    return pa.Table.from_pylist(call_canaries(found, trainings), EXACT_VERDICTS)


def verdict_row(canary: int, pairs: Sequence[Row]) -> Row:
    """One canary's row but for what depends on the others."""
    inked = np.array(pairs[0]["ink"], bool)
    slopes = mean_standardised_slopes([np.array(pair["slopes"], np.float64) for pair in pairs])
    count, glyphs = int(inked.sum()), subset_count(len(inked), int(inked.sum()))
    p_value = Subsets(slopes).p_value(inked)
    return {
        "canary": canary,
        "label": pairs[0]["label"],
        "pairs": len(pairs),
        "read_out": int((strongest_pixels(slopes, count) & inked).sum()),
        "inked": count,
        "read_by_chance": count**2 / len(inked),
        "exposure": exposure(p_value),
        "rank": round(p_value * glyphs),
        "glyphs": glyphs,
        "p_value": p_value,
    }


def decides(config: UniqueFeature) -> bool:
    """Whether exact ranks decide which canaries are called: they are measured, and all glyphs can be counted."""
    return config.asks_for("ranks") and is_counted(relatives(config, config.feature))


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    return (Job(exact_verdicts, ExactVerdicts(), rank_jobs(config, trainings)),) if decides(config) else ()


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    verdicts = tables.rows(EXACT_VERDICTS)
    if verdicts:
        glyphs = min(each["glyphs"] for each in verdicts)
        yield from count_rows(verdicts, glyphs, {GLYPHS: glyphs})


MEASURE = Measure("canary_verdicts", EXACT_VERDICTS, plan, rows)
