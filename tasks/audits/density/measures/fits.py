"""What was trained: the losses of every model by epoch, and log p of the observations at the recorded ones.

The tables are those of the trainings themselves, which `engram results RUN fits` gives one after another; the summary
reads none of them.
"""

from __future__ import annotations

from tasks.audits.density.config import Density
from tasks.audits.density.trainings import Trainings
from tasks.job import Job
from tasks.measure import Measure
from tasks.training.density import FITTED, REFINED


def plan(config: Density, trainings: Trainings | None) -> tuple[Job, ...]:
    return trainings.all if trainings and not config.refine else ()


def plan_refinement(config: Density, trainings: Trainings | None) -> tuple[Job, ...]:
    return trainings.all if trainings and config.refine else ()


MEASURES = Measure("fits", FITTED, plan), Measure("refined_fits", REFINED, plan_refinement)
