"""The rates at which panels of models, each evaluated as one, are called memorised at 5 %.

For ranks in the family, a panel's score of a member is the mean of the standardised scores of its models
(`population.standardise`), and the p-value belongs to the feature's rank. The null consists of panels of the same
number of control models. For exact ranks, a panel's weighted slopes are the mean slopes of its models, in units of
their standard deviation over the cells. If each canary has its own glyph, the cells of every model are first permuted
at random so that its glyph lies where that of the first model does; the p-value is then also exact for the panel.

Panels have no model in common, so they are independent, and their rate has Wilson's interval, unless canaries share
training seeds. The paper has one model per canary; panels are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.measures.exact_ranks import rank_jobs
from tasks.audits.unique_feature.measures.family import family_jobs
from tasks.audits.unique_feature.pairs.units import first_trainings, share_seeds
from tasks.audits.unique_feature.population import (
    LEVEL,
    Cells,
    FamilyPair,
    family_pairs,
    label_directed_scores,
    mean_standardised_scores,
    standardise,
)
from tasks.audits.unique_feature.scores import Array
from tasks.audits.unique_feature.slope_ranks import Subsets, is_among_all, mean_standardised_slopes
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, row
from tasks.numerics import seeds
from tasks.numerics.ranks import rank_p_value
from tasks.numerics.statistics import proportion

T = TypeVar("T")
LEAST = 3  # panels; with fewer, a rate carries no information

RATE = (
    ("detection_rate", pa.float64()),  # share of panels with p <= 0.05
    ("low", pa.float64()),  # 95 % Wilson interval over panels; null if canaries share training seeds
    ("high", pa.float64()),
    ("n", pa.int64()),  # number of panels
)


def _rate_columns(p_values: Sequence[float], trainings: Iterable[tuple[int, int]]) -> Row:
    """Return the columns of RATE. `trainings` contains the canary's row and the seed of each training in the panels."""
    rate = proportion(sum(p_value <= LEVEL for p_value in p_values), len(p_values))
    reach = (None, None) if share_seeds(trainings) else (rate.low, rate.high)
    return dict(zip((name for name, _ in RATE), (rate.value, *reach, rate.n), strict=True))


def _rate_row(estimator: str, panel: Row, null: float | None) -> Row:
    """Return the summary row of panels with this number of `models`."""
    estimate = Estimate(panel["detection_rate"], panel["low"], panel["high"], panel["n"])
    setting = {"estimator": estimator, "models": panel["models"]}
    return row("detection rate by number of models", setting, estimate, "panel of models", null)


# Ranks among the family

SIZES = (1, 2, 3, 5, 10, 20)

PANELS = pa.schema(
    [
        ("estimator", pa.string()),
        ("model", pa.string()),  # canary, or twin (the value without memory)
        ("models", pa.int32()),  # number of models in a panel
        *RATE,
    ]
)


@dataclass(frozen=True)
class Panels:
    """Configuration: `seed` draws the panels and, for exact ranks, the order of their cells."""

    seed: int


@task(version=5, name="unique_feature.panels", gathers=True)
def panels(config: Panels, inputs: Inputs) -> pa.Table:
    """Compute the rate at which panels of each size call the feature memorised (PANELS).

    The inputs are families, in any order. Panels are drawn without replacement, so that they are independent. If the
    label is unknown, the models of a panel have canaries of one label, as the models of one owner do.
    """
    pairs = list(family_pairs(inputs))
    order = seeds.generator(config.seed, "panels").permutation(len(pairs))
    shuffled = [pairs[index] for index in order]
    trainings = [pair.training for pair in pairs]
    rows = []
    for size in SIZES:
        for estimator, model, p_values in panel_p_values(shuffled, size):
            if len(p_values) >= LEAST:
                rows.append(
                    {"estimator": estimator, "model": model, "models": size} | _rate_columns(p_values, trainings)
                )
    return pa.Table.from_pylist(rows, PANELS)


def panel_p_values(pairs: Sequence[FamilyPair], size: int) -> Iterator[tuple[str, str, list[float]]]:
    """Yield the p-values of the panels of this size, by estimator and model."""
    mixed = _split_panels(pairs, size)
    by_label = []
    for label in sorted({pair.label for pair in pairs}):
        by_label.extend(_split_panels([pair for pair in pairs if pair.label == label], size))
    for model in ("canary", "twin"):
        yield "label-directed rank", model, [_known_label_p_value(group, model) for group in mixed]
        yield "label-directed rank, label unknown", model, [_unknown_label_p_value(group, model) for group in by_label]
        groups = []
        for group in mixed:
            if model == "canary" or all(pair.unseen is not None for pair in group):
                groups.append(group)
        yield "paired family rank", model, [_paired_p_value(group, model) for group in groups]


def _split_panels(models: Sequence[T], size: int) -> list[Sequence[T]]:
    return [models[first : first + size] for first in range(0, len(models) - size + 1, size)]


def _known_label_p_value(group: Sequence[FamilyPair], model: str) -> float:
    """Return the p-value of the rank by the mean of the models' scores, each towards its own canary's label."""
    scores = [standardise(getattr(pair, model).log_p)[:, pair.label] for pair in group]
    return rank_p_value(np.mean(scores, axis=0))


def _unknown_label_p_value(group: Sequence[FamilyPair], model: str) -> float:
    return rank_p_value(label_directed_scores(np.stack([getattr(pair, model).log_p for pair in group])))


def _paired_p_value(group: Sequence[FamilyPair], model: str) -> float:
    """Return the p-value of the rank by the mean of the standardised differences.

    For control models, the rank is that of an uncarried feature.
    """
    if model == "canary":
        scores = [pair.difference for pair in group]
    else:
        scores = [pair.unseen for pair in group if pair.unseen is not None]
    members = min(len(score) for score in scores)  # others that look like the feature were left out
    return rank_p_value(mean_standardised_scores([score[:members] for score in scores]))


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not design.asks_for("family"):
        return ()
    return (Job(panels, Panels(seeds.derive(design.seed, "panels")), family_jobs(design, trainings)),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the detection rate of panels of several models. The null is the rate of panels without the feature."""
    panels = tables.rows(PANELS)
    nulls = {}
    for p in panels:
        if p["model"] == "twin":
            nulls[(p["estimator"], p["models"])] = p["detection_rate"]
    for panel in panels:
        if panel["model"] == "canary":
            yield _rate_row(panel["estimator"], panel, nulls.get((panel["estimator"], panel["models"])))


# Exact ranks

EXACT_SIZES = (1, 2, 3, 5)

EXACT_PANELS = pa.schema(
    [
        ("score", pa.string()),
        ("models", pa.int32()),  # number of models, or pairs of models, in a panel
        *RATE,
    ]
)


@task(version=2, name="unique_feature.exact_panels", gathers=True)
def exact_panels(config: Panels, inputs: Inputs) -> pa.Table:
    """Compute the rate of panels with p of at most 5 %, for each score and size (EXACT_PANELS).

    The inputs are tables of EXACT_RANKS, in any order. Only glyphs ranked among all glyphs of their ink count, and only
    the first training of every canary.
    """
    exact_rows: list[Row] = []
    rows = []
    for table in inputs:
        for rank in table.to_pylist():
            if rank["feature"] == "canary" and is_among_all(rank):
                rows.append(rank)
    for score, of_score in group_rows(rows, "score").items():
        first = first_trainings(of_score)
        generator = seeds.generator(config.seed, "panels", score)
        panel = [first[position] for position in generator.permutation(len(first))]
        for size in EXACT_SIZES:
            exact_rows += _rates_at_size(score, _split_panels(panel, size), generator)
    return pa.Table.from_pylist(exact_rows, EXACT_PANELS)


def _rates_at_size(score: str, panels: Sequence[Sequence[Row]], generator: np.random.Generator) -> Iterator[Row]:
    equal_ink_panels = []
    for panel in panels:
        if len({rank["inked"] for rank in panel}) == 1:
            equal_ink_panels.append(panel)
    if len(equal_ink_panels) < LEAST:
        return
    p_values = [exact_panel_p_value(panel, generator) for panel in equal_ink_panels]
    trainings = [(rank["canary"], rank["seed"]) for panel in panels for rank in panel]
    yield {"score": score, "models": len(equal_ink_panels[0])} | _rate_columns(p_values, trainings)


def exact_panel_p_value(panel: Sequence[Row], generator: np.random.Generator) -> float:
    """Return the exact p-value of the panel's mean slopes, with all glyphs moved to the cells of the first one."""
    ink = np.array(panel[0]["ink"], bool)
    slopes = [np.array(rank["slopes"], np.float64) for rank in panel]
    inks = [np.array(rank["ink"], bool) for rank in panel]
    aligned_slopes = []
    for mask, values in zip(inks, slopes, strict=True):
        aligned_slopes.append(_align_to_ink(ink, mask, values, generator))
    return Subsets(mean_standardised_slopes(aligned_slopes)).p_value(ink)


def _align_to_ink(ink: Cells, own_ink: Cells, values: Array, generator: np.random.Generator) -> Array:
    """Permute the values of the cells so that those of `own_ink` move to `ink`. Unchanged if the two are equal."""
    if (own_ink == ink).all():
        return values
    aligned = np.empty_like(values)
    aligned[ink], aligned[~ink] = generator.permutation(values[own_ink]), generator.permutation(values[~own_ink])
    return aligned


def plan_exact(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not design.asks_for("ranks"):
        return ()
    return (Job(exact_panels, Panels(seeds.derive(design.seed, "exact panels")), rank_jobs(design, trainings)),)


def exact_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the detection rate of panels. The null is the rate without memory, which is known because p is exact."""
    for panel in tables.rows(EXACT_PANELS):
        yield _rate_row(f"exact rank, {panel['score']}", panel, LEVEL)


MEASURE = Measure("panels", PANELS, plan, rows)
EXACT_MEASURE = Measure("exact_panels", EXACT_PANELS, plan_exact, exact_rows)
