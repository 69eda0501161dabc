"""How well do published attacks distinguish members from non-members, and at which false-positive rate?

Each model is a target in turn (`tasks.audits.membership.attacks`). For each attack and target, the table contains the
area under the curve, the share of the target's training records that score higher with the target than with its
partner, and, at nominal false-positive rates, the true- and the false-positive rate with Clopper and Pearson's interval
over records. Thresholds are quantiles of the scores of records that the other targets were not trained on, because
thresholds fitted to the target's own records would overstate the abilities of an attacker.

    precision at a prior = prior TPR / (prior TPR + (1 - prior) FPR)

is the share of members among the records called members, if `prior` is the share of members among all records. Jebreel
et al. 2026.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.membership.attacks import ATTACKS
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.left_out import Targets
from tasks.audits.membership.target_scores import (
    areas_under_curves,
    balanced_part,
    balanced_targets,
    counts_above,
    find_thresholds,
    score_targets,
    share_of_pairs_won,
    sort_scores,
)
from tasks.audits.membership.trainings import Answers
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, interval_columns, interval_fields, row
from tasks.numerics import seeds, statistics
from tasks.numerics.exact_test import Array, Mask

KINDS = {"TPR": "true-positive rate", "FPR": "false-positive rate"}
RATES = {"0.1 %": 0.001, "1 %": 0.01}  # nominal false-positive rates
PRIORS = {"1 %": 0.01, "10 %": 0.1}  # share of members among all records
SCORES = pa.schema(
    [
        ("attack", pa.string()),
        ("target", pa.int64()),
        ("auc", pa.float64()),
        ("won", pa.float64()),  # share of training records that score higher than with the partner; ties count half
        *interval_fields(*(f"{kind} at {rate}" for rate in RATES for kind in KINDS)),
    ]
)
AUC = "AUC"
PRECISION = "precision"


@dataclass(frozen=True)
class Matching:
    """Seed for pairing models, record by record."""

    seed: int


def plan_matching(
    measure: Callable[[Matching, Inputs], pa.Table], config: Membership, trainings: tuple[Job, ...]
) -> Job | tuple[()]:
    """Plan a measure of attacks. Plans nothing for canaries, or for a given model without references."""
    if trainings:
        return Job(measure, Matching(seeds.derive(config.seed, "matching")), trainings)
    return ()


@task(version=3, name="membership.attacks", gathers=True)
def attacks(config: Matching, inputs: Inputs) -> pa.Table:
    """Run each attack on each target (SCORES). Empty without `balanced_targets`."""
    targets = balanced_targets(inputs, config.seed)
    if targets is None:
        return SCORES.empty_table()
    lines: list[dict[str, Any]] = []
    for attack, scores in score_targets(targets):
        lines += measure_attack(attack, scores, targets)
    return pa.Table.from_pylist(lines, SCORES)


def measure_attack(attack: str, scores: Array, targets: Targets) -> Iterator[dict[str, Any]]:
    """Yield the SCORES rows of an attack, from its scores of each record on each target. Sorts the scores in place."""
    won = share_of_pairs_won(scores, targets)
    sides = sort_scores(scores, targets.member)
    thresholds = find_thresholds(sides.outside, tuple(RATES.values()))
    areas = areas_under_curves(sides)
    counts = {}
    for rate, of_targets in zip(RATES, thresholds, strict=True):
        for kind, side in zip(KINDS, (sides.inside, sides.outside), strict=True):
            counts[f"{kind} at {rate}"] = counts_above(side, of_targets), [len(row) for row in side]
    for target, area in enumerate(areas):
        line: dict[str, Any] = {"attack": attack, "target": target, "auc": area}
        for column, (above, sizes) in counts.items():
            share = statistics.exact_proportion(int(above[target]), sizes[target])
            line |= interval_columns(column, share)
        yield line | {"won": float(won[target])}


def balanced_records(answers: Answers) -> Answers | None:
    """Return the answers for records in exactly half of the models. None if there are none (`balanced_part`)."""
    part = balanced_part(answers.member)
    if part is None:
        return None
    models, half = part
    return Answers(
        answers.rows[half],
        answers.member[:models, half],
        answers.phi[:models, half],
        None if answers.correct is None else answers.correct[:models, half],
    )


COLUMNS: tuple[tuple[str, str, float, dict[str, str]], ...] = (
    ("auc", AUC, 0.5, {}),
    ("won", "share of pairs won", 0.5, {}),
    *(
        (f"{kind} at {rate}", words, nominal, {"nominal": rate})
        for rate, nominal in RATES.items()
        for kind, words in KINDS.items()
    ),
)


def mean_over_targets(values: Array) -> Estimate:
    """Return the mean with a t interval, widened by the square root of 2. n counts targets.

    Targets share records and references, and partners carry the same information twice. In simulated nulls, the mean
    area under the curve of online LiRA varies 1.4 times as much as for independent targets (16 models); that of the
    other attacks varies less.
    """
    return _widen(statistics.mean(values))


def _widen(estimate: Estimate) -> Estimate:
    """Widen the interval of an estimate by the square root of 2."""
    if estimate.value is None or estimate.low is None:
        return estimate
    half = math.sqrt(2) * (estimate.value - estimate.low)
    return Estimate(estimate.value, estimate.value - half, estimate.value + half, estimate.n)


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield the means over targets."""
    table = tables.one(SCORES)
    if table is None or not table.num_rows:
        return
    lines = {attack: table.filter(np.asarray(table["attack"]) == attack) for attack in ATTACKS}
    yield from attack_rows({attack: of_attack for attack, of_attack in lines.items() if of_attack.num_rows})


def attack_rows(by_attack: Mapping[str, pa.Table]) -> Iterator[Row]:
    """Yield each attack's means over targets and its precision, from the rows of SCORES."""
    for column, metric, null, more in COLUMNS:
        for attack, lines in by_attack.items():
            yield row(metric, {"attack": attack, **more}, mean_over_targets(lines[column].to_numpy()), "training", null)
    for prior, share in PRIORS.items():
        for rate in RATES:
            for attack, lines in by_attack.items():
                rates = [lines[f"{kind} at {rate}"].to_numpy() for kind in KINDS]
                setting = {"attack": attack, "nominal": rate, "prior": prior}
                yield row(PRECISION, setting, precision(rates[0], rates[1], share), "training", share)


def precision(hits: Array, alarms: Array, prior: float) -> Estimate:
    """Return the share of members among the records called members. None if no record is called a member.

    Rates are means over targets. The interval is a jackknife over targets on the log-odds, widened as in
    `mean_over_targets`. It is missing if leaving out one target makes the false-positive rate 0.
    """

    def log_odds(is_used: Mask) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.log(prior * hits[is_used].mean()) - np.log((1 - prior) * alarms[is_used].mean()))

    all_records = np.ones(len(hits), dtype=bool)
    without = []
    for target in range(len(hits)):
        without.append(log_odds(all_records & (np.arange(len(hits)) != target)))
    odds = _widen(statistics.jackknife(log_odds(all_records), without))
    ends = (odds.value, odds.low, odds.high)
    value, low, high = (None if end is None else float(1 / (1 + np.exp(-end))) for end in ends)
    return Estimate(value, low, high, odds.n)


MEASURE = Measure("attacks", SCORES, partial(plan_matching, attacks), rows)
