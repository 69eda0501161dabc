"""Outputs of models for look-alikes: do they know this feature, or one that shares a part with it?

A model that was trained on "LUIS MOE" favours "LUIS LAU" among unrelated names. For each of its parts, the feature is
therefore also ranked among features that differ from it only in this part:

    rank = 1 + number of look-alikes with at least its score       score: mean over models of the standardised O[f, y]

where O[f, y] is the mean over probe images of log (P / (1 - P)), P = P(y | x_f), standardised over the others of the
family (`population.push_scores`). If models were trained on another feature that only differs in this part, the feature
and each look-alike are equally likely to rank first. Each rank therefore has an exact p-value if the feature was drawn,
and the feature counts as memorised only if every rank is small. If the label is unknown, each look-alike is scored by
the label towards which it pushes most. A common label, that of the mean push, can be the wrong one and would then rank
the feature last. This is ours; the paper has no null.

With references, features are ranked by their slopes: see `exact_ranks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.evaluation import check_label
from tasks.audits.unique_feature.population import (
    FAMILY,
    ModelFamily,
    clean_images,
    look_alike_image_sets,
    model_families,
    push_scores,
)
from tasks.audits.unique_feature.scores import Array, log_odds
from tasks.audits.unique_feature.single_models.models import SingleModelConfig, predictor, single_batch_key
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, alone, row
from tasks.numerics.ranks import rank_p_value

RANK = "rank among look-alikes"

LOOK_ALIKES = pa.schema(
    [
        ("model", pa.int64()),  # number of the model in the panel
        ("part", pa.int32()),  # part in which it differs from the feature, from 1
        ("look_alike", pa.int32()),  # counted from 1
        ("log_p", pa.list_(pa.float64())),  # mean over the probe images of log P(class | x_f), for every class
        ("log_odds", pa.list_(pa.float64())),  # the same for log P / (1 - P)
    ]
)


@dataclass(frozen=True)
class LookAlikes:
    """A single model that is evaluated on the look-alikes of a feature."""

    single: SingleModelConfig


def batch_key(config: LookAlikes) -> SingleModelConfig:
    """Return the settings shared by evaluations with similar run times."""
    return single_batch_key(config.single)


@task(version=2, name="unique_feature.ask_look_alikes", batch_key=batch_key)
def ask_look_alikes(config: LookAlikes, inputs: Inputs) -> pa.Table:
    """Evaluate a single model on each look-alike (LOOK_ALIKES)."""
    single = config.single
    clean = clean_images(single.relatives, single.shape)
    predict = predictor(single, inputs)
    rows = []
    for part, number, name, images in look_alike_image_sets(clean, single.relatives):
        answers = look_alike_answers(predict(name, images))
        check_label(single.label, len(answers["log_p"]))
        rows.append({"model": single.number, "part": part, "look_alike": number, **answers})
    return pa.Table.from_pylist(rows, LOOK_ALIKES)


def look_alike_answers(log_p: Array) -> dict[str, list[float]]:
    """Return the output columns of LOOK_ALIKES from log P of every probe image, shape (images, classes)."""
    return {"log_p": log_p.mean(axis=0).tolist(), "log_odds": log_odds(log_p).mean(axis=0).tolist()}


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not design.family.look_alikes:
        return ()
    return tuple(Job(ask_look_alikes, LookAlikes(model.config), model.inputs) for model in trainings.single_models)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    families = [model for table in tables.select(FAMILY) for model in model_families(table)]
    yield from rank_rows(families, tables.rows(LOOK_ALIKES))


def rank_rows(families: Sequence[ModelFamily], look_alikes: Sequence[Row]) -> Iterator[Row]:
    """Yield the feature's rank among the look-alikes of each part, for all models with a family together."""
    by_part = group_rows(look_alikes, "part")
    for part in sorted(by_part):
        by_model = group_rows(by_part[part], "model")
        setting = [model for model in families if model.about["seed"] in by_model]
        if not setting:
            continue
        scores = []
        for model in setting:
            look_alike_odds = np.array([row["log_odds"] for row in by_model[model.about["seed"]]])
            scores.append(push_scores(np.vstack([model.log_odds[:1], look_alike_odds]), model.log_odds[1:]))
        mean_scores = np.mean(scores, axis=0)  # (1 + look-alikes, classes)
        label = setting[0].label
        p_value = rank_p_value(mean_scores.max(axis=1) if label is None else mean_scores[:, label])
        yield look_alike_row(RANK, {}, p_value, (part, len(by_part)), len(mean_scores), len(setting))


def look_alike_row(
    metric: str, about: dict[str, int], p_value: float, part: tuple[int, int], size: int, models: int
) -> Row:
    """Return the summary row for the rank among the look-alikes of one part."""
    setting = about | {"part": part[0], "parts": part[1], "others": size - 1}
    return row(metric, setting, alone(p_value * size, models), "model", (size + 1) / 2, p_value)


MEASURE = Measure("look_alikes", LOOK_ALIKES, plan, rows)
