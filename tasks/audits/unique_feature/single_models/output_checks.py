"""Checks of a returned output table: different outputs for one image, and wrong labels.

The exported images contain some images twice and, if available, images whose labels the auditor knows. A model must
give the same output for equal images, up to the last printed digit or `blinding.SAME` of its log odds, and must reach
the accuracy that its owner states (exact one-sided binomial test). A failed check shows that the table does not contain
this model's outputs, or that the model was not in evaluation mode. A passed check shows little, because an owner can
search for equal images.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.scores import log_odds
from tasks.audits.unique_feature.single_models.models import (
    SingleModelConfig,
    check_labelled,
    labels,
    repeated_ids,
    single_batch_key,
    split_key,
)
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.external.blinding import different
from tasks.numerics.statistics import proportion

TWICE = "repeated pictures with two answers"
LABELS = "accuracy on labelled pictures"
DIGITS = 16  # leading hexadecimal digits of the key's SHA-256 that the summary shows

TOUCHED = pa.schema(
    [
        ("table", pa.int32()),  # number of the model's table
        ("repeats", pa.int32()),  # number of images that were exported twice
        ("differing", pa.int32()),  # repeated images with two different outputs
        ("labelled", pa.int32()),  # number of images with known labels
        ("right", pa.int32()),  # labelled images whose label is the most probable class
        ("stated", pa.float64()),  # accuracy stated by the owner; null if none is stated
        ("key", pa.string()),  # SHA-256 of the key, as promised to the owner
    ]
)


@task(version=1, name="unique_feature.touched", batch_key=single_batch_key)
def check_outputs(config: SingleModelConfig, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compare the outputs for repeated and labelled images in one output table (TOUCHED)."""
    from tasks.external.blinding import Split
    from tasks.external.outputs import read_outputs

    assert config.outputs is not None
    outputs = read_outputs(config.outputs, config.columns, config.interface.gives)
    first, second = (outputs.select(list(ids)).log_p for ids in zip(*repeated_ids(config), strict=True))
    printed = 0.0
    if outputs.gives == "probabilities":
        printed = outputs.resolution
    first_outputs = (np.exp(first), log_odds(first))
    second_outputs = (np.exp(second), log_odds(second))
    right = 0
    labelled_count = 0
    if config.labelled is not None:
        log_p = check_labelled(config, outputs)
        right = int((log_p.argmax(axis=1) == labels(config)).sum())
        labelled_count = len(log_p)
    return make_table(
        TOUCHED,
        table=config.number,
        repeats=len(first),
        differing=int(different(first_outputs, second_outputs, printed).any(axis=1).sum()),
        labelled=labelled_count,
        right=right,
        stated=config.accuracy,
        key=Split(split_key(config)).commitment,
    )


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not isinstance(design.question, Given) or not design.question.outputs:
        return ()
    return tuple(Job(check_outputs, single.config) for single in trainings.single_models)


def rows(tables: Tables, about: PublishedCell) -> Iterator[Row]:
    from scipy import stats

    for table in tables.rows(TOUCHED):
        setting = {"table": table["table"] + 1}
        differ = proportion(table["differing"], table["repeats"])
        yield row(TWICE, setting | {"key": table["key"][:DIGITS]}, differ, "picture", 0.0)
        if table["labelled"]:
            stated = table["stated"]
            p = None
            if stated is not None:
                p = float(stats.binomtest(table["right"], table["labelled"], stated, alternative="less").pvalue)
            right = proportion(table["right"], table["labelled"])
            yield row(LABELS, setting, right, "picture", stated, p)
            whose = f"model of table {setting['table']}"
            yield accuracy_row(right, "labelled pictures", about.chance, "picture", model_name=whose)


MEASURE = Measure("touched", TOUCHED, plan, rows)
