"""How do attacks do at every false-positive rate, with fewer references, and on which records do they err?

Four tables of the attacks of `measures.attacks`, whose thresholds the other targets set:

- `roc`: of each attack and target the true- and the false-positive rate at nominal rates from 1 in 10,000 to 1;
- `references`: the same of fewer references, at a nominal rate of 1 %, with the area under the curve;
- `calls`: of each attack and record how many models call it a member at a nominal rate of 1 %, of those that were
  trained on it and of those that were not;
- `histograms`: the scores of each attack on all targets by whether the record was trained on; of the loss the log-odds,
  which order records alike and do not crowd at 0.

A pooled false-positive rate holds on average over records. If it held for each of them, two models without a record
would call it a member independently. So the summary has, beside the pooled rate, that at which a second model without
the record calls a record a member that one such model called so:

    repeated false-positive rate = sum over records of c (c - 1) / sum over records of c (n - 1)

where c of the n models without the record do. It is the mean of the records' rates, weighted by these, without bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tasks.audits.membership.attacks import ATTACKS, pair_models
from tasks.audits.membership.config import About
from tasks.audits.membership.measures.attacks import (
    Matching,
    balanced_records,
    exceed_thresholds,
    plan_matching,
    score_targets,
)
from tasks.audits.membership.trainings import stack_answers
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table, table_of_rows
from tasks.contract.summaries import Row, alone, row
from tasks.numerics.exact_test import Array, Mask
from tasks.numerics.ranks import area_under_curve

NOMINAL = tuple(float(rate) for rate in np.logspace(-4, 0, 33))  # eight a decade
AT = 0.01  # the nominal rate of the references and calls
ROC = pa.schema(
    [
        ("attack", pa.string()),
        ("target", pa.int64()),
        ("nominal", pa.float64()),  # only rates at which the others' scores can set a threshold
        ("tpr", pa.float64()),
        ("fpr", pa.float64()),
    ]
)
REFERENCES = pa.schema(
    [
        ("attack", pa.string()),
        ("references", pa.int64()),  # models, half of them trained on the record
        ("target", pa.int64()),
        ("auc", pa.float64()),
        ("tpr", pa.float64()),
        ("fpr", pa.float64()),
    ]
)
CALLS = pa.schema(
    [
        ("attack", pa.string()),
        ("row", pa.int64()),  # of the training split
        ("inside", pa.int64()),  # models that were trained on it
        ("called_inside", pa.int64()),  # of these, models by which it is called a member
        ("outside", pa.int64()),
        ("called_outside", pa.int64()),
    ]
)
HISTOGRAMS = pa.schema(
    [
        ("attack", pa.string()),
        ("member", pa.bool_()),
        ("low", pa.float64()),  # of the bin; the first and the last hold what lies beyond them, too
        ("high", pa.float64()),
        ("count", pa.int64()),  # pairs of a target and a record
    ]
)
BINS, BEYOND = 40, 0.005  # bins, and the share of all scores beyond them at either end
REPEATED = "repeated false-positive rate"


@task(version=1, name="membership.roc", gathers=True)
def roc(config: Matching, inputs: Inputs) -> pa.Table:
    """The rates of each attack on each target at NOMINAL (ROC); no row where too few records are balanced."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None:
        return ROC.empty_table()
    member = answers.member
    null = int((~member).sum()) - int((~member).sum(axis=1).max())
    nominal = [rate for rate in NOMINAL if rate * null >= 1]
    lines = []
    for attack, scores in score_targets(answers, pair_models(member, config.seed)).items():
        for rate, called in zip(nominal, exceed_thresholds(scores, member, nominal), strict=True):
            lines += [
                {"attack": attack, "target": target, "nominal": rate, "tpr": hits, "fpr": alarms}
                for target, (hits, alarms) in enumerate(rates(called, member))
            ]
    return pa.Table.from_pylist(lines, ROC)


@task(version=1, name="membership.references", gathers=True)
def references(config: Matching, inputs: Inputs) -> pa.Table:
    """The rates of each attack on each target by the number of references (REFERENCES); no row as of `roc`."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None:
        return REFERENCES.empty_table()
    member = answers.member
    pairs, lines = pair_models(member, config.seed), []
    for most in numbers_of_pairs(len(member) // 2 - 1):
        for attack, scores in score_targets(answers, pairs, most).items():
            (called,) = exceed_thresholds(scores, member, [AT])
            for target, (hits, alarms) in enumerate(rates(called, member)):
                own, mine = scores[target], member[target]
                area = area_under_curve(own[mine], own[~mine])
                lines.append((attack, 2 * most, target, area, hits, alarms))
    return table_of_rows(REFERENCES, lines)


@task(version=1, name="membership.calls", gathers=True)
def calls(config: Matching, inputs: Inputs) -> pa.Table:
    """How many models call each record a member, by each attack (CALLS); no row as of `roc`."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None:
        return CALLS.empty_table()
    member, tables = answers.member, []
    for attack, scores in score_targets(answers, pair_models(member, config.seed)).items():
        (called,) = exceed_thresholds(scores, member, [AT])
        table = make_table(
            CALLS,
            attack=attack,
            row=answers.rows,
            inside=member.sum(axis=0),
            called_inside=(called & member).sum(axis=0),
            outside=(~member).sum(axis=0),
            called_outside=(called & ~member).sum(axis=0),
        )
        tables.append(table)
    return pa.concat_tables(tables)


@task(version=1, name="membership.histograms", gathers=True)
def histograms(config: Matching, inputs: Inputs) -> pa.Table:
    """The scores of each attack by membership (HISTOGRAMS); no row as of `roc`."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None:
        return HISTOGRAMS.empty_table()
    member, tables = answers.member, []
    scored = score_targets(answers, pair_models(member, config.seed)) | {"loss": answers.phi}
    for attack, scores in scored.items():
        low, high = np.quantile(scores, (BEYOND, 1 - BEYOND))
        edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
        for inside in (True, False):
            counts = np.histogram(np.clip(scores[member == inside], edges[0], edges[-1]), edges)[0]
            limits = {"low": edges[:-1], "high": edges[1:]}
            tables.append(make_table(HISTOGRAMS, attack=attack, member=inside, **limits, count=counts))
    return pa.concat_tables(tables)


def rates(called: Mask, member: Mask) -> Iterator[tuple[float, float]]:
    """The true- and the false-positive rate of each target; masks are (models, records)."""
    for mine, its in zip(member, called, strict=True):
        yield float(its[mine].mean()), float(its[~mine].mean())


def numbers_of_pairs(most: int) -> Sequence[int]:
    """1, 2, 4, ... below `most`, and `most` itself."""
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def repeated_rate(alarms: Array, models: Array) -> float | None:
    """The repeated false-positive rate of records, (records,) each; None where no model calls one wrongly."""
    chances = float((alarms * (models - 1)).sum())
    return float((alarms * (alarms - 1)).sum()) / chances if chances else None


def _call_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - attacks know no level
    """The repeated false-positive rate of each attack, whose null is the pooled one."""
    table = tables.one(CALLS)
    if table is None or not table.num_rows:
        return
    for attack in ATTACKS:
        lines = table.filter(np.asarray(table["attack"]) == attack)
        alarms, models = (lines[name].to_numpy().astype(np.float64) for name in ("called_outside", "outside"))
        rate, pooled = repeated_rate(alarms, models), float(alarms.sum() / models.sum())
        setting = {"attack": attack, "nominal": f"{100 * AT:g} %"}
        yield row(REPEATED, setting, alone(rate, len(alarms)), "record", pooled)


MEASURES = (
    Measure("roc", ROC, partial(plan_matching, roc)),
    Measure("references", REFERENCES, partial(plan_matching, references)),
    Measure("calls", CALLS, partial(plan_matching, calls), _call_rows),
    Measure("histograms", HISTOGRAMS, partial(plan_matching, histograms)),
)
