"""Which of the canaries are remembered: a row per canary, its paired rank and whether it is called.

    D(f) = mean over probe images of log P(y | x_f), the canary's model minus its twin      f: a member of the family
    p    = share of the members whose D is at least that of the feature

of the feature that the canary carried, among it and the others of its family; with several training seeds the rank of
the mean of each pair's D, standardised over the family. `canary_calls` says which canaries are called for their p.
Where the canary's feature was drawn from the family p is exact. Of a feature that somebody chose p, and how often calls
are wrong, is as good as its likeness to the others.

The mean effect over canaries (`canary_scores`) says little where a few are remembered strongly and most not at all;
these calls do not say how strongly. With n canaries and m others, n / (FDR (m + 1)) of them have to be first of their
families before one can be called. Where a feature has no such family, no canary is judged and the effect alone decides.
Where `ranks` is measured and all glyphs can be counted, their exact ranks decide instead (`exact_verdicts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature import ranks
from tasks.audits.unique_feature.canary_calls import CALLS, call_canaries, count_rows
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.feature_family import ModelFamily, model_families
from tasks.audits.unique_feature.measures import exact_verdicts
from tasks.audits.unique_feature.measures.family import family_jobs
from tasks.audits.unique_feature.ranks import Array
from tasks.audits.unique_feature.trainings import Trainings
from tasks.datasets.features import family
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row

CANARY_VERDICTS = pa.schema(
    [
        ("canary", pa.int64()),  # row of the training images
        ("label", pa.int32()),
        ("pairs", pa.int32()),  # of trainings
        ("shift", pa.float64()),  # D of the feature minus the mean of the others', nats; the mean over pairs
        ("rank", pa.int32()),  # of the feature, 1: first
        ("members", pa.int32()),  # of the family, the feature among them
        *CALLS,
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
        pair = {model.about["model"]: model for model in model_families(table)}
        if set(pair) == {"canary", "twin"}:
            by_canary.setdefault(pair["canary"].about["canary"], []).append(pair)
    trainings = [(canary, pair["canary"].about["seed"]) for canary, pairs in by_canary.items() for pair in pairs]
    found = [verdict_row(canary, pairs) for canary, pairs in by_canary.items()]
    return pa.Table.from_pylist(call_canaries(found, trainings), CANARY_VERDICTS)


def verdict_row(canary: int, pairs: Sequence[dict[str, ModelFamily]]) -> Row:
    """One canary's row but for what depends on the others."""
    label = pairs[0]["canary"].label
    differences = [ranks.twin_difference(pair["canary"].log_p, pair["twin"].log_p, label) for pair in pairs]
    scores = mean_standardised_scores(differences)
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


def mean_standardised_scores(differences: Sequence[Array]) -> Array:
    """The members' scores (members,) over all pairs of one canary, each standardised over the family."""
    return np.asarray(np.mean([ranks.standardise(each[:, None])[:, 0] for each in differences], axis=0))


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    if not config.asks_for("scores", "family") or exact_verdicts.decides(config):
        return ()
    if not (config.asks_for("family") or has_family(config)):
        return ()
    return (Job(canary_verdicts, CanaryVerdicts(), family_jobs(config, trainings)),)


def has_family(config: UniqueFeature) -> bool:
    """Whether there are enough others like the feature to rank it among: none look unlike a picture of one colour."""
    try:
        family(config.feature, config.family, config.seed, config.shape[:2])
    except ValueError:
        return False
    return True


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    verdicts = tables.rows(CANARY_VERDICTS)
    if verdicts:
        members = min(each["members"] for each in verdicts)
        yield from count_rows(verdicts, members, {"others": members - 1})


MEASURE = Measure("canary_verdicts", CANARY_VERDICTS, plan, rows)
