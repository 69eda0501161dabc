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


@task(version=2, name="membership.attacks", gathers=True)
def attacks(config: Matching, inputs: Inputs) -> pa.Table:
    """Run each attack on each target (SCORES). Empty without `balanced_records`."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None:
        return SCORES.empty_table()
    pairs = pair_models(answers.member, config.seed)
    member = answers.member
    lines = [
        line
        for attack, scores in score_targets(answers, pairs).items()
        for line in measure_attack(attack, scores, member, pairs)
    ]
    return pa.Table.from_pylist(lines, SCORES)


def measure_attack(attack: str, scores: Array, member: Mask, pairs: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    """Yield the SCORES rows of an attack, from its scores of each record on each target."""
    positives = exceed_thresholds(scores, member, tuple(RATES.values()))
    for target, is_member in enumerate(member):
        partner = np.take_along_axis(scores, partners(pairs, target)[None], axis=0)[0]
        target_scores = scores[target]
        won = float(((target_scores > partner) + 0.5 * (target_scores == partner))[is_member].mean())
        line: dict[str, Any] = {
            "attack": attack,
            "target": target,
            "auc": area_under_curve(target_scores[is_member], target_scores[~is_member]),
        }
        for positive, rate in zip(positives, RATES, strict=True):
            for kind, side in zip(KINDS, (is_member, ~is_member), strict=True):
                share = statistics.exact_proportion(int(positive[target, side].sum()), int(side.sum()))
                line |= interval_columns(f"{kind} at {rate}", share)
        yield line | {"won": won}


def balanced_records(answers: Answers) -> Answers | None:
    """Return the answers for records in exactly half of the models. None if there are none (`balanced_part`)."""
    models_and_records = balanced_part(answers.member)
    if models_and_records is None:
        return None
    return Answers(
        answers.rows[models_and_records[1]],
        answers.member[models_and_records],
        answers.phi[models_and_records],
        None if answers.correct is None else answers.correct[models_and_records],
    )


def balanced_part(member: Mask) -> tuple[slice, Mask] | None:
    """Return the models, and the records in exactly half of them: all records unless trainings are missing.

    An odd number of models is reduced by one. None with fewer than four models, or without such records.
    """
    models = len(member) // 2 * 2
    half = 2 * member[:models].sum(axis=0) == models
    return (np.s_[:models], half) if models >= 4 and half.any() else None


def score_targets(answers: Answers, pairs: NDArray[np.int64], max_pairs: int | None = None) -> dict[str, Array]:
    """Score every record with each attack on each target, (models, records) each.

    The label-only attack is left out if it is unknown which answers are correct. `max_pairs` limits the number of
    reference pairs.
    """
    attacks_here = [attack for attack in ATTACKS if attack != LABELS or answers.correct is not None]
    scores = {attack: np.empty(answers.phi.shape) for attack in attacks_here}
    right = answers.right
    for target in range(len(answers.phi)):
        by_odds = leave_pairs_out(answers.phi, answers.member, pairs, target, max_pairs)
        by_labels = leave_pairs_out(right, answers.member, pairs, target, max_pairs)
        for attack in attacks_here:
            scores[attack][target] = ATTACKS[attack](by_labels if attack == LABELS else by_odds)
    return scores


def exceed_thresholds(scores: Array, member: Mask, nominal: Sequence[float]) -> list[Mask]:
    """Return, for each nominal false-positive rate, which records each target calls members, (models, records).

    A target's threshold is that quantile of the scores of records that the other targets were not trained on.
    """
    is_called = [np.empty(scores.shape, dtype=bool) for _ in nominal]
    for target in range(len(scores)):
        is_other_target = np.arange(len(scores)) != target
        null = np.sort(scores[is_other_target][~member[is_other_target]])
        for rate, mask in zip(nominal, is_called, strict=True):
            mask[target] = scores[target] > null[max(0, int(np.ceil((1 - rate) * len(null))) - 1)]
    return is_called


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
