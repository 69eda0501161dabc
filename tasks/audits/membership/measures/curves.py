"""The attacks at every false-positive rate and with fewer references, and their errors per record.

Four tables, for the attacks and thresholds of `measures.attacks`:

- `roc`: true- and false-positive rate per attack and target, at nominal rates from 1 in 10,000 to 1.
- `references`: the same rates at a nominal rate of 1 %, and the area under the curve, with fewer references.
- `calls`: number of models that call each record a member at a nominal rate of 1 %, among those that were trained on it
  and those that were not.
- `histograms`: scores of each attack over all targets, for members and non-members. For the loss, the log-odds are
  used, which order records in the same way and do not pile up at 0.

A pooled false-positive rate holds on average over records. If it held for each record, two models without a record
would call it a member independently of each other. The summary therefore also contains the rate at which a second model
without the record calls it a member if a first one does:

    repeated false-positive rate = sum over records of c (c - 1) / sum over records of c (n - 1)

where c of the n models without the record call it a member. This is an unbiased estimate of the mean of the records'
rates, weighted by the rates themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.attacks import ATTACKS, LOSS
from tasks.audits.membership.config import About
from tasks.audits.membership.left_out import Mask, Targets, for_each
from tasks.audits.membership.measures.attacks import Matching, plan_matching
from tasks.audits.membership.target_scores import (
    SortedRows,
    SortedScores,
    areas_under_curves,
    attacks_on,
    balanced_targets,
    copy_log_odds,
    find_thresholds,
    score_attack,
    score_block,
    score_targets,
    share_above,
    sort_scores,
)
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table, table_of_rows
from tasks.contract.summaries import Row, alone, row
from tasks.numerics.exact_test import Array

NOMINAL = tuple(float(rate) for rate in np.logspace(-4, 0, 33))  # eight per decade
AT = 0.01  # nominal rate for `references` and `calls`
ROC = pa.schema(
    [
        ("attack", pa.string()),
        ("target", pa.int64()),
        ("nominal", pa.float64()),  # only rates for which the other targets have enough scores
        ("tpr", pa.float64()),
        ("fpr", pa.float64()),
    ]
)
REFERENCES = pa.schema(
    [
        ("attack", pa.string()),
        ("references", pa.int64()),  # number of reference models, half of them trained on the record
        ("target", pa.int64()),
        ("auc", pa.float64()),
        ("tpr", pa.float64()),
        ("fpr", pa.float64()),
    ]
)
CALLS = pa.schema(
    [
        ("attack", pa.string()),
        ("row", pa.int64()),  # row of the training split
        ("inside", pa.int64()),  # models trained on it
        ("called_inside", pa.int64()),  # those among them that call it a member
        ("outside", pa.int64()),
        ("called_outside", pa.int64()),
    ]
)
HISTOGRAMS = pa.schema(
    [
        ("attack", pa.string()),
        ("member", pa.bool_()),
        ("low", pa.float64()),  # bin edge; the outer bins also count more extreme scores
        ("high", pa.float64()),
        ("count", pa.int64()),  # pairs of target and record
    ]
)
BINS = 40
BEYOND = 0.005  # share of scores beyond the bins at each end
REPEATED = "repeated false-positive rate"


@task(version=2, name="membership.roc", gathers=True)
def roc(config: Matching, inputs: Inputs) -> pa.Table:
    """Measure the rates of each attack on each target at NOMINAL (ROC). Empty without `balanced_targets`."""
    targets = balanced_targets(inputs, config.seed)
    if targets is None:
        return ROC.empty_table()
    outside = (~targets.member).sum(axis=1)
    null = int(outside.sum()) - int(outside.max())
    nominal = [rate for rate in NOMINAL if rate * null >= 1]
    lines = []
    for attack, scores in score_targets(targets):
        sides = sort_scores(scores, targets.member)
        for rate, thresholds in zip(nominal, find_thresholds(sides.outside, nominal), strict=True):
            for target, (hits, alarms) in enumerate(rates(sides, thresholds)):
                lines.append((attack, target, rate, hits, alarms))
    return table_of_rows(ROC, lines)


@task(version=2, name="membership.references", gathers=True)
def references(config: Matching, inputs: Inputs) -> pa.Table:
    """Measure each attack's rates on each target by number of references (REFERENCES). Empty as in `roc`."""
    all_targets = balanced_targets(inputs, config.seed)
    if all_targets is None:
        return REFERENCES.empty_table()
    lines: list[tuple[str, int, int, float, float, float]] = []
    scores = np.empty(all_targets.member.shape)
    of_loss: list[tuple[float, float, float]] = []  # does not depend on the references
    for max_pairs in numbers_of_pairs(all_targets.references):
        targets = all_targets.with_pairs(max_pairs)
        for attack in attacks_on(targets):
            if attack == LOSS and of_loss:
                results = of_loss
            else:
                results = _areas_and_rates(score_attack(targets, attack, scores), targets.member)
            if attack == LOSS:
                of_loss = results
            lines += ((attack, 2 * max_pairs, target, *result) for target, result in enumerate(results))
    return table_of_rows(REFERENCES, lines)


def _areas_and_rates(scores: Array, member: Mask) -> list[tuple[float, float, float]]:
    """Return the area under the curve and both rates at AT of each target. Sorts the scores in place."""
    sides = sort_scores(scores, member)
    (thresholds,) = find_thresholds(sides.outside, [AT])
    areas = areas_under_curves(sides)
    return [(area, *of_target) for area, of_target in zip(areas, rates(sides, thresholds), strict=True)]


@task(version=2, name="membership.calls", gathers=True)
def calls(config: Matching, inputs: Inputs) -> pa.Table:
    """Count the models that call each record a member, for each attack (CALLS). Empty as in `roc`."""
    targets = balanced_targets(inputs, config.seed)
    if targets is None:
        return CALLS.empty_table()
    rows = inputs[0]["row"].to_numpy()
    tables = []
    for attack in attacks_on(targets):
        inside, outside = _count_calls(targets, attack)
        table = make_table(
            CALLS,
            attack=attack,
            row=rows if targets.records is None else rows[targets.records],
            inside=len(targets.member) // 2,
            called_inside=inside,
            outside=len(targets.member) // 2,
            called_outside=outside,
        )
        tables.append(table)
    return pa.concat_tables(tables)


def _count_calls(targets: Targets, attack: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the models that call each record a member: those trained on it, and the others, (records,) each.

    The scores are computed twice, because the thresholds need them in another order.
    """
    sides = sort_scores(score_attack(targets, attack), targets.member)
    thresholds = find_thresholds(sides.outside, [AT])[0][:, None]
    del sides

    def count(block: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        is_called = score_block(targets, attack, block) > thresholds
        member = targets.member[:, block]
        return (is_called & member).sum(axis=0), (is_called & ~member).sum(axis=0)

    inside, outside = zip(*for_each(count, targets.blocks()), strict=True)
    return np.concatenate(inside), np.concatenate(outside)


@task(version=2, name="membership.histograms", gathers=True)
def histograms(config: Matching, inputs: Inputs) -> pa.Table:
    """Bin the scores of each attack by membership (HISTOGRAMS). Empty as in `roc`."""
    targets = balanced_targets(inputs, config.seed)
    if targets is None:
        return HISTOGRAMS.empty_table()
    tables = []
    for attack, scores in score_targets(targets):
        if attack == LOSS:
            copy_log_odds(targets, scores)
        sides = sort_scores(scores, targets.member)
        all_scores = SortedRows([*sides.inside, *sides.outside])
        low, high = quantile(all_scores, BEYOND), quantile(all_scores, 1 - BEYOND)
        edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
        for inside, ascending in ((True, sides.inside), (False, sides.outside)):
            below = np.sum([np.searchsorted(row, edges[1:-1], side="left") for row in ascending], axis=0)
            total = sum(len(row) for row in ascending)
            counts = np.diff([0, *below, total])  # the outer bins contain all more extreme scores
            limits = {"low": edges[:-1], "high": edges[1:]}
            tables.append(make_table(HISTOGRAMS, attack=attack, member=inside, **limits, count=counts))
    return pa.concat_tables(tables)


def quantile(scores: SortedRows, share: float) -> float:
    """Return a quantile of all scores, interpolated like NumPy's."""
    rank = share * (scores.count - 1)
    lower = int(rank)
    neighbours = scores.at_ranks(lower, min(lower + 1, scores.count - 1))
    return float(np.quantile(neighbours, rank - lower))


def rates(scores: SortedScores, thresholds: Array) -> Iterator[tuple[float, float]]:
    """Yield the true- and false-positive rate of each target."""
    hits = share_above(scores.inside, thresholds)
    alarms = share_above(scores.outside, thresholds)
    yield from zip(hits.tolist(), alarms.tolist(), strict=True)


def numbers_of_pairs(largest: int) -> Sequence[int]:
    """Return 1, 2, 4, ... below `largest`, and `largest` itself."""
    return [*(2**power for power in range(largest.bit_length()) if 2**power < largest), largest]


def repeated_rate(alarms: Array, models: Array) -> float | None:
    """Compute the repeated false-positive rate from counts (records,). None without false positives."""
    chances = float((alarms * (models - 1)).sum())
    if chances:
        return float((alarms * (alarms - 1)).sum()) / chances
    return None


def _call_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield the repeated false-positive rate of each attack, with the pooled rate as its null."""
    table = tables.one(CALLS)
    if table is None or not table.num_rows:
        return
    for attack in ATTACKS:
        lines = table.filter(np.asarray(table["attack"]) == attack)
        if not lines.num_rows:
            continue
        alarms = lines["called_outside"].to_numpy().astype(np.float64)
        models = lines["outside"].to_numpy().astype(np.float64)
        rate = repeated_rate(alarms, models)
        pooled = float(alarms.sum() / models.sum())
        setting = {"attack": attack, "nominal": f"{100 * AT:g} %"}
        yield row(REPEATED, setting, alone(rate, len(alarms)), "record", pooled)


MEASURES = (
    Measure("roc", ROC, partial(plan_matching, roc)),
    Measure("references", REFERENCES, partial(plan_matching, references)),
    Measure("calls", CALLS, partial(plan_matching, calls), _call_rows),
    Measure("histograms", HISTOGRAMS, partial(plan_matching, histograms)),
)
