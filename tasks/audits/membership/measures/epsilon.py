"""Is the epsilon of a training larger than its accountant states? A lower bound from canaries.

Canaries are ranked by the log-odds of the label that they are trained with. If there are several models, the mean over
the other models is subtracted, because the difficulty of a canary is independent of its coin. The number of trained
canaries at the top of the ranking bounds epsilon from below (`tasks.numerics.epsilon`). Each bound has confidence
CONFIDENCE:

- bets: the wealth of a bettor who goes down the ranking, which is valid wherever the bettor stops.
- bets or guesses: the better of the bets and of guesses about one run at both ends of the ranking, which share the
  level; only if delta costs the bets a tenth of their level (`tasks.numerics.one_run_epsilon`). The answer is based on
  this bound if it exists, and on the bets otherwise.
- one run: correct guesses among the first half of the canaries, a quarter, and so on. Steinke et al. 2023.
- one run, Gaussian: the same, if the training leaks like a Gaussian mechanism. Mahloujifar et al. 2025.
- many runs, if each model has one canary: the numbers of models with and without the canary above a threshold that the
  first half of the models chose. Jagielski et al. 2020; for a Gaussian mechanism, Nasr et al. 2023.

The table also contains the exposure of the canaries in the training data (Carlini et al. 2019), each ranked among those
left out: log2 |R| - log2 rank, with mean log2 e = 1.44 bits in the limit if ranks carry no information.

Several models are ranked together. Each has its own independent coins, so they count as one run with their total number
of canaries, and the ranking uses only the models' outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.config import About, Canaries, Membership
from tasks.audits.membership.trainings import CANARIES, canary_jobs
from tasks.contract.epsilon_rows import LEVEL, Spent, epsilon_rows, list_bounds
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, column_estimate, interval_columns, interval_fields, row
from tasks.contract.ties import tied_row
from tasks.numerics.epsilon import (
    MANY_RUNS,
    Mask,
    best_of_guesses,
    bound_by_scores,
    gaussian_one_run_bound,
)
from tasks.numerics.one_run_epsilon import decisive_p_value, describe_lost_power, one_run_bounds
from tasks.numerics.ranks import area_under_curve, exposure, share_tied
from tasks.numerics.statistics import mean
from tasks.programs.config import Program
from tasks.training.classifier_config import ClassifierTraining
from tasks.training.kept_accuracy import KEPT_ACCURACY, accuracy_jobs, accuracy_rows
from tasks.training.recipe import Privacy

Array = NDArray[np.float64]
EXPOSURE = "exposure of canaries in bits"
EPSILON = pa.schema(
    [
        ("bound", pa.string()),
        ("epsilon", pa.float64()),  # lower bound
        ("delta", pa.float64()),
        ("canaries", pa.int64()),  # over all models
        ("inside", pa.int64()),  # canaries in the training data
        ("models", pa.int64()),
        ("auc", pa.float64()),  # area under the curve of the ranking
        *interval_fields("exposure"),  # bits, mean over canaries in the training data; null if all or none are
        ("exposure_null", pa.float64()),  # expected value without information
        ("p_value", pa.float64()),  # for epsilon = 0, from the first bound
        ("spent", pa.float64()),  # the accountant's epsilon; null, like p_spent, without private training
        ("p_spent", pa.float64()),  # for epsilon at most `spent`, from the first bound
        ("tied", pa.float64()),  # share of pairs of canaries with equal scores, mean over models
    ]
)


@dataclass(frozen=True)
class AtDelta:
    """Delta of the bounds on epsilon."""

    delta: float


def plan(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001
    if not isinstance(config.question, Canaries):
        return ()
    return Job(epsilon, AtDelta(_canary_delta(config.training)), canary_jobs(config, config.question))


def _canary_delta(training: ClassifierTraining | Program) -> float:
    """Return the delta of private training, or the default delta."""
    guarantee = training.guarantee
    return guarantee.delta if guarantee else Privacy.delta


def notes(config: Membership) -> Iterator[str]:
    """Yield a warning if delta deprives the bets of their power."""
    question = config.question
    if isinstance(question, Canaries):
        yield from describe_lost_power(question.canaries * question.models, _canary_delta(config.training), LEVEL)


@task(version=4, name="membership.epsilon", gathers=True)
def epsilon(config: AtDelta, inputs: Inputs) -> pa.Table:
    """Compute each bound on epsilon (EPSILON). Empty without models."""
    tables = Tables(inputs).select(CANARIES)
    if not tables:
        return EPSILON.empty_table()
    canaries = pa.concat_tables(tables)
    inside = canaries["inside"].to_numpy()
    log_odds = np.stack([table["log_odds"].to_numpy() for table in tables])
    scores = less_the_others(log_odds).ravel()
    ranking: Mask = inside[np.argsort(-scores, kind="stable")]
    spent = canaries["spent"].drop_null().to_pylist()
    common = {
        "delta": config.delta,
        "canaries": len(inside),
        "inside": int(inside.sum()),
        "models": len(tables),
        "auc": area_under_curve(scores[inside], scores[~inside]) if 0 < inside.sum() < len(inside) else None,
        **exposures(scores[inside], scores[~inside]),
        "p_value": decisive_p_value(0.0, ranking, config.delta, LEVEL),
        "spent": max(spent, default=None),
        "p_spent": decisive_p_value(max(spent), ranking, config.delta, LEVEL) if spent else None,
        "tied": float(np.mean(share_tied(log_odds.T))) if log_odds.shape[1] > 1 else None,
    }
    bounds = one_run_bounds(ranking, config.delta, LEVEL)
    bounds["one run, Gaussian"] = best_of_guesses(gaussian_one_run_bound, ranking, config.delta, LEVEL)
    if len(canaries) == len(tables):
        alone_inside = canaries["log_odds"].to_numpy()[inside]
        alone_outside = canaries["log_odds"].to_numpy()[(~inside)]
        bounds |= {
            name: bound_by_scores(bound, alone_inside, alone_outside, config.delta, LEVEL)
            for name, bound in MANY_RUNS.items()
        }
    return make_table(EPSILON, bound=list(bounds), epsilon=list(bounds.values()), **common)


def exposures(inside: Array, outside: Array) -> dict[str, float | None]:
    """Compute the exposure of trained canaries, each ranked among those left out."""
    space = len(outside) + 1
    ranks = space - np.searchsorted(np.sort(outside), inside if len(outside) else [], side="left")
    member_exposure = mean([exposure(rank / space) for rank in ranks.tolist()])
    null = None
    if member_exposure.n:
        null = float(np.mean(np.log2(space / np.arange(1, space + 1))))
    return interval_columns("exposure", member_exposure) | {"exposure_null": null}


def less_the_others(scores: Array) -> Array:
    """Subtract the mean over the other models from scores (models, canaries). A single model stays unchanged."""
    models = len(scores)
    return scores if models == 1 else (scores - scores.mean(axis=0)) * models / (models - 1)


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield the bounds (decisive one first), the accountant's epsilon, the area under the curve, exposure and ties."""
    table_rows = tables.rows(EPSILON)
    for first in table_rows[:1]:
        if first["spent"] is None:
            spent = None
        else:
            spent = Spent(first["spent"], first["models"], first["p_spent"])
        yield from epsilon_rows(list_bounds(table_rows, "canaries", "canary"), spent, first["delta"])
        yield row("AUC of canaries", {}, alone(first["auc"], first["canaries"]), "canary", 0.5)
        exposed = column_estimate(first, "exposure", first["inside"])
        yield row(EXPOSURE, {}, exposed, "canary", first["exposure_null"])
        if first["tied"] is not None:
            yield tied_row(first["tied"], first["canaries"], "canary")


def plan_accuracies(config: Membership, trainings: tuple[Job, ...]) -> tuple[Job, ...]:  # noqa: ARG001
    if not isinstance(config.question, Canaries):
        return ()
    return accuracy_jobs(job.inputs[0] for job in canary_jobs(config, config.question))


def accuracies(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the accuracy of the models with canaries on validation images."""
    yield from accuracy_rows(tables, about.chance)


MEASURE = Measure("epsilon", EPSILON, plan, rows)
ACCURACY_MEASURE = Measure("accuracies", KEPT_ACCURACY, plan_accuracies, accuracies)
