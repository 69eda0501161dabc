"""Which records have an influence on what models say of them, and how large it is?

    effect(i) = mean log-odds of i by models trained on i - mean by those that were not         in nats
    mem(i)    = P[correct on i | trained on i] - P[correct on i | not trained on i]

p is that of the exact test of `exact_test`, one-sided; q is p adjusted for the number of records (Benjamini & Hochberg
1995). A record is found where q is at most `level`. mem is Feldman & Zhang 2020, eq. 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.exact_test import Array, Mask, randomisation_p_values
from tasks.audits.membership.trainings import stack_answers
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, alone, row
from tasks.numerics import seeds, statistics

RECORDS = pa.schema(
    [
        ("row", pa.int64()),  # of the training split
        ("members", pa.int64()),  # models trained on it
        ("effect", pa.float64()),  # in nats; null, like what follows, where all models, or none, were trained on it
        ("effect_error", pa.float64()),  # its standard error
        ("mem", pa.float64()),
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
    ]
)
FOUND, MEAN_EFFECT = "records found", "mean effect"


@dataclass(frozen=True)
class ExactTest:
    """How the records are tested."""

    level: float
    draws: int
    seed: int


def plan(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not trainings:  # of canaries, or of a given model alone
        return ()
    return Job(records, ExactTest(config.level, config.draws, seeds.derive(config.seed, "exact test")), trainings)


@task(version=1, name="membership.records", gathers=True)
def records(config: ExactTest, inputs: Inputs) -> pa.Table:
    """Each record's influence with its p-value (RECORDS)."""
    answers = stack_answers(inputs)
    p_values = randomisation_p_values(answers.phi, answers.member, config.draws, config.seed)
    q_values = statistics.false_discovery_control(p_values)
    effect, error = difference_of_sides(answers.phi, answers.member)
    mem, _ = difference_of_sides(answers.correct.astype(np.float64), answers.member)
    unknown = np.isnan(p_values)
    numbers = [pa.array(each, from_pandas=True) for each in (effect, error, mem, p_values, q_values)]
    found = pa.array(q_values <= config.level, mask=unknown)
    return pa.table([answers.rows, answers.member.sum(axis=0), *numbers, found], schema=RECORDS)


def difference_of_sides(values: Array, member: Mask) -> tuple[Array, Array]:
    """The mean over members less that over others, with Welch's standard error, (records,) each.

    NaN where one side is empty; the error also where one has a single model.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        means, variances = [], []
        for side in (member, ~member):
            count = side.sum(axis=0)
            mean = np.where(side, values, 0.0).sum(axis=0) / count
            deviations = np.where(side, values - mean, 0.0)
            means.append(mean)
            variances.append((deviations**2).sum(axis=0) / (count - 1) / count)
    return means[0] - means[1], np.sqrt(variances[0] + variances[1])


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """How many records are found, with the p-value that any has an influence; then the mean sizes over records."""
    table = tables.one(RECORDS)
    if table is None:
        return
    tested = table.filter(table["p_value"].is_valid())
    if not tested.num_rows:
        return
    found = int(np.count_nonzero(tested["found"].to_numpy(zero_copy_only=False)))
    any_p = float(tested["q_value"].to_numpy().min())
    yield row(FOUND, {"level": about.level}, alone(float(found), tested.num_rows), "record", 0.0, any_p)
    yield row(MEAN_EFFECT, {}, alone(float(tested["effect"].to_numpy().mean()), tested.num_rows), "record", 0.0)
    yield row("mean mem", {}, alone(float(tested["mem"].to_numpy().mean()), tested.num_rows), "record", 0.0)


MEASURE = Measure("records", RECORDS, plan, rows)
