"""The paired rank of each canary, and whether the canary is found: one row per canary.

A canary is found if its p-value, adjusted over canaries (Benjamini & Hochberg 1995), is at most FDR. If p-values are
exact and independent, at most 5 % of the found canaries are expected to be false discoveries. If no canary is
memorised, at most 5 % of runs find one. The p-value is

    D(f) = mean over probe images of log P(y | x_f), canary model minus control model      f: a member of the family
    p    = share of the members whose D is at least that of the feature

for the feature that the canary carried, in its family. If there are several training seeds, p is computed from the mean
over pairs of D, standardised over the family. If `ranks` is measured and all glyphs can be counted, p is instead that
of the exact rank of the glyph among all glyphs of its ink, by the weighted slopes of its pixels (`exact_ranks`). If the
canary's feature was drawn from its population, p is exact. For a feature that a person chose, p and the rate of false
discoveries depend on how similar the feature is to the others.

The mean effect over canaries (`canary_scores`) is uninformative if a few canaries are memorised strongly and most not
at all; ranks, in turn, do not measure the strength. With n canaries and m others, n / (FDR (m + 1)) canaries must rank
first in their families before one can be found. For a feature without such a family, only the effect decides.

A rank has no scale: any two training runs that differ in one image give different outputs, and the feature may rank
first by 0.00002 nats. Therefore, p is also computed with D of the feature reduced by SMALLEST nats, and a canary is
*memorised* if it is found with this p-value. The slopes of exact ranks are not in nats; there, the effects of the
canaries decide (`canary_scores`).

The share beyond chance is (share - LEVEL) / (1 - LEVEL), for the share of canaries with p at most LEVEL. It estimates
the share of memorised canaries times the share of these that a rank detects, so it is at most the former. With fewer
than 19 others, no p is as small as LEVEL, and the canaries that rank first are counted instead. If canaries share
training seeds, they are not an independent sample, and shares have neither interval nor p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.measures.exact_ranks import rank_jobs
from tasks.audits.unique_feature.measures.family import family_jobs
from tasks.audits.unique_feature.pairs.units import share_seeds
from tasks.audits.unique_feature.population import (
    FDR,
    LEVEL,
    FamilyPair,
    Population,
    family_pairs,
    mean_standardised_scores,
    reduce_effect,
    subset_count,
)
from tasks.audits.unique_feature.slope_ranks import Subsets, mean_standardised_slopes
from tasks.audits.unique_feature.slopes import strongest_pixels
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.grouping import group_by, group_rows
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.power import SMALLEST
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.contract.ties import tied_row
from tasks.numerics import betting
from tasks.numerics.ranks import exposure, false_discovery_control, rank_p_value, share_tied
from tasks.numerics.statistics import proportion, proportion_greater

CALLED = "share of canaries called memorised"
BEYOND = "share of canaries found beyond chance"
MEMORISED = "share of canaries memorised"  # found with its effect reduced by SMALLEST
MEMORISED_BEYOND = "share of canaries memorised beyond chance"
TOTAL_BETS = "evidence of all ranks"  # the product of the bets on them, by which a second or later look accuses
MEMORISED_BETS = "evidence of all ranks above the smallest effect"  # for effects reduced by SMALLEST
SHARED = "shared seeds"  # in the settings of both: canaries share training seeds

CALLS = (
    ("p_value", pa.float64()),
    ("adjusted_p", pa.float64()),  # adjusted over the canaries
    ("called", pa.bool_()),  # whether adjusted_p is at most FDR
    ("shared_seeds", pa.bool_()),  # whether two canaries in the table were trained with the same seed
    ("reduced_p", pa.float64()),  # p-value with the effect reduced by SMALLEST; null for exact ranks
    ("memorised", pa.bool_()),  # whether reduced_p, adjusted over the canaries, is at most FDR; null like reduced_p
    ("tied", pa.float64()),  # share of feature pairs, or cell pairs, with equal scores
)


def call_canaries(verdicts: Sequence[Row], trainings: Iterable[tuple[int, int]]) -> list[Row]:
    """Return the canaries' rows with the columns of CALLS, the smallest `p_value` first.

    `trainings` contains the row and the seed of each training, for all canaries.
    """
    shared = share_seeds(trainings)
    adjusted = false_discovery_control([verdict["p_value"] for verdict in verdicts])
    reduced = false_discovery_control(
        [math.nan if verdict["reduced_p"] is None else verdict["reduced_p"] for verdict in verdicts]
    )
    rows = []
    for verdict, p_value, reduced_p in zip(verdicts, adjusted, reduced, strict=True):
        memorised = None if np.isnan(reduced_p) else bool(reduced_p <= FDR)
        about = {"called": bool(p_value <= FDR), "shared_seeds": shared, "memorised": memorised}
        rows.append(verdict | {"adjusted_p": float(p_value), **about})
    return sorted(rows, key=lambda verdict: (verdict["p_value"], verdict["canary"]))


def count_rows(verdicts: Sequence[Row], population: Population) -> Iterator[Row]:
    """Yield the number of canaries found individually, the share of small ranks beyond chance, and the bets.

    The bets require canaries with different training seeds, whose ranks are independent.
    """
    n = len(verdicts)
    called_count = sum(verdict["called"] for verdict in verdicts)
    shared = {}
    if any(verdict["shared_seeds"] for verdict in verdicts):
        shared = {SHARED: True}
    if shared:
        smallest = None
    else:
        smallest = min(verdict["adjusted_p"] for verdict in verdicts)
    setting = {"false discovery rate": FDR, **population.setting, **shared}
    yield row(CALLED, setting, alone(called_count / n, n), "canary", 0.0, smallest)
    yield _beyond_row(BEYOND, [verdict["p_value"] for verdict in verdicts], population, shared)
    if not shared:
        yield _bets_row(TOTAL_BETS, [verdict["p_value"] for verdict in verdicts])
    yield tied_row(float(np.mean([verdict["tied"] for verdict in verdicts])), n, "canary")
    if all(verdict["reduced_p"] is not None for verdict in verdicts):
        memorised = sum(verdict["memorised"] for verdict in verdicts)
        yield row(MEMORISED, {"nats": SMALLEST, **setting}, alone(memorised / n, n), "canary", 0.0)
        yield _beyond_row(MEMORISED_BEYOND, [verdict["reduced_p"] for verdict in verdicts], population, shared)
        if not shared:
            yield _bets_row(MEMORISED_BETS, [verdict["reduced_p"] for verdict in verdicts])


def _bets_row(metric: str, p_values: Sequence[float]) -> Row:
    """Return the row with the product of bets on all of these p-values, and its p-value."""
    total = betting.total_evidence(p_values)
    return row(metric, {}, alone(total, len(p_values)), "canary", 1.0, min(1.0, 1 / total))


def _beyond_row(metric: str, p_values: Sequence[float], population: Population, shared: dict[str, bool]) -> Row:
    """Return the row with the share of canaries whose p-value is small, beyond chance.

    The row has neither interval nor p-value if the canaries share seeds.
    """
    n = len(p_values)
    level = max(LEVEL, 1 / population.size)
    small = sum(p_value <= level for p_value in p_values)
    share = share_beyond_chance(small, n, level)
    setting = {"p": level, **shared}
    if shared:
        return row(metric, setting, Estimate(share.value, None, None, n), "canary", 0.0)
    return row(metric, setting, share, "canary", 0.0, proportion_greater(small, n, level))


def share_beyond_chance(small: int, n: int, level: float = LEVEL) -> Estimate:
    """Return the share beyond chance of n canaries whose p is at most the level, with Wilson's interval transformed
    accordingly.
    """
    share = proportion(small, n)
    ends = (share.value, share.low, share.high)
    value, low, high = (math.nan if end is None else max(0.0, (end - level) / (1 - level)) for end in ends)
    return Estimate(value, low, high, n)


# By the rank among the family

CANARY_VERDICTS = pa.schema(
    [
        ("canary", pa.int64()),  # row in the training images
        ("label", pa.int32()),
        ("pairs", pa.int32()),  # number of pairs of training runs
        ("shift", pa.float64()),  # D of the feature minus the mean D of the others, in nats, averaged over pairs
        ("rank", pa.int32()),  # of the feature; 1 is first
        ("members", pa.int32()),  # size of the family, including the feature
        *CALLS,
    ]
)


@task(version=3, name="unique_feature.canary_verdicts", gathers=True)
def canary_verdicts(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute a row for every canary (CANARY_VERDICTS), the smallest p first. The inputs are families, in any order."""
    by_canary = group_by(family_pairs(inputs), lambda pair: pair.training[0])
    trainings = [pair.training for pairs in by_canary.values() for pair in pairs]
    verdicts = [verdict_row(canary, pairs) for canary, pairs in by_canary.items()]
    return pa.Table.from_pylist(call_canaries(verdicts, trainings), CANARY_VERDICTS)


def verdict_row(canary: int, pairs: Sequence[FamilyPair]) -> Row:
    """Return one canary's row, without the columns that depend on the others."""
    differences = [pair.difference for pair in pairs]
    scores = mean_standardised_scores(differences)
    p_value = rank_p_value(scores)
    reduced = rank_p_value(mean_standardised_scores([reduce_effect(difference) for difference in differences]))
    return {
        "canary": canary,
        "label": pairs[0].label,
        "pairs": len(pairs),
        "reduced_p": max(p_value, reduced),
        "tied": float(share_tied(scores)),
        "shift": float(np.mean([difference[0] - difference[1:].mean() for difference in differences])),
        "rank": round(p_value * len(scores)),
        "members": len(scores),
        "p_value": p_value,
    }


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not design.judges_by_family:
        return ()
    return (Job(canary_verdicts, NoSettings(), family_jobs(design, trainings)),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    verdicts = tables.rows(CANARY_VERDICTS)
    if verdicts:
        yield from count_rows(verdicts, Population(min(verdict["members"] for verdict in verdicts)))


# By the exact rank among all glyphs

EXACT_VERDICTS = pa.schema(
    [
        ("canary", pa.int64()),  # row in the training images
        ("label", pa.int32()),
        ("pairs", pa.int32()),  # number of pairs of training runs
        ("read_out", pa.int32()),  # how many of the `inked` cells with the largest slopes the glyph inks
        ("inked", pa.int32()),
        ("read_by_chance", pa.float64()),
        ("exposure", pa.float64()),  # bits
        ("rank", pa.int64()),  # of the glyph; 1 is first
        ("glyphs", pa.int64()),  # number of glyphs with its ink
        *CALLS,
    ]
)


@task(version=2, name="unique_feature.exact_verdicts", gathers=True)
def exact_verdicts(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute a row for every canary (EXACT_VERDICTS), the smallest p first.

    The inputs are exact ranks, in any order.
    """
    ranks = (rank for table in inputs for rank in table.to_pylist())
    pair_ranks = (rank for rank in ranks if (rank["score"], rank["feature"]) == ("pair", "canary"))
    by_canary = group_rows(pair_ranks, "canary")
    trainings = []
    for canary, pairs in by_canary.items():
        for rank in pairs:
            trainings.append((canary, rank["seed"]))
    verdicts = [_exact_verdict_row(canary, pairs) for canary, pairs in by_canary.items()]
    return pa.Table.from_pylist(call_canaries(verdicts, trainings), EXACT_VERDICTS)


def _exact_verdict_row(canary: int, pairs: Sequence[Row]) -> Row:
    """Return one canary's row, without the columns that depend on the others."""
    inked = np.array(pairs[0]["ink"], bool)
    slopes = mean_standardised_slopes([np.array(pair["slopes"], np.float64) for pair in pairs])
    count = int(inked.sum())
    glyphs = subset_count(len(inked), int(inked.sum()))
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
        "reduced_p": None,
        "tied": float(share_tied(slopes)),
    }


def plan_exact(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if design.decides_by_ranks:
        return (Job(exact_verdicts, NoSettings(), rank_jobs(design, trainings)),)
    return ()


def exact_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    verdicts = tables.rows(EXACT_VERDICTS)
    if verdicts:
        yield from count_rows(verdicts, Population(min(verdict["glyphs"] for verdict in verdicts), are_all_glyphs=True))


MEASURE = Measure("canary_verdicts", CANARY_VERDICTS, plan, rows)
EXACT_MEASURE = Measure("canary_verdicts", EXACT_VERDICTS, plan_exact, exact_rows)
