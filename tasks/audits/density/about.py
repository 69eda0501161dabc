"""The config of the summary: what it needs besides the tables."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.audits.density.config import Density
from tasks.audits.density.published import repeats
from tasks.audits.density.reassignment import smallest_p_value
from tasks.training.density_config import Privacy


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run.

    How many models were `planned` to answer for an observation; the `smallest` p-value that it can have; the cell of
    the paper that the run repeats, if it repeats one; what `privacy` promised of models that left out a single row.
    """

    planned: int
    smallest: float
    published: str = ""
    privacy: Privacy | None = None


def about(config: Density) -> About:
    pair = config.estimator == "loo"
    models = 2 if pair else config.folds
    return About(
        planned=config.repetitions * models,
        smallest=smallest_p_value(config.repetitions, models, config.permutations),
        published=repeats(config),
        privacy=config.privacy if pair else None,
    )
