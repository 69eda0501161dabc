"""How well do published attacks tell members from others, and at which false-positive rate?

Every model is a target in its turn (`tasks.audits.membership.attacks`). Of each attack and target: the area under the
curve; the share of the target's records that score higher than by their partner; and, at nominal false-positive rates,
the true- and the false-positive rate. Thresholds are quantiles of the scores of records that the other targets were not
trained on: those fitted to the target's own records overstate what an attacker can do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.attacks import ATTACKS, leave_pairs_out, pair_models
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.exact_test import Array, Mask
from tasks.audits.membership.trainings import Answers, stack_answers
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, row
from tasks.numerics import seeds, statistics
from tasks.numerics.statistics import Estimate

KINDS = {"TPR": "true-positive rate", "FPR": "false-positive rate"}
RATES = {"0.1 %": 0.001, "1 %": 0.01}  # nominal false-positive rates
SCORES = pa.schema(
    [
        ("attack", pa.string()),
        ("target", pa.int64()),
        ("auc", pa.float64()),
        ("won", pa.float64()),  # share of its records that score higher than by the partner, ties a half
        *((f"{kind} at {rate}", pa.float64()) for rate in RATES for kind in KINDS),
    ]
)
AUC = "AUC"


@dataclass(frozen=True)
class Matching:
    """By which seed models are matched for each record."""

    seed: int


def plan(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not trainings:  # of canaries, or of a given model alone
        return ()
    return Job(attacks, Matching(seeds.derive(config.seed, "matching")), trainings)


@task(version=1, name="membership.attacks", gathers=True)
def attacks(config: Matching, inputs: Inputs) -> pa.Table:
    """Each attack on each target (SCORES), by `balanced_records`; no row where these do not suffice."""
    answers = balanced_records(stack_answers(inputs))
    if answers is None:
        return SCORES.empty_table()
    partners = pair_models(answers.member, config.seed)
    by_attack = score_targets(answers, partners)  # (models, records) each
    lines = []
    for attack, by_target in by_attack.items():
        for target, rates in enumerate(measure_rates(by_target, answers.member)):
            scores, mine = by_target[target], answers.member[target]
            partner = np.take_along_axis(by_target, partners[[target]], axis=0)[0]
            won = float(((scores > partner) + 0.5 * (scores == partner))[mine].mean())
            lines.append((attack, target, statistics.area_under_curve(scores[mine], scores[~mine]), won, *rates))
    return pa.Table.from_pylist([dict(zip(SCORES.names, line, strict=True)) for line in lines], SCORES)


def balanced_records(answers: Answers) -> Answers | None:
    """The answers about records that are in exactly half of the models, which all are unless trainings are missing.

    Of an odd number of models the last is left out. None where fewer than four models or no such record are left.
    """
    models = len(answers.member) // 2 * 2
    half = 2 * answers.member[:models].sum(axis=0) == models
    if models < 4 or not half.any():
        return None
    kept = np.s_[:models, half]
    return Answers(answers.rows[half], answers.member[kept], answers.phi[kept], answers.correct[kept])


def score_targets(answers: Answers, partners: NDArray[np.int64]) -> dict[str, Array]:
    """The scores of every record by each attack on each target, (models, records) each."""
    scores = {attack: np.empty(answers.phi.shape) for attack in ATTACKS}
    for target in range(len(answers.phi)):
        references = leave_pairs_out(answers.phi, answers.member, partners, target)
        for attack, score in ATTACKS.items():
            scores[attack][target] = score(references)
    return scores


def measure_rates(scores: Array, member: Mask) -> Iterator[tuple[float, ...]]:
    """Of each target the true- and the false-positive rate at each of RATES; scores are (models, records)."""
    for target in range(len(scores)):
        others = np.arange(len(scores)) != target
        null = np.sort(scores[others][~member[others]])
        rates = []
        for nominal in RATES.values():
            threshold = null[max(0, int(np.ceil((1 - nominal) * len(null))) - 1)]
            positive = scores[target] > threshold
            rates += [float(positive[side].mean()) for side in (member[target], ~member[target])]
        yield tuple(rates)


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
    whole = statistics.mean(values)
    if whole.value is None or whole.low is None:
        return whole
    half = math.sqrt(2) * (whole.value - whole.low)
    return Estimate(whole.value, whole.value - half, whole.value + half, whole.n)


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - attacks know no level
    """The means over targets."""
    table = tables.one(SCORES)
    if table is None or not table.num_rows:
        return
    by_attack = {attack: table.filter(np.asarray(table["attack"]) == attack) for attack in ATTACKS}
    for column, metric, null, more in COLUMNS:
        for attack, lines in by_attack.items():
            yield row(metric, {"attack": attack, **more}, mean_over_targets(lines[column].to_numpy()), "training", null)


MEASURE = Measure("attacks", SCORES, plan, rows)
