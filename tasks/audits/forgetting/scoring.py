"""What the measures of scores are planned from: the models of a run and what they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.audits.forgetting.audited import Audited
from tasks.audits.forgetting.model_effects import Decisions
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import Job


@dataclass(frozen=True)
class Scoring:
    """The trained models with their jobs, the targets by their numbers, and the answers of all models.

    `answers` are the jobs of tables of CONFIDENCES, those of models that are trained here first. `decisions` says how
    targets are decided on.
    """

    audited: Audited
    trainings: Mapping[ModelId, Job]
    targets: tuple[NamedTarget, ...]
    answers: tuple[Job, ...]
    decisions: Decisions
