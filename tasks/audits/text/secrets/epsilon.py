"""Lower bound on the epsilon of the fine-tuning, and the detection rate that an epsilon permits.

A fair coin decides whether a secret is in the training data of the first or the second model of a pair. The secrets are
sorted by the first model's log p relative to their references, in standard deviations. This order depends only on the
output of that model, and the coins of a pair decide its training data. The number of members among the top secrets
gives a lower bound on epsilon (`tasks.numerics.epsilon`), by bets and by guesses from one run.

Under (epsilon, delta)-private training, a secret has a p-value of at most `level` with a probability of at most
power(level) (`tasks.training.recipe.Privacy.power`). The mean share of references that a secret outranks is therefore
at most the integral of the power over all levels. The guarantee protects single texts, so each secret occurs once in
the training data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.text.config import About, Text
from tasks.audits.text.question import Secrets
from tasks.contract.epsilon_rows import LEVEL, Spent, epsilon_rows, list_bounds
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.numerics.one_run_epsilon import decisive_p_value, describe_lost_power, one_run_bounds
from tasks.numerics.ranks import rank_p_value
from tasks.programs.config import StatedPrivacy
from tasks.training.recipe import Privacy

ALLOWED = "references beaten, at most"
SMALL = "share with small p"
SMALL_ALLOWED = "share with small p, at most"
GRID = 2000  # number of levels in the integral of the power
EPSILON = pa.schema(
    [
        ("bound", pa.string()),
        ("epsilon", pa.float64()),  # the lower bound
        ("delta", pa.float64()),
        ("secrets", pa.int64()),  # secrets scored by the first models of all pairs
        ("pairs", pa.int64()),
        ("p_value", pa.float64()),  # of the null hypothesis that epsilon is 0, by the first bound
        ("spent", pa.float64()),  # epsilon reported by the accountant
        ("p_spent", pa.float64()),  # of the null hypothesis that epsilon is at most `spent`, by the first bound
        ("members", pa.int64()),  # number of secrets in the training data of the first models
        ("significant", pa.int64()),  # number of members with a p-value of at most the level
    ]
)


@dataclass(frozen=True)
class AtEpsilon:
    """The guarantee stated by the accountant, and the significance level."""

    privacy: Privacy | StatedPrivacy
    level: float


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    guarantee = config.question.tuning.guarantee if isinstance(config.question, Secrets) else None
    return () if guarantee is None else Job(epsilon, AtEpsilon(guarantee, config.level), trainings[::2])


def notes(config: Text) -> Iterator[str]:
    """Warn before training if there are too few secrets for a bound by bets."""
    question = config.question
    if isinstance(question, Secrets) and question.tuning.guarantee is not None:
        yield from describe_lost_power(question.ranked, question.tuning.guarantee.delta, LEVEL, "secrets")


@task(version=3, name="text.epsilon", gathers=True)
def epsilon(config: AtEpsilon, inputs: Inputs) -> pa.Table:
    """Compute each bound on epsilon (EPSILON). The table is empty if no first model was scored."""
    scored_secrets = [score for table in inputs for score in table.to_pylist()]
    if not scored_secrets:
        return EPSILON.empty_table()
    log_p = [np.array(score["log_p"]) for score in scored_secrets]
    members = np.array([score["inserted"] for score in scored_secrets])
    scores = np.array([(score[0] - score[1:].mean()) / score[1:].std() for score in log_p])
    ranking = members[np.argsort(-scores, kind="stable")]
    delta = config.privacy.delta
    common = {
        "delta": delta,
        "secrets": len(scored_secrets),
        "pairs": len(inputs),
        "p_value": decisive_p_value(0.0, ranking, delta, LEVEL),
        "spent": config.privacy.epsilon,
        "p_spent": decisive_p_value(config.privacy.epsilon, ranking, delta, LEVEL),
        "members": int(members.sum()),
        "significant": sum(
            rank_p_value(score) <= config.level for score, is_member in zip(log_p, members, strict=True) if is_member
        ),
    }
    bounds = one_run_bounds(ranking, delta, LEVEL)
    return make_table(EPSILON, bound=list(bounds), epsilon=list(bounds.values()), **common)


def mean_power(privacy: Privacy) -> float:
    """Return the largest mean share of references that a secret can outrank under this guarantee."""
    levels = (np.arange(GRID) + 0.5) / GRID
    return float(np.mean([privacy.power(float(level)) for level in levels]))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the bounds, the decisive one first, and the detection rate that the accountant's epsilon permits."""
    bounds_rows = tables.rows(EPSILON)
    for first in bounds_rows[:1]:
        bounds = list_bounds(bounds_rows, "secrets", "secret")
        yield from epsilon_rows(bounds, Spent(first["spent"], first["pairs"], first["p_spent"]), first["delta"])
        privacy = Privacy(first["spent"], first["delta"])
        setting = {"level": about.level}
        yield row(ALLOWED, {}, alone(mean_power(privacy), first["members"]), "secret", 0.5)
        share = None
        if first["members"]:
            share = first["significant"] / first["members"]
        yield row(SMALL, setting, alone(share, first["members"]), "secret", about.level)
        yield row(SMALL_ALLOWED, setting, alone(privacy.power(about.level), first["members"]), "secret", about.level)


MEASURE = Measure("epsilon", EPSILON, plan, rows)
