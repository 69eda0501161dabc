"""How many models are needed: the rates at which the exact ranks of panels, each asked as one, are at most 5 %.

A panel's weighted slopes are the mean of its models' in units of their standard deviation over the cells. Where each
canary has a glyph of its own, every model's cells are put into another order first, drawn among those in which its
glyph lies where that of the first does; so the panel's p-value is exact as one model's is. Panels share no canary
(`panel_rates`). The paper has one model a canary; this is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks import seeds
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.exact_ranks import rank_jobs
from tasks.audits.unique_feature.panel_rates import LEAST, RATE, rate_columns, rate_row
from tasks.audits.unique_feature.pixel_slopes import Array
from tasks.audits.unique_feature.ranks import LEVEL
from tasks.audits.unique_feature.slope_ranks import Cells, is_among_all, mean_standardised_slopes
from tasks.audits.unique_feature.subset_ranks import Subsets
from tasks.audits.unique_feature.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row

SIZES = (1, 2, 3, 5)

EXACT_PANELS = pa.schema(
    [
        ("score", pa.string()),
        ("models", pa.int32()),  # in a panel, or pairs of them
        *RATE,
    ]
)


@dataclass(frozen=True)
class ExactPanels:
    """`seed` draws who is in a panel with whom, and the order of their cells."""

    seed: int


@task(version=2, name="unique_feature.exact_panels", gathers=True)
def exact_panels(config: ExactPanels, inputs: Inputs) -> pa.Table:
    """The rate of panels with p of at most 5 % by each score and size (EXACT_PANELS).

    The inputs are tables of EXACT_RANKS, in any order. Glyphs count that are ranked among all of their ink, the first
    training of every canary.
    """
    rows: list[Row] = []
    said = [
        rank for table in inputs for rank in table.to_pylist() if rank["feature"] == "canary" and is_among_all(rank)
    ]
    for score in dict.fromkeys(rank["score"] for rank in said):
        first: dict[int, Row] = {}
        for rank in said:
            if rank["score"] == score:
                first.setdefault(rank["canary"], rank)
        generator = seeds.generator(config.seed, "panels", score)
        asked = [list(first.values())[at] for at in generator.permutation(len(first))]
        for size in SIZES:
            rows += rates_at_size(
                score, [asked[at : at + size] for at in range(0, len(asked) - size + 1, size)], generator
            )
    return pa.Table.from_pylist(rows, EXACT_PANELS)


def rates_at_size(score: str, panels: Sequence[Sequence[Row]], generator: np.random.Generator) -> Iterator[Row]:
    alike = [panel for panel in panels if len({rank["inked"] for rank in panel}) == 1]
    if len(alike) < LEAST:
        return
    p_values = [panel_p_value(panel, generator) for panel in alike]
    trainings = [(rank["canary"], rank["seed"]) for panel in panels for rank in panel]
    yield {"score": score, "models": len(alike[0])} | rate_columns(p_values, trainings)


def panel_p_value(panel: Sequence[Row], generator: np.random.Generator) -> float:
    """The exact p-value of the panel's mean slopes: of the first's glyph, where the others' are moved to it."""
    ink = np.array(panel[0]["ink"], bool)
    slopes = [np.array(rank["slopes"], np.float64) for rank in panel]
    own = [np.array(rank["ink"], bool) for rank in panel]
    moved = [align_to_ink(ink, mask, values, generator) for mask, values in zip(own, slopes, strict=True)]
    return Subsets(mean_standardised_slopes(moved)).p_value(ink)


def align_to_ink(ink: Cells, own: Cells, values: Array, generator: np.random.Generator) -> Array:
    """The values of the cells with those of the `own` ink in the places of `ink`; as they are where both are one."""
    if (own == ink).all():
        return values
    moved = np.empty_like(values)
    moved[ink], moved[~ink] = generator.permutation(values[own]), generator.permutation(values[~own])
    return moved


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    if not config.asks_for("ranks"):
        return ()
    return (Job(exact_panels, ExactPanels(seeds.derive(config.seed, "exact panels")), rank_jobs(config, trainings)),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """The detection rate of panels; null: that of features that left nothing, as p is exact."""
    for panel in tables.rows(EXACT_PANELS):
        yield rate_row(f"exact rank, {panel['score']}", panel, LEVEL)


MEASURE = Measure("exact_panels", EXACT_PANELS, plan, rows)
