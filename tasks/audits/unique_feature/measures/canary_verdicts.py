"""Which of the canaries are remembered: a row per canary, its paired rank and whether it is called.

    D(f) = mean over probe images of log P(y | x_f), the canary's model minus its twin      f: a member of the family
    p    = share of the members whose D is at least that of the feature

of the feature that the canary carried, among it and the others of its family; with several training seeds the rank of
the mean of each pair's D, standardised over the family. A canary is called memorised where p, adjusted over canaries
(Benjamini & Hochberg 1995), is at most FDR. Where the canary's feature was drawn from the family p is exact: of those
called at most 5 % are expected to be called wrongly, and where no canary is remembered any is called in at most 5 % of
runs. Of a feature that somebody chose p and these rates are as good as its likeness to the others.

The mean effect over canaries (`canary_scores`) says little where a few are remembered strongly and most not at all;
these calls do not say how strongly. With n canaries and m others, n / (FDR (m + 1)) of them have to be first of their
families before one can be called. Where a feature has no such family, no canary is judged and the effect alone decides.

The share found beyond chance counts the canaries with p at most LEVEL, less those that chance puts there:
(share - LEVEL) / (1 - LEVEL). It is a share of canaries times the share of these that a rank detects, so at most the
share that is remembered. Among fewer than 19 others, where no p is so small, those that are first of all are counted.
Where canaries share training seeds they are no independent sample: shares have no interval and no p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature import ranks
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.feature_family import ModelFamily, by_model
from tasks.audits.unique_feature.measures.family import families
from tasks.audits.unique_feature.ranks import LEVEL, Array
from tasks.audits.unique_feature.trainings import Trainings
from tasks.audits.unique_feature.units import share_seeds
from tasks.audits.unique_feature.verdict import BEYOND, CALLED, FDR, SHARED
from tasks.datasets.features import family
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.statistics import Estimate, false_discovery_adjusted, proportion, proportion_greater
from tasks.summaries import Row, alone, row

CANARY_VERDICTS = pa.schema(
    [
        ("canary", pa.int64()),  # row of the training images
        ("label", pa.int32()),
        ("pairs", pa.int32()),  # of trainings
        ("shift", pa.float64()),  # D of the feature minus the mean of the others', nats; the mean over pairs
        ("rank", pa.int32()),  # of the feature, 1: first
        ("members", pa.int32()),  # of the family, the feature among them
        ("p_value", pa.float64()),
        ("adjusted_p", pa.float64()),  # over the canaries
        ("called", pa.bool_()),  # adjusted p at most FDR
        ("shared_seeds", pa.bool_()),  # some two canaries of the table were trained with one seed
    ]
)


@dataclass(frozen=True)
class CanaryVerdicts:
    """Nothing but its inputs bears on the table."""


@task(version=2, name="unique_feature.canary_verdicts", gathers=True)
def canary_verdicts(config: CanaryVerdicts, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """A row for every canary (CANARY_VERDICTS), the smallest p first. The inputs are families, in any order."""
    by_canary: dict[int, list[dict[str, ModelFamily]]] = {}
    for table in inputs:
        pair = {model.about["model"]: model for model in by_model(table)}
        if set(pair) == {"canary", "twin"}:
            by_canary.setdefault(pair["canary"].about["canary"], []).append(pair)
    seeds = [(canary, pair["canary"].about["seed"]) for canary, pairs in by_canary.items() for pair in pairs]
    found = [judged(canary, pairs) for canary, pairs in by_canary.items()]
    adjusted = false_discovery_adjusted([each["p_value"] for each in found])
    rows = [
        each | {"adjusted_p": float(p_value), "called": bool(p_value <= FDR), "shared_seeds": share_seeds(seeds)}
        for each, p_value in zip(found, adjusted, strict=True)
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda each: (each["p_value"], each["canary"])), CANARY_VERDICTS)


def judged(canary: int, pairs: Sequence[dict[str, ModelFamily]]) -> Row:
    """One canary's row but for what depends on the others."""
    label = pairs[0]["canary"].label
    differences = [ranks.paired(pair["canary"].log_p, pair["twin"].log_p, label) for pair in pairs]
    scores = together(differences)
    p_value = ranks.rank_p_value(scores)
    return {
        "canary": canary,
        "label": label,
        "pairs": len(pairs),
        "shift": float(np.mean([each[0] - each[1:].mean() for each in differences])),
        "rank": round(p_value * len(scores)),
        "members": len(scores),
        "p_value": p_value,
    }


def together(differences: Sequence[Array]) -> Array:
    """The members' scores (members,) over all pairs of one canary, each standardised over the family."""
    return np.asarray(np.mean([ranks.standardised(each[:, None])[:, 0] for each in differences], axis=0))


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    if not config.asks_for("scores", "family") or not (config.asks_for("family") or has_family(config)):
        return ()
    return (Job(canary_verdicts, CanaryVerdicts(), families(config, trainings)),)


def has_family(config: UniqueFeature) -> bool:
    """Whether there are enough others like the feature to rank it among: none look unlike a picture of one colour."""
    try:
        family(config.feature, config.family, config.seed, config.shape[:2])
    except ValueError:
        return False
    return True


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    yield from of_canaries(tables.rows(CANARY_VERDICTS))


def of_canaries(verdicts: Sequence[Row]) -> Iterator[Row]:
    """How many canaries are called one by one, and how many ranks are small beyond chance."""
    if not verdicts:
        return
    n, others = len(verdicts), min(each["members"] for each in verdicts) - 1
    called = sum(each["called"] for each in verdicts)
    shared = {SHARED: True} if any(each["shared_seeds"] for each in verdicts) else {}
    smallest = None if shared else min(each["adjusted_p"] for each in verdicts)
    setting = {"false discovery rate": FDR, "others": others} | shared
    yield row(CALLED, setting, alone(called / n, n), "canary", 0.0, smallest)
    level = max(LEVEL, 1 / (others + 1))
    small = sum(each["p_value"] <= level for each in verdicts)
    share = beyond(small, n, level)
    if shared:
        yield row(BEYOND, {"p": level} | shared, Estimate(share.value, None, None, n), "canary", 0.0)
    else:
        yield row(BEYOND, {"p": level}, share, "canary", 0.0, proportion_greater(small, n, level))


def beyond(small: int, n: int, level: float = LEVEL) -> Estimate:
    """The share of n canaries whose p is at most the level beyond chance, with Wilson's interval so transformed."""
    share = proportion(small, n)
    ends = (share.value, share.low, share.high)
    value, low, high = (math.nan if end is None else max(0.0, (end - level) / (1 - level)) for end in ends)
    return Estimate(value, low, high, n)


MEASURE = Measure("canary_verdicts", CANARY_VERDICTS, plan, rows)
