"""Power of a configuration: whether one memorised observation could be identified, and how often it is.

An observation's p-value is at least 1 / K^L, the share of the actual assignment of models. The power assumes that log p
differs by SPREAD nats between models. The published score compares the mean density under the models that trained on an
observation with that under the L models that held it out. The observation can be missed if one of the latter is not
among the lowest.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from tasks.audits.density.config import Density, Memorization
from tasks.audits.density.reassignment import smallest_p_value
from tasks.audits.density.tail import alone
from tasks.contract.power import GOAL, Power, Resolution, smallest_size
from tasks.datasets.catalog import load

SPREAD = 1.0  # standard deviation of log p between models, in nats
SIMULATED = 4000  # simulated observations, with a fixed seed
SEED = 600_200


def observation_resolution(config: Memorization, observations: int) -> Resolution:
    """Return whether a single one of these observations could be identified."""
    dependent = config.leaves_out_rows
    level = observations * alone(observations, dependent)

    def enough(repetitions: int) -> bool:
        return smallest_p_value(repetitions, config.models) * observations <= level

    repetitions = smallest_size(1, 1, enough)
    if repetitions is None:
        advice = ""
    else:
        advice = f"train at least {repetitions} repetitions for {observations:,} observations"
    smallest = smallest_p_value(config.repetitions, config.models)
    return Resolution(smallest, observations, level, "observations", advice)


def _count_observations(config: Memorization) -> int:
    """Count the observations that models score."""
    data = load(config.data)
    if config.evaluation_split == "test":
        images = data.test
    else:
        images = data.train
    if config.examples:
        return min(len(images), config.examples)
    return len(images)


def resolution(config: Density) -> Resolution | None:
    """Return the resolution of a plan. None if the run trains no model."""
    question = config.question
    if not isinstance(question, Memorization):
        return None
    return observation_resolution(question, _count_observations(question))


def power(config: Density) -> Iterator[Power]:
    """Yield how often one observation memorised by `detectable` nats is identified."""
    if isinstance(config.question, Memorization):
        yield _power_of_observations(config.question)


def _power_of_observations(config: Memorization) -> Power:
    observations = _count_observations(config)
    dependent = config.leaves_out_rows
    size = config.detectable - config.negligible
    level = alone(observations, dependent)
    share = calling_rate(config.repetitions, config.models, level, size)
    repetitions = smallest_size(
        config.repetitions, 1, lambda more: more <= MOST and calling_rate(more, config.models, level, size) >= GOAL
    )
    effect = f"one observation of {observations:,} that is memorised by {config.detectable:g} nats"
    if repetitions is None:
        advice = ""
    else:
        advice = f"train {repetitions} repetitions"
    return Power(f"{effect} (models differ by {SPREAD:g} nat)", share, advice)


MOST = 40  # largest number of repetitions tried for advice


@lru_cache(maxsize=256)
def calling_rate(repetitions: int, models: int, level: float, size: float) -> float:
    """Return the share of simulated observations (normal log p, memorised by `size` nats) with p at most `level`.

    In each repetition, log p is lower by `size` under one model. If that model is the lowest in every repetition, p is
    the smallest possible value. Otherwise p is bounded by the share of assignments that are at least as low.
    """
    if smallest_p_value(repetitions, models) > level * (1 + 1e-9):
        return 0.0
    chance = np.random.default_rng(SEED)
    log_p = chance.normal(0.0, SPREAD, (SIMULATED, repetitions, models))
    held_out = log_p[:, :, 0]
    rank = 1 + (log_p[:, :, 1:] + size <= held_out[:, :, None]).sum(axis=2)  # 1 is the lowest
    p_values = np.prod(rank / models, axis=1)
    return float((p_values <= level).mean())
