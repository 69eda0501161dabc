"""The power of a configuration: whether one remembered canary can be found, and how often an effect is detected.

The power statement assumes that effects differ by SPREAD nats between pairs of training runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.pairs.evidence import LEAST
from tasks.audits.unique_feature.population import LEVEL, Population, population_by_slopes
from tasks.contract.power import GOAL, ONE_SIDE, SMALLEST, Power, Resolution, smallest_size
from tasks.numerics.t_test import t_rate

SPREAD = 0.4  # standard deviation of the effect over pairs of training runs, in nats
EFFECT = 0.5  # in nats


def resolution(config: UniqueFeature) -> Resolution | None:
    """Return whether one of the canaries could be found or, for single models, whether the feature could."""
    if config.single_models is not None:
        population = Population(config.family.count + 1)
        advice = "rank the feature among 19 others or more (family.count)"
        return Resolution(1 / population.size, 1, LEVEL, "feature", advice)
    if config.scored_pairs is None:
        return None
    if config.decides_by_ranks:
        population = population_by_slopes(config)
    else:
        population = Population(config.family.count + 1)
    return population.resolution(config.scored_pairs.canaries)


def power(config: UniqueFeature) -> Iterator[Power]:
    """Yield how often an effect of EFFECT nats is found over the pairs, each with its own seed."""
    question = config.scored_pairs
    if question is None:
        return
    pairs = 1 if question.one_seed else question.canaries
    canaries = smallest_size(max(LEAST, pairs), 1, lambda size: effect_rate(size) >= GOAL)
    size = f"a feature whose image changes the probability of its label by {EFFECT:g} nats (pairs differ by {SPREAD:g})"
    yield Power(size, effect_rate(pairs), "" if canaries is None else f"train {canaries} canaries")


@lru_cache(maxsize=256)
def effect_rate(pairs: int) -> float:
    """Return the share of audits whose 95 % t interval of the effect is above the smallest relevant effect."""
    if pairs < LEAST:
        return 0.0
    shift = (EFFECT - SMALLEST) / SPREAD * pairs**0.5
    return t_rate(shift, pairs - 1, ONE_SIDE)
