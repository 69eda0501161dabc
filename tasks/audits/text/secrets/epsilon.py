"""How much privacy does the fine-tuning have at most, and what does its epsilon allow?

Each secret is in the training data of the first model of a pair by a fair coin, or else in that of the other. The
secrets are ranked by how likely the first model says each of them among its references, in standard deviations: it is
made of nothing but what that model says, and the coins of a pair decide what it was told. How many of the first ones
are in its training data bounds epsilon from below (`tasks.numerics.epsilon`), by bets and by guesses about one run.

A training that is (epsilon, delta)-private says a secret no likelier than power(level) to be among so small a share of
candidates (`tasks.training.recipe.Privacy.power`), so that on average it beats at most the integral of that over all
levels: what epsilon allows. It protects single texts, so each secret stands in the training data once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.text.config import About, Text
from tasks.audits.text.question import Secrets
from tasks.audits.text.tuning import TextTuning
from tasks.contract.epsilon_rows import LEVEL, Bound, Spent, epsilon_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.numerics.one_run_epsilon import decisive_p_value, describe_lost_power, one_run_bounds
from tasks.numerics.ranks import rank_p_value
from tasks.training.recipe import Privacy

ALLOWED, SMALL, SMALL_ALLOWED = "references beaten, at most", "share with small p", "share with small p, at most"
GRID = 2000  # levels at which the power is added up
EPSILON = pa.schema(
    [
        ("bound", pa.string()),
        ("epsilon", pa.float64()),  # from below
        ("delta", pa.float64()),
        ("secrets", pa.int64()),  # of the first models of all pairs
        ("pairs", pa.int64()),
        ("p_value", pa.float64()),  # by the first bound, that epsilon is 0
        ("spent", pa.float64()),  # by the accountant
        ("p_spent", pa.float64()),  # by the first bound, that epsilon is no more than that
        ("told", pa.int64()),  # secrets in the first models' training data
        ("small", pa.int64()),  # of these, those whose p-value is at most the level
    ]
)


@dataclass(frozen=True)
class AtEpsilon:
    """The privacy that the accountant promises, and the level of a small p-value."""

    privacy: Privacy
    level: float


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    match config.question:
        case Secrets(tuning=TextTuning(guarantee=Privacy() as privacy)):
            return Job(epsilon, AtEpsilon(privacy, config.level), trainings[::2])
    return ()


def notes(config: Text) -> Iterator[str]:
    """A warning before any work if the secrets can show no epsilon by bets."""
    match config.question:
        case Secrets(tuning=TextTuning(guarantee=Privacy(delta=delta))) as question:
            yield from describe_lost_power(question.ranked, delta, LEVEL, "secrets")


@task(version=2, name="text.epsilon", gathers=True)
def epsilon(config: AtEpsilon, inputs: Inputs) -> pa.Table:
    """Each bound on epsilon (EPSILON); no row where no first model is there."""
    asked = [each for table in inputs for each in table.to_pylist()]
    if not asked:
        return EPSILON.empty_table()
    log_p = [np.array(each["log_p"]) for each in asked]
    inside = np.array([each["inserted"] for each in asked])
    scores = np.array([(each[0] - each[1:].mean()) / each[1:].std() for each in log_p])
    ranking = inside[np.argsort(-scores, kind="stable")]
    delta = config.privacy.delta
    common = {
        "delta": delta,
        "secrets": len(asked),
        "pairs": len(inputs),
        "p_value": decisive_p_value(0.0, ranking, delta, LEVEL),
        "spent": config.privacy.epsilon,
        "p_spent": decisive_p_value(config.privacy.epsilon, ranking, delta, LEVEL),
        "told": int(inside.sum()),
        "small": sum(rank_p_value(each) <= config.level for each, told in zip(log_p, inside, strict=True) if told),
    }
    bounds = one_run_bounds(ranking, delta, LEVEL)
    return make_table(EPSILON, bound=list(bounds), epsilon=list(bounds.values()), **common)


def mean_power(privacy: Privacy) -> float:
    """The mean share of references that a secret can beat on average, by a training with this privacy."""
    levels = (np.arange(GRID) + 0.5) / GRID
    return float(np.mean([privacy.power(float(level)) for level in levels]))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """The bounds, the decisive one first, and what the promised epsilon allows."""
    found = tables.rows(EPSILON)
    for first in found[:1]:
        bounds = [
            Bound(each["bound"], each["epsilon"], each["secrets"], "secret", each["p_value"] if each is first else None)
            for each in found
        ]
        yield from epsilon_rows(bounds, Spent(first["spent"], first["pairs"], first["p_spent"]), first["delta"])
        privacy, setting = Privacy(first["spent"], first["delta"]), {"level": about.level}
        yield row(ALLOWED, {}, alone(mean_power(privacy), first["told"]), "secret", 0.5)
        share = first["small"] / first["told"] if first["told"] else None
        yield row(SMALL, setting, alone(share, first["told"]), "secret", about.level)
        yield row(SMALL_ALLOWED, setting, alone(privacy.power(about.level), first["told"]), "secret", about.level)


MEASURE = Measure("epsilon", EPSILON, plan, rows)
