"""Which records affect how models score them, and by how much?

    effect(i) = mean log-odds of i over models trained on i - mean over the others         in nats
    mem(i)    = P[correct on i | trained on i] - P[correct on i | not trained on i]
    infl(i, j) = P[correct on j | trained on i] - P[correct on j | not trained on i]

p is the one-sided p-value of `exact_test`; q is p adjusted for the number of records (Benjamini & Hochberg 1995). A
record is found if q is at most `level`. Because the test detects effects of any size, it is repeated for the found
records with their effect reduced by `smallest` nats. A record is memorised if it is found again. Records with small
p-values get more than `draws` random halves, so that a single record can be found among all. mem and infl are Feldman &
Zhang 2020, eq. 1 and section 2; mem(i) is infl(i, i).

Pairs are tested by Fisher's exact test, one-sided. It is exact for the same reason: i's half of the models was drawn
independently of everything else. Two records with the same half, or with opposite halves, are not a pair, because their
effects cannot be separated. A record with the half opposite to that of i leaves the same trace with the opposite sign,
so infl(i, j) > 0 may also mean that this record harms j.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.measures.attacks import balanced_records
from tasks.audits.membership.trainings import Answers, stack_answers
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Estimate, Row, alone, interval_fields, row
from tasks.contract.ties import tied_row
from tasks.numerics import seeds, statistics
from tasks.numerics.exact_test import Array, Mask, randomisation_p_values, reduced_p_values
from tasks.numerics.ranks import false_discovery_control, item_ties

RECORDS = pa.schema(
    [
        ("row", pa.int64()),  # row of the training split
        ("members", pa.int64()),  # models trained on it
        ("effect", pa.float64()),  # in nats; null, like the next columns, if all models or none were trained on it
        ("effect_error", pa.float64()),  # standard error of the effect
        ("mem", pa.float64()),
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("memorised", pa.bool_()),  # found again with the effect reduced by `smallest`
        ("memorised_q", pa.float64()),  # q-value of `memorised`; 1 unless p_value is at most the level
        ("tied", pa.float64()),  # share of model pairs with equal scores
        ("accuracy", pa.float64()),  # accuracy of the models trained on it
    ]
)
INFLUENCES = pa.schema(
    [
        ("row", pa.int64()),  # row of the training split: the record in or out of the training data
        ("on", pa.int64()),  # the record that is classified; equal to `row` for mem
        *interval_fields("infl"),  # of the single pair; the largest of many pairs are overestimates
        ("p_value", pa.float64()),  # null hypothesis: infl is at most 0
        ("q_value", pa.float64()),  # adjusted for the number of all pairs, or of records for mem
    ]
)
ROWS_AT_ONCE = 256  # first records of pairs to hold in memory
RECORDS_AT_ONCE = 2**14  # records whose sides are compared at a time
FOUND = "records found"
MEMORISED = "records memorised"
MEAN_EFFECT = "mean effect"


@dataclass(frozen=True)
class ExactTest:
    """Settings of the record test."""

    level: float
    draws: int
    seed: int
    smallest: float = SMALLEST
    """Largest negligible effect, in nats."""


def plan(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    question = config.question
    if not isinstance(question, Halves | GivenModel) or not trainings:
        return ()
    seed = seeds.derive(config.seed, "exact test")
    test = ExactTest(question.level, question.draws, seed, config.smallest_effect)
    return Job(records, test, trainings)


@task(version=3, name="membership.records", gathers=True)
def records(config: ExactTest, inputs: Inputs) -> pa.Table:
    """Test the effect of each record (RECORDS)."""
    answers = stack_answers(inputs)
    p_values = randomisation_p_values(answers.phi, answers.member, config.draws, config.seed, config.level)
    q_values = false_discovery_control(p_values)
    test = (config.smallest, config.draws, config.seed, config.level)
    memorised_q = false_discovery_control(reduced_p_values(answers.phi, answers.member, p_values, *test))
    effect, error, mem, accuracy = _describe_sides(answers)
    unknown = np.isnan(p_values)
    return make_table(
        RECORDS,
        row=answers.rows,
        members=answers.member.sum(axis=0),
        effect=nan_as_null(effect),
        effect_error=nan_as_null(error),
        mem=nan_as_null(mem),
        p_value=nan_as_null(p_values),
        q_value=nan_as_null(q_values),
        found=pa.array(q_values <= config.level, mask=unknown),
        memorised=pa.array(memorised_q <= config.level, mask=unknown),
        memorised_q=nan_as_null(memorised_q),
        tied=nan_as_null(item_ties(answers.phi)),
        accuracy=nan_as_null(accuracy),
    )


def _describe_sides(answers: Answers) -> Array:
    """Return effect, its error, mem and the accuracy of the models trained on each record, (4, records)."""
    columns = np.empty((4, len(answers.rows)))
    for start in range(0, len(answers.rows), RECORDS_AT_ONCE):
        block = slice(start, start + RECORDS_AT_ONCE)
        part = answers.of_records(block)
        effect, error = difference_of_sides(part.phi, part.member)
        mem, _ = difference_of_sides(part.right, part.member)
        columns[:, block] = effect, error, mem, _member_accuracy(part)
    return columns


def _member_accuracy(answers: Answers) -> Array:
    """Return the accuracy on each record of the models trained on it, (records,)."""
    members = answers.member.sum(axis=0)
    with np.errstate(invalid="ignore"):
        accuracy: Array = np.where(answers.member, answers.right, 0.0).sum(axis=0) / members
    return accuracy


def difference_of_sides(values: Array, member: Mask) -> tuple[Array, Array]:
    """Return the mean over members minus that over non-members, with Welch's standard error, (records,) each.

    NaN if one side is empty. The error is also NaN if one side has a single model.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        means = []
        variances = []
        for side in (member, ~member):
            count = side.sum(axis=0)
            mean = np.where(side, values, 0.0).sum(axis=0) / count
            deviations = np.where(side, values - mean, 0.0)
            means.append(mean)
            variances.append((deviations**2).sum(axis=0) / (count - 1) / count)
    return means[0] - means[1], np.sqrt(variances[0] + variances[1])


@dataclass(frozen=True)
class Strongest:
    """Number of record pairs to list."""

    pairs: int


def _plan_influences(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    match config.question:
        case Halves(influence_pairs=pairs) if pairs:
            return Job(influences, Strongest(pairs), trainings)
        case _:
            return ()


@task(version=1, name="membership.influences", gathers=True)
def influences(config: Strongest, inputs: Inputs) -> pa.Table:
    """Measure mem of each record, and infl of the pairs with the smallest p-values (INFLUENCES)."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None or answers.correct is None:
        return INFLUENCES.empty_table()
    models = len(answers.member)
    indices = np.arange(len(answers.rows))
    right = answers.correct.sum(axis=0)
    inside = (answers.member & answers.correct).sum(axis=0)
    p_values = _fisher_p_values(models)[right, inside]
    mem_pairs = Pairs(indices, indices, inside, p_values, false_discovery_control(p_values))
    tables = []
    for pairs in (mem_pairs, strongest_pairs(answers.member, answers.correct, config.pairs)):
        counts = zip(pairs.inside.tolist(), right[pairs.second].tolist(), strict=True)
        sizes = [influence_of_counts(inside, right, models) for inside, right in counts]
        table = make_table(
            INFLUENCES,
            row=answers.rows[pairs.first],
            on=answers.rows[pairs.second],
            infl=[size.value for size in sizes],
            infl_low=[size.low for size in sizes],
            infl_high=[size.high for size in sizes],
            p_value=pairs.p_values,
            q_value=pairs.q_values,
        )
        tables.append(table)
    return pa.concat_tables(tables)


@cache
def influence_of_counts(inside: int, right: int, models: int) -> Estimate:
    """Return infl with an interval if `right` models are correct, `inside` of which trained on the record."""
    return statistics.proportion_difference(inside, models // 2, right - inside, models // 2)


def _fisher_p_values(models: int) -> Array:
    """Tabulate the one-sided p-values of Fisher's exact test, (models + 1, models / 2 + 1).

    Entry [right, inside] is the probability that a random half contains at least `inside` of `right` correct models.
    Fisher 1935.
    """
    from scipy import stats

    right = np.arange(models + 1)[:, None]
    inside = np.arange(models // 2 + 1)
    p_values: Array = np.clip(stats.hypergeom.sf(inside - 1, models, right, models // 2), 0.0, 1.0)
    return p_values


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of records, with how many models trained on the first are correct on the second.

    `q_values` are adjusted for the number of all pairs, not only of these.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    inside: NDArray[np.int64]
    p_values: Array
    q_values: Array


def strongest_pairs(member: Mask, correct: Mask, max_pairs: int) -> Pairs:
    """Return at most `max_pairs` pairs with the smallest p-values, in their order. Masks are (models, records)."""
    models, records = member.shape
    p_values = _fisher_p_values(models).ravel()
    right = correct.sum(axis=0)
    of_member = member.astype(np.float32)
    of_correct = correct.astype(np.float32)
    cells = np.zeros(len(p_values), dtype=np.int64)  # number of pairs per table cell
    smallest_pairs = np.empty((4, 0), dtype=np.int64)  # first, second, inside, cell
    for start in range(0, records, ROWS_AT_ONCE):
        first_members = of_member[:, start : start + ROWS_AT_ONCE].T
        common = first_members @ of_member
        first, second = np.nonzero((common > 0) & (common < models // 2))
        inside = (first_members @ of_correct)[first, second].astype(np.int64)
        cell = right[second] * (models // 2 + 1) + inside
        cells += np.bincount(cell, minlength=len(cells))
        smallest_pairs = np.concatenate([smallest_pairs, [first + start, second, inside, cell]], axis=1)
        smallest_pairs = smallest_pairs[:, smallest(p_values[smallest_pairs[3]], max_pairs)]
    q_values = adjust_cells(p_values, cells)
    smallest_pairs = smallest_pairs[:, np.argsort(p_values[smallest_pairs[3]], kind="stable")]
    return Pairs(
        smallest_pairs[0],
        smallest_pairs[1],
        smallest_pairs[2],
        p_values[smallest_pairs[3]],
        q_values[smallest_pairs[3]],
    )


def smallest(values: Array, count: int) -> NDArray[np.int64]:
    """Return the indices of the `count` smallest values, in the given order. Ties go to the first."""
    if len(values) <= count:
        return np.arange(len(values))
    last = np.partition(values, count - 1)[count - 1]
    less = np.flatnonzero(values < last)
    equal = np.flatnonzero(values == last)
    return np.sort(np.concatenate([less, equal[: count - len(less)]]))


def adjust_cells(p_values: Array, cells: NDArray[np.int64]) -> Array:
    """Apply `false_discovery_control` to p-values that each occur `cells` times. NaN if they never occur."""
    occupied = np.flatnonzero(cells)
    order = occupied[np.argsort(p_values[occupied], kind="stable")]
    stepped = p_values[order] * cells.sum() / np.cumsum(cells[order])
    adjusted = np.full(len(p_values), np.nan)
    adjusted[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1.0)
    return adjusted


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the numbers of records found and memorised, ties, accuracy, and mean effects."""
    table = tables.one(RECORDS)
    if table is None:
        return
    tested = table.filter(table["p_value"].is_valid())
    if not tested.num_rows:
        return
    count = int(np.count_nonzero(tested["found"].to_numpy(zero_copy_only=False)))
    any_p = float(tested["q_value"].to_numpy().min())
    yield row(FOUND, {"level": about.level}, alone(float(count), tested.num_rows), "record", 0.0, any_p)
    memorised = int(np.count_nonzero(tested["memorised"].to_numpy(zero_copy_only=False)))
    smallest_q = float(tested["memorised_q"].to_numpy().min())
    setting = {"level": about.level, "nats": about.smallest_effect}
    yield row(MEMORISED, setting, alone(float(memorised), tested.num_rows), "record", 0.0, smallest_q)
    yield tied_row(float(tested["tied"].to_numpy().mean()), tested.num_rows, "record")
    if not tested["accuracy"].null_count:
        right = statistics.within_shares(statistics.mean(tested["accuracy"].to_numpy()))
        yield accuracy_row(right, "records", about.chance, "record")
    yield row(MEAN_EFFECT, {}, alone(float(tested["effect"].to_numpy().mean()), tested.num_rows), "record", 0.0)
    if not tested["mem"].null_count:
        yield row("mean mem", {}, alone(float(tested["mem"].to_numpy().mean()), tested.num_rows), "record", 0.0)


MEASURES = (
    Measure("records", RECORDS, plan, rows),
    Measure("influences", INFLUENCES, _plan_influences),
)
