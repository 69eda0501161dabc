"""Models of a run and their answers, from which the score measures are planned."""

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
    """Trained models with their jobs, the targets in order, and the answers of all models.

    `answers` are jobs that produce tables of CONFIDENCES, trained models before given ones. `decisions` configures the
    decisions about targets.
    """

    audited: Audited
    trainings: Mapping[ModelId, Job]
    targets: tuple[NamedTarget, ...]
    answers: tuple[Job, ...]
    decisions: Decisions
