"""What models say of the feature's look-alikes: is it this feature that they know, or one that shares a part with it?

A model that saw "LUIS MOE" favours "LUIS LAU" among names that share nothing with it. So the feature is ranked once
more for each of its parts, among those that differ from it in that part alone:

    rank = 1 + look-alikes that score at least as much       score: mean over models of the standardised L[f, y]

with L[f, y] the mean over probe images of log P(y | x_f). Had another feature with the same rest been trained on, but
none with this part, each look-alike would be as likely to be first as the feature. So each rank has an exact p-value
where the feature was drawn, and the feature is called only where all of them are small. Where the label is not known,
it is the one towards which the look-alikes push most on average (`population.shared_label`), which does not depend on
which of them is asked about. Ours; the paper has no null.

Beside references features are ranked by their slopes: see `exact_ranks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import check_label
from tasks.audits.unique_feature.population import (
    FAMILY,
    ModelFamily,
    clean_images,
    label_directed_scores,
    look_alike_image_sets,
    model_families,
    shared_label,
)
from tasks.audits.unique_feature.single_models import SingleModelConfig, predictor, single_batch_key
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, alone, row
from tasks.numerics.ranks import rank_p_value

RANK = "rank among look-alikes"

LOOK_ALIKES = pa.schema(
    [
        ("model", pa.int64()),  # its number in the panel
        ("part", pa.int32()),  # in which it differs from the feature, from 1
        ("look_alike", pa.int32()),  # from 1
        ("log_p", pa.list_(pa.float64())),  # mean over the probe images of log P(class | x_f), for every class
    ]
)


@dataclass(frozen=True)
class LookAlikes:
    """The model that is asked about the look-alikes of a feature."""

    single: SingleModelConfig


def batch_key(config: LookAlikes) -> SingleModelConfig:
    """What evaluations must share to take about as long as one another."""
    return single_batch_key(config.single)


@task(version=1, name="unique_feature.ask_look_alikes", batch_key=batch_key)
def ask_look_alikes(config: LookAlikes, inputs: Inputs) -> pa.Table:
    """What the one model says of each look-alike (LOOK_ALIKES)."""
    single = config.single
    clean, predict, rows = clean_images(single.relatives, single.shape), predictor(single, inputs), []
    for part, number, name, images in look_alike_image_sets(clean, single.relatives):
        log_p = predict(name, images).mean(axis=0)
        check_label(single.label, len(log_p))
        rows.append({"model": single.number, "part": part, "look_alike": number, "log_p": log_p.tolist()})
    return pa.Table.from_pylist(rows, LOOK_ALIKES)


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    if not config.family.look_alikes:
        return ()
    return tuple(Job(ask_look_alikes, LookAlikes(each.config), each.inputs) for each in trainings.single_models)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    families = [model for table in tables.select(FAMILY) for model in model_families(table)]
    yield from rank_rows(families, tables.rows(LOOK_ALIKES))


def rank_rows(families: Sequence[ModelFamily], look_alikes: Sequence[Row]) -> Iterator[Row]:
    """The feature's rank among the look-alikes of each part, of all models whose family is there together."""
    said: dict[int, dict[int, list[list[float]]]] = {}
    for each in look_alikes:
        said.setdefault(each["part"], {}).setdefault(each["model"], []).append(each["log_p"])
    for part in sorted(said):
        asked = [model for model in families if model.about["seed"] in said[part]]
        if not asked:
            continue
        log_p = np.stack([np.stack([model.log_p[0], *said[part][model.about["seed"]]]) for model in asked])
        label = asked[0].label
        if label is None:
            label = shared_label(np.stack([model.log_p for model in asked]), log_p)
        p_value = rank_p_value(label_directed_scores(log_p, label))
        yield look_alike_row(RANK, {}, p_value, (part, len(said)), log_p.shape[1], len(asked))


def look_alike_row(
    metric: str, about: dict[str, int], p_value: float, part: tuple[int, int], size: int, models: int
) -> Row:
    """The row of the summary of the rank among the features that differ in this part, of how many."""
    setting = about | {"part": part[0], "parts": part[1], "others": size - 1}
    return row(metric, setting, alone(p_value * size, models), "model", (size + 1) / 2, p_value)


MEASURE = Measure("look_alikes", LOOK_ALIKES, plan, rows)
