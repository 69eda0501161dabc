"""How well do published attacks tell members from others, and at which false-positive rate?

Every model is a target in its turn (`tasks.audits.membership.attacks`). Of each attack and target: the area under the
curve; the share of the target's records that score higher than by their partner; and, at nominal false-positive rates,
the true- and the false-positive rate with Clopper and Pearson's interval over records. Thresholds are quantiles of the
scores of records that the other targets were not trained on: those fitted to the target's own records overstate what an
attacker can do.

    precision at a prior = prior TPR / (prior TPR + (1 - prior) FPR)

is the share of the accused that are members, where so many of the records asked about are. Jebreel et al. 2026.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.attacks import ATTACKS, LABELS, leave_pairs_out, pair_models, partners
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.trainings import Answers, stack_answers
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, interval_columns, interval_fields, row
from tasks.numerics import seeds, statistics
from tasks.numerics.exact_test import Array, Mask
from tasks.numerics.ranks import area_under_curve

KINDS = {"TPR": "true-positive rate", "FPR": "false-positive rate"}
RATES = {"0.1 %": 0.001, "1 %": 0.01}  # nominal false-positive rates
PRIORS = {"1 %": 0.01, "10 %": 0.1}  # shares of members among the records that are asked about
SCORES = pa.schema(
    [
        ("attack", pa.string()),
        ("target", pa.int64()),
        ("auc", pa.float64()),
        ("won", pa.float64()),  # share of its records that score higher than by the partner, ties a half
        *interval_fields(*(f"{kind} at {rate}" for rate in RATES for kind in KINDS)),
    ]
)
AUC, PRECISION = "AUC", "precision"


@dataclass(frozen=True)
class Matching:
    """By which seed models are matched for each record."""

    seed: int


def plan_matching(
    measure: Callable[[Matching, Inputs], pa.Table], config: Membership, trainings: tuple[Job, ...]
) -> Job | tuple[()]:
    """The job of a measure of attacks; none of canaries, or of a given model alone."""
    return Job(measure, Matching(seeds.derive(config.seed, "matching")), trainings) if trainings else ()


@task(version=2, name="membership.attacks", gathers=True)
def attacks(config: Matching, inputs: Inputs) -> pa.Table:
    """Each attack on each target (SCORES), by `balanced_records`; no row where these do not suffice."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None:
        return SCORES.empty_table()
    pairs, member = pair_models(answers.member, config.seed), answers.member
    lines = [
        line
        for attack, scores in score_targets(answers, pairs).items()
        for line in measure_attack(attack, scores, member, pairs)
    ]
    return pa.Table.from_pylist(lines, SCORES)


def measure_attack(attack: str, scores: Array, member: Mask, pairs: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    """The rows of SCORES of an attack, of which these are the scores of each record on each target."""
    positives = exceed_thresholds(scores, member, tuple(RATES.values()))
    for target, mine in enumerate(member):
        partner = np.take_along_axis(scores, partners(pairs, target)[None], axis=0)[0]
        own = scores[target]
        won = float(((own > partner) + 0.5 * (own == partner))[mine].mean())
        line: dict[str, Any] = {
            "attack": attack,
            "target": target,
            "auc": area_under_curve(own[mine], own[~mine]),
        }
        for positive, rate in zip(positives, RATES, strict=True):
            for kind, side in zip(KINDS, (mine, ~mine), strict=True):
                share = statistics.exact_proportion(int(positive[target, side].sum()), int(side.sum()))
                line |= interval_columns(f"{kind} at {rate}", share)
        yield line | {"won": won}


def balanced_records(answers: Answers) -> Answers | None:
    """The answers about records that are in exactly half of the models; None where there are none (`balanced_part`)."""
    kept = balanced_part(answers.member)
    if kept is None:
        return None
    return Answers(answers.rows[kept[1]], answers.member[kept], answers.phi[kept], answers.correct[kept])


def balanced_part(member: Mask) -> tuple[slice, Mask] | None:
    """The models and the records that are in exactly half of them, which all are unless trainings are missing.

    Of an odd number of models the last is left out. None where fewer than four models or no such record are left.
    """
    models = len(member) // 2 * 2
    half = 2 * member[:models].sum(axis=0) == models
    return (np.s_[:models], half) if models >= 4 and half.any() else None


def score_targets(answers: Answers, pairs: NDArray[np.int64], most: int | None = None) -> dict[str, Array]:
    """The scores of every record by each attack on each target, (models, records) each.

    With `most` the references are those of so many pairs.
    """
    scores = {attack: np.empty(answers.phi.shape) for attack in ATTACKS}
    right = answers.correct.astype(np.float64)
    for target in range(len(answers.phi)):
        by_odds, by_labels = (
            leave_pairs_out(said, answers.member, pairs, target, most) for said in (answers.phi, right)
        )
        for attack, score in ATTACKS.items():
            scores[attack][target] = score(by_labels if attack == LABELS else by_odds)
    return scores


def exceed_thresholds(scores: Array, member: Mask, nominal: Sequence[float]) -> list[Mask]:
    """At each nominal false-positive rate whether each target calls each record a member, (models, records).

    A target's threshold is that quantile of the scores of the others by records that they were not trained on.
    """
    called = [np.empty(scores.shape, dtype=bool) for _ in nominal]
    for target in range(len(scores)):
        others = np.arange(len(scores)) != target
        null = np.sort(scores[others][~member[others]])
        for rate, mask in zip(nominal, called, strict=True):
            mask[target] = scores[target] > null[max(0, int(np.ceil((1 - rate) * len(null))) - 1)]
    return called


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
    """The mean with its t interval, widened by the square root of 2; n counts the targets.

    Targets share records and references. In simulated nulls the mean of the area under online LiRA's curve varies 1.4
    times as much as for independent targets (16 models), and that of the others less: partners tell the same twice.
    """
    return _widen(statistics.mean(values))


def _widen(estimate: Estimate) -> Estimate:
    """The estimate with an interval that is the square root of 2 times as wide."""
    if estimate.value is None or estimate.low is None:
        return estimate
    half = math.sqrt(2) * (estimate.value - estimate.low)
    return Estimate(estimate.value, estimate.value - half, estimate.value + half, estimate.n)


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - attacks know no level
    """The means over targets."""
    table = tables.one(SCORES)
    if table is None or not table.num_rows:
        return
    yield from attack_rows({attack: table.filter(np.asarray(table["attack"]) == attack) for attack in ATTACKS})


def attack_rows(by_attack: Mapping[str, pa.Table]) -> Iterator[Row]:
    """The means over targets of each attack, and its precision, from its rows of SCORES."""
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
    """The share of members among the accused, by the mean rates over targets; None where nobody is accused.

    The interval is the jackknife's over targets, of the log-odds, and as wide as `mean_over_targets` makes it. It is
    missing where a false-positive rate without one of the targets is 0.
    """

    def log_odds(kept: Mask) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.log(prior * hits[kept].mean()) - np.log((1 - prior) * alarms[kept].mean()))

    every = np.ones(len(hits), dtype=bool)
    without = [log_odds(every & (np.arange(len(hits)) != target)) for target in range(len(hits))]
    odds = _widen(statistics.jackknife(log_odds(every), without))
    ends = (odds.value, odds.low, odds.high)
    value, low, high = (None if each is None else float(1 / (1 + np.exp(-each))) for each in ends)
    return Estimate(value, low, high, odds.n)


MEASURE = Measure("attacks", SCORES, partial(plan_matching, attacks), rows)
