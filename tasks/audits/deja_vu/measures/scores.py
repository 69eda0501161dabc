"""The deja vu score: how much better a model infers an image's object from its background after training on it.

    acc(p) = share of right labels among the p percent of images that a model is most confident of
    deja vu score(p) = acc of the target model - acc of the reference model, mean of both directions

The score is 0 without memorisation, because both models name the objects that backgrounds reveal (correlation). The
published score is the value at p = 20; the table contains the whole curve. Meehan et al. 2023, section 4.1.

A given encoder and its reference were not trained identically, so one may infer more than the other from any
background. The encoder's lead on images that neither was trained on is therefore subtracted:

    corrected score(p) = (acc of the target on A - acc of the reference on A)
                       - (acc of the target on B - acc of the reference on B)

This is twice the mean of both directions, so its p-value is the same. The corrected score is ours.

Intervals are percentile bootstraps over images. Both models use the same resample, and each direction is resampled
separately. Intervals are at least as wide as `tasks.audits.deja_vu.accuracy.limits`. p is computed by
`tasks.audits.deja_vu.randomisation`. Both are ours.

A second table divides the evaluated images of both sets into four categories (section 4.2). Memorised images are named
correctly only by the target; misrepresented images only by the reference, which happens by chance; correlated images by
both; unassociated images by neither. McNemar's exact test compares the memorised and misrepresented images; the paper
compares the two shares by eye.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.deja_vu.accuracy import PERCENTAGES, Way, Weighted, accuracy, bootstrap_accuracies, limits, numbers
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.encoder_config import Given
from tasks.audits.deja_vu.measures import inferences
from tasks.audits.deja_vu.measures.inferences import SETS, Cell, cells
from tasks.audits.deja_vu.presets import printed_numbers
from tasks.audits.deja_vu.randomisation import p_value
from tasks.audits.deja_vu.trainings import Trainings
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import ENDS, Estimate, Row, column_estimate, interval_columns, interval_fields, row
from tasks.numerics import seeds
from tasks.numerics.statistics import proportion, proportion_greater

BOTH = "both"
CORRECTED = "corrected"
NAMES = ("target_accuracy", "reference_accuracy", "score")
TARGET = 0
REFERENCE = 1
DIGITS = 12  # decimals of shares and their differences
SCORE = "deja vu score"
CORRECTED_SCORE = "deja vu score, corrected"
TOLD = (1, 100)  # percentages reported in the summary in addition to the decisive one

# One row per epoch, layer, neighbour count, direction and percentage.
SCORES = pa.schema(
    [
        ("epoch", pa.int64()),
        ("layer", pa.int32()),
        ("k", pa.int32()),
        # The evaluated set, or `both` for the mean of the two. A given encoder is the target on both sets, and
        # `corrected` is A minus B, for the accuracies too.
        ("way", pa.string()),
        ("percent", pa.int32()),
        *interval_fields(*NAMES),
        ("p_value", pa.float64()),  # only for the decisive score, null elsewhere
        ("images", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Scoring:
    """Decisive percentage, the numbers of resamples and permutations, and their seed.

    `given` is true if the model of A is a third-party encoder, which was not trained on B.
    """

    confident: int
    resamples: int
    partings: int
    seed: int
    given: bool = False


@task(version=2, name="deja_vu.scores", gathers=True)
def scores(config: Scoring, inputs: Inputs) -> pa.Table:
    """Compute the deja vu score curve (SCORES) by epoch, layer, neighbour count and direction."""
    rows = [score_row for table in inputs for cell in cells(table) for score_row in cell_rows(cell, config)]
    return pa.Table.from_pylist(rows, SCORES)


def cell_rows(cell: Cell, config: Scoring) -> Iterator[dict[str, Any]]:
    """Yield the rows of one epoch, layer and neighbour count, the decisive score first."""
    ways = (cell.way("A"), cell.way("B"))
    p = p_value(ways, config.confident, config.partings, seeds.generator(config.seed, "partings"))
    if config.given:
        compared_ways = (ways[0], _swap_roles(ways[1]))
    else:
        compared_ways = ways
    curves = [curve(way, config, name) for way, name in zip(compared_ways, SETS, strict=True)]
    if config.given:
        first = CORRECTED
        weights = (1.0, -1.0)
    else:
        first = BOTH
        weights = (0.5, 0.5)
    for name, weight in {first: weights, "A": (1.0, 0.0), "B": (0.0, 1.0)}.items():
        pictures = sum(len(way) for way, share in zip(ways, weight, strict=True) if share)
        if pictures:
            about = {"epoch": cell.epoch, "layer": cell.layer, "k": cell.k, "way": name, "images": pictures}
            for percent, columns in zip(PERCENTAGES, _combine_curves(curves, compared_ways, weight), strict=True):
                decides = name == first and percent == config.confident
                yield {**about, "percent": percent, **columns, "p_value": p if decides else None}


def _swap_roles(way: Way) -> Way:
    """Exchange target and reference."""
    return Way(way.labels, way.reference, way.target, way.ids)


def curve(way: Way, config: Scoring, name: str) -> NDArray[np.float64]:
    """Compute target accuracy, reference accuracy and difference per percentage, (3, 1 + resamples, percentages).

    Index 0 of the second axis is the sample itself; the others are bootstrap resamples.
    """
    sample = np.stack([accuracy(way.target), accuracy(way.reference)])[None]
    rng = seeds.generator(config.seed, "resamples", name)
    accuracies = np.concatenate([sample, bootstrap_accuracies(way, PERCENTAGES, config.resamples, rng)])
    return np.stack([accuracies[:, 0], accuracies[:, 1], accuracies[:, 0] - accuracies[:, 1]])


def _combine_curves(
    curves: Sequence[NDArray[np.float64]], ways: Sequence[Way], weights: Sequence[float]
) -> Iterator[dict[str, float | None]]:
    """Yield, per percentage, the columns of the weighted estimates and their intervals.

    Each interval is the union of the bootstrap interval and Wilson's.
    """
    terms = [term for term in zip(curves, ways, weights, strict=True) if term[2]]
    weighted = np.round(sum(weight * curve for curve, _, weight in terms), DIGITS) + 0.0  # avoids -0 for equal shares
    low, high = np.quantile(weighted[:, 1:], [0.025, 0.975], axis=1)
    for position, models in enumerate(((TARGET,), (REFERENCE,), (TARGET, REFERENCE))):
        parts = []
        for curve, way, weight in terms:
            for model in models:
                parts.append(
                    Weighted(-weight if models[0] != model else weight, curve[model, 0], numbers(len(way), PERCENTAGES))
                )
        wilsons = limits(parts)
        low[position], high[position] = np.minimum(low[position], wilsons[0]), np.maximum(high[position], wilsons[1])
    for percent in range(len(PERCENTAGES)):
        estimates = (weighted[:, 0, percent], low[:, percent], high[:, percent])
        yield {
            f"{name}{end}": None if np.isnan(values[position]) else float(values[position])
            for position, name in enumerate(NAMES)
            for end, values in zip(ENDS, estimates, strict=True)
        }


def plan(config: DejaVu, trainings: Trainings) -> Job:
    seed = seeds.derive(config.seed, "scores")
    scoring = Scoring(
        config.confident_percent, config.resamples, config.permutations, seed, isinstance(config.encoders, Given)
    )
    return Job(scores, scoring, (inferences.plan(config, trainings),))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the decisive score, the other scores at its percentage, and both models' accuracies."""
    table = tables.one(SCORES)
    if table is None:
        return
    if about.given:
        yield from _rows_of_given(table, about)
        return
    both_ways = [score_row for score_row in table.to_pylist() if score_row["way"] == BOTH]
    at_score = [score_row for score_row in both_ways if score_row["percent"] == about.confident]
    at_score.sort(key=lambda score_row: not _is_decisive(score_row, about))
    for score_row in at_score:
        paper = None
        if _is_decisive(score_row, about) and about.cell:
            paper = printed_numbers(about.cell).score
        yield row(SCORE, setting(score_row), estimate(score_row, "score"), "image", 0.0, score_row["p_value"], paper)
    for score_row in both_ways:
        if _is_decisive(score_row, about) and score_row["percent"] in (about.confident, *TOLD):
            if score_row["percent"] != about.confident:
                yield row(SCORE, setting(score_row), estimate(score_row, "score"), "image", 0.0)
            for model in ("target", "reference"):
                yield row(
                    "accuracy", setting(score_row, model=model), estimate(score_row, f"{model}_accuracy"), "image"
                )


def _rows_of_given(table: pa.Table, about: About) -> Iterator[Row]:
    """Yield the corrected scores, the decisive one first, then both models' accuracies on both sets."""
    at_score = [score_row for score_row in table.to_pylist() if score_row["percent"] == about.confident]
    at_score.sort(key=lambda score_row: not _is_decisive(score_row, about))
    for score_row in at_score:
        if score_row["way"] == CORRECTED:
            yield row(
                CORRECTED_SCORE, setting(score_row), estimate(score_row, "score"), "image", 0.0, score_row["p_value"]
            )
    for score_row in at_score:
        if score_row["way"] != CORRECTED and _is_decisive(score_row, about):
            for model in ("target", "reference"):
                settings = setting(score_row, model=model, set=score_row["way"])
                yield row("accuracy", settings, estimate(score_row, f"{model}_accuracy"), "image")


def _is_decisive(score_row: Row, about: About) -> bool:
    """Return whether the row has the decisive epoch, layer and neighbour count."""
    return bool((score_row["epoch"], score_row["layer"], score_row["k"]) == (about.epoch, about.layer, about.k))


def setting(score_row: Row, **more: Any) -> dict[str, Any]:
    """Return the setting of a row's estimate."""
    return {name: score_row[name] for name in ("epoch", "k", "layer", "percent")} | more


def estimate(score_row: Row, name: str) -> Estimate:
    """Return the estimate and its interval from the columns of a row."""
    return column_estimate(score_row, name, score_row["images"])


KINDS = ("correlated", "memorised", "misrepresented", "unassociated")

# One row per epoch, layer, neighbour count and direction.
CATEGORIES = pa.schema(
    [
        ("epoch", pa.int64()),
        ("layer", pa.int32()),
        ("k", pa.int32()),
        ("way", pa.string()),  # the evaluated set; both: all images
        *interval_fields(*KINDS),
        ("p_value", pa.float64()),  # null hypothesis: no more memorised than misrepresented images
        ("images", pa.int64()),
    ]
)


@task(version=2, name="deja_vu.categories", gathers=True)
def categories(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Count the four categories (CATEGORIES) by epoch, layer, neighbour count and direction."""
    rows = [category_row for table in inputs for cell in cells(table) for category_row in _category_rows(cell)]
    return pa.Table.from_pylist(rows, CATEGORIES)


def _category_rows(cell: Cell) -> Iterator[dict[str, Any]]:
    """Yield the rows of one epoch, layer and neighbour count, first for both sets together."""
    counts_by_set = {name: counts(cell.way(name)) for name in SETS}
    for way, category_counts in {
        BOTH: {name: sum(set_counts[name] for set_counts in counts_by_set.values()) for name in KINDS},
        **counts_by_set,
    }.items():
        n = sum(category_counts.values())
        if n:
            only = category_counts["memorised"] + category_counts["misrepresented"]
            p = proportion_greater(category_counts["memorised"], only, 0.5)
            about = {"epoch": cell.epoch, "layer": cell.layer, "k": cell.k, "way": way, "images": n}
            yield about | shares(category_counts, n) | {"p_value": 1.0 if p is None else p}


def counts(way: Way) -> dict[str, int]:
    """Count the images of each category."""
    target = way.target.correct
    reference = way.reference.correct
    masks = (target & reference, target & ~reference, ~target & reference, ~target & ~reference)
    return {name: int(np.count_nonzero(mask)) for name, mask in zip(KINDS, masks, strict=True)}


def shares(category_counts: dict[str, int], n: int) -> dict[str, float | None]:
    """Return the columns of the shares and their Wilson intervals."""
    columns: dict[str, float | None] = {}
    for name, count in category_counts.items():
        columns |= interval_columns(name, proportion(count, n))
    return columns


def _plan_categories(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    """Plan the categories. None for a given encoder, whose reference differs in more than its training images."""
    if isinstance(config.encoders, Given):
        return ()
    return Job(categories, NoSettings(), (inferences.plan(config, trainings),))


def share_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the shares at the decisive epoch, layer and neighbour count."""
    table = tables.one(CATEGORIES)
    for category_row in [] if table is None else table.to_pylist():
        decisive = (category_row["epoch"], category_row["layer"], category_row["k"]) == (
            about.epoch,
            about.layer,
            about.k,
        )
        if decisive and category_row["way"] == BOTH:
            setting = {name: category_row[name] for name in ("epoch", "k", "layer")}
            for name in ("memorised", "misrepresented", "correlated", "unassociated"):
                p = category_row["p_value"] if name == "memorised" else None
                yield row(f"share {name}", setting, estimate(category_row, name), "image", None, p)


MEASURE = Measure("scores", SCORES, plan, rows)
CATEGORIES_MEASURE = Measure("categories", CATEGORIES, _plan_categories, share_rows)
