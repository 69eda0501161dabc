"""Bets on the signs of the records' differences, with their mean over records after each pair of models.

A difference is positive if it is above `smallest` nats. If training on a record raises its score by at most `smallest`,
its coin makes the difference positive with a probability of at most 1/2 (`tasks.audits.membership.coin_pairs`), and
differences are independent over pairs. `tasks.numerics.sign_bets` defines the evidence of a record. Equal scores count
as not positive, so that they cannot accuse. The run ends at the first pair at which the mean evidence over records
reaches 1 / level; records are found from their evidence at the last pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.coin_pairs import pair_jobs
from tasks.audits.membership.config import About, Membership, ModelPairs
from tasks.audits.membership.measures.records import FOUND, MEAN_EFFECT
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.contract.ties import tied_row
from tasks.numerics import betting, statistics
from tasks.numerics.sign_bets import adjust_evidence, find_by_evidence, running_evidence, sign_evidence

LARGEST = "largest evidence over pairs"
LEVEL = "level"  # key of the level in a setting
EVIDENCE = pa.schema(
    [
        ("pair", pa.int32()),  # number in plan order, from 1
        ("positive", pa.float64()),  # share of records with a positive difference
        ("evidence", pa.float64()),  # mean over records, after this pair
        ("level", pa.float64()),
        ("decided", pa.bool_()),  # whether the evidence reaches 1 / level
    ]
)
PAIR_RECORDS = pa.schema(
    [
        ("row", pa.int64()),  # row of the training split
        ("pairs", pa.int64()),
        ("positive", pa.int64()),  # pairs with a positive difference
        ("effect", pa.float64()),  # mean difference, in nats
        ("evidence", pa.float64()),
        ("found", pa.bool_()),
        ("tied", pa.float64()),  # share of pairs with equal scores
        ("accuracy", pa.float64()),  # accuracy of the models trained on it; null if unknown
    ]
)


@dataclass(frozen=True)
class SignTest:
    """Settings of the bets."""

    level: float
    smallest: float = SMALLEST
    """Largest negligible effect, in nats."""


def plan_test(
    measure: Callable[[SignTest, Inputs], pa.Table],
    config: Membership,
    trainings: tuple[Job, ...],  # noqa: ARG001
) -> Job | tuple[()]:
    """Plan a measure of pairs. Plans nothing for other questions."""
    question = config.question
    if not isinstance(question, ModelPairs):
        return ()
    return Job(
        measure, SignTest(question.level, config.smallest_effect), pair_jobs(question, config.training, config.seed)
    )


@task(version=1, name="membership.evidence")
def evidence(config: SignTest, inputs: Inputs) -> pa.Table:
    """Compute the mean evidence over records after every pair (EVIDENCE)."""
    is_positive = _stack(inputs, "difference") > config.smallest
    values = running_evidence(is_positive)
    return make_table(
        EVIDENCE,
        pair=range(1, len(values) + 1),
        positive=is_positive.mean(axis=1),
        evidence=values,
        level=config.level,
        decided=[betting.is_decided(value, config.level) for value in values],
    )


@task(version=1, name="membership.pair_records")
def pair_records(config: SignTest, inputs: Inputs) -> pa.Table:
    """Find records by their evidence after the last pair (PAIR_RECORDS)."""
    difference = _stack(inputs, "difference")
    positive = (difference > config.smallest).sum(axis=0)
    values = sign_evidence(positive, len(inputs))
    accuracy = None
    if not any(table["correct"].null_count for table in inputs):
        accuracy = _stack(inputs, "correct").mean(axis=0)
    return make_table(
        PAIR_RECORDS,
        row=inputs[0]["row"],
        pairs=len(inputs),
        positive=positive,
        effect=difference.mean(axis=0),
        evidence=values,
        found=find_by_evidence(values, config.level),
        tied=(difference == 0).mean(axis=0),
        accuracy=accuracy,
    )


def _stack(pairs: Inputs, column: str) -> NDArray[np.float64]:
    """Return a column of all pairs, (pairs, records)."""
    return np.stack([table[column].to_numpy() for table in pairs]).astype(np.float64)


def evidence_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the largest evidence over pairs. Its p-value, the inverse, is valid for any number of pairs."""
    pairs = tables.rows(EVIDENCE)
    if pairs:
        largest = max(pair["evidence"] for pair in pairs)
        setting = {LEVEL: pairs[0]["level"], "nats": about.smallest_effect}
        yield row(LARGEST, setting, alone(largest, len(pairs)), "pair of trainings", 1.0, min(1.0, 1 / largest))


def record_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the number of records found, ties, accuracy and the mean effect."""
    table = tables.one(PAIR_RECORDS)
    if table is None:
        return
    found = int(np.count_nonzero(table["found"].to_numpy(zero_copy_only=False)))
    smallest_q = adjust_evidence(table["evidence"].to_numpy())
    setting = {LEVEL: about.level, "nats": about.smallest_effect}
    yield row(FOUND, setting, alone(float(found), table.num_rows), "record", 0.0, smallest_q)
    yield tied_row(float(table["tied"].to_numpy().mean()), table.num_rows, "record")
    if not table["accuracy"].null_count:
        right = statistics.within_shares(statistics.mean(table["accuracy"].to_numpy()))
        yield accuracy_row(right, "records", about.chance, "record")
    yield row(MEAN_EFFECT, {}, alone(float(table["effect"].to_numpy().mean()), table.num_rows), "record", 0.0)


MEASURES = (
    Measure("evidence", EVIDENCE, partial(plan_test, evidence), evidence_rows),
    Measure("pair_records", PAIR_RECORDS, partial(plan_test, pair_records), record_rows),
)
