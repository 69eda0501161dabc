"""The config of the summary: the facts about a run that its tables do not hold."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.audits.density.config import Density
from tasks.audits.density.published import repeats
from tasks.audits.density.reassignment import smallest_p_value
from tasks.audits.density.tail import LEAST_DRAWS
from tasks.training.recipe import Privacy


@dataclass(frozen=True)
class About:
    """The facts about a run that its tables do not hold.

    `planned` is the number of models planned for an observation, `smallest` the smallest p-value that it can have,
    `published` the cell of the paper whose every setting the run has, if any, `privacy` the guarantee of models that
    left out a single row, and `together` whether p-values may be counted together (tasks.audits.density.tail).
    """

    planned: int
    smallest: float
    published: str = ""
    privacy: Privacy | None = None
    together: bool = True


def about(config: Density) -> About:
    pair = config.estimator == "loo"
    models = 2 if pair else config.folds
    every = models**config.repetitions <= config.permutations + 1  # assignment is looked at, and none drawn
    return About(
        planned=config.repetitions * models,
        smallest=smallest_p_value(config.repetitions, models),
        published=repeats(config),
        privacy=config.privacy if pair else None,
        together=not pair and (every or config.permutations >= LEAST_DRAWS),
    )
