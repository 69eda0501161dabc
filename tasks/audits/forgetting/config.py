"""Configuration of the audit: the data, the audited models and the training of the comparison models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.audits.forgetting.audited import Audited, Given, Trained, count_targets
from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.query_set import ControlSet, ProbeSet, QuerySet
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.target_evidence import LEVEL
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.programs.config import Program, Returns, row_conflicts
from tasks.training.unlearning_config import Retraining

# Of a user's program: numbers that determine the probability of the true class.
RETURNS: tuple[Returns, ...] = ("probabilities", "log_odds", "loss", "model")


@dataclass(frozen=True)
class Scores(Ranged):
    """Whether models know D_Q better than models that never saw it: confidences, scores and decisions.

    Even if models know an image, their confidences differ by chance and by the length of training, such as .9999 and
    .99999. Our one-sided score ignores these differences by rounding to `decimals`; the published score does not.
    """

    tag: ClassVar[str] = "scores"

    audited: Audited = Trained()
    """The audited models."""
    training: Classifier | Program = Classifier()
    """How the query, calibration, partial and target models are trained: a classifier by Engram, or your own program,
    to which all parts of the data are rows of one data set."""
    replicates: Annotated[int, AtLeast(1)] = 5
    """Number of trainings of each model, with different seeds and different shares."""
    calibration_share: Annotated[float, Share(zero=False)] = 1.0
    """Ours: share of D_C that each model is trained on, drawn separately for each model. Below 1, calibration and
    partial models also vary by their data, like models of owners with other data; 1: all models use the same D_C."""
    decimals: Annotated[int, AtLeast(1)] = 2
    """Ours: number of decimals to which our one-sided score rounds confidences, or fewer if a table has fewer; from 8
    on: float32. The published score does not round."""
    class_images: bool = False
    """Whether the run also shows one image of each class from each part of the data."""

    def conflicts(self) -> Iterator[str]:
        if not isinstance(self.training, Program):
            return
        yield from row_conflicts(self.training, RETURNS, "the probability of the true class")
        targets = self.audited.targets if isinstance(self.audited, Trained) else ()
        for target in targets:
            if not isinstance(target.unlearning, Retraining | None):
                yield (
                    f"targets has {target} and training is {self.training.tag}; unlearning must be retraining, since "
                    "Engram unlearns only in networks that it trains"
                )


@dataclass(frozen=True)
class Examples(Ranged):
    """One image of each class from each part of the data; no model is trained."""

    tag: ClassVar[str] = "examples"

    outside: Part | None = None
    """Data of another domain; none: only the query and the calibration set are shown."""


Question = Scores | Examples


@dataclass(frozen=True)
class Forgetting(Ranged):
    """Configuration: the data that may have been forgotten, the question about them and the audited models.

    The defaults are the published benchmark with a control set. Query, calibration and target models have the same
    design.
    """

    query: QuerySet = QuerySet(Dataset("mnist"))
    """The data to be forgotten (D_Q), and the control set of the same source, on which no model is trained."""
    calibration: Part = Part(Dataset("svhn-full#28x28#grey"))
    """D_C: data of the same domain that share no image with D_Q or its control set."""
    question: Question = Scores()
    """The question of the run: scores of models, or examples of the data."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of randomness except `query.control.secret`."""

    def conflicts(self) -> Iterator[str]:
        control = self.query.control
        if control is None or not isinstance(self.question, Scores):
            return
        fewest_permutations = least_permutations(count_targets(self.question.audited))
        if control.permutations < fewest_permutations:
            yield (
                f"permutations is {control.permutations}; it must be at least {fewest_permutations}, or no target "
                "could be not forgotten"
            )

    @property
    def audited(self) -> Audited | None:
        """The audited models, or None if the run only shows examples of the data."""
        if isinstance(self.question, Scores):
            return self.question.audited
        return None

    @property
    def given(self) -> Given | None:
        """The audited third-party models, or None if there are none."""
        return self.audited if isinstance(self.audited, Given) else None

    @property
    def outside(self) -> Part | None:
        """The data of another domain, or None if they are not used."""
        match self.question:
            case Examples():
                return self.question.outside
            case Scores(audited=Trained() as trained):
                return trained.outside_part
        return None

    @property
    def parts(self) -> Iterator[Part]:
        """Parts of the data in use: D_Q's pool, the calibration set and, if any target uses it, the outside data."""
        yield self.query.pool
        yield self.calibration
        if self.outside is not None:
            yield self.outside

    @property
    def query_part(self) -> Part | Remainder:
        """D_Q: the images of the query set that are not held back."""
        return self.query.query_part(self.seed)

    @property
    def probes(self) -> ProbeSet:
        """D_Q and the control set, on which every model is evaluated."""
        return self.query.probes(self.seed)

    @property
    def negligible(self) -> float:
        """Largest share of D_Q that a forgotten target may hold."""
        return (self.query.control or ControlSet()).negligible

    @property
    def is_between_parties(self) -> bool:
        """Whether a third-party model is judged by a draw of this run."""
        return self.given is not None and self.query.is_controlled

    @property
    def has_unbound_tables(self) -> bool:
        """Whether the run judges tables of outputs that nothing binds to a model."""
        return self.query.is_controlled and self.given is not None and has_unbound_tables(self.given)


def has_unbound_tables(audited: Audited) -> bool:
    """Return whether the audit includes tables of outputs that nothing binds to a model."""
    return isinstance(audited, Given) and bool(audited.outputs) and not audited.bound_by


def least_permutations(targets: int) -> int:
    """Return the fewest permutations with which the smallest p-value, adjusted over the targets, is at most LEVEL."""
    return math.ceil(max(1, targets) / LEVEL) - 1


@dataclass(frozen=True)
class About:
    """Facts about a run that its tables do not contain: the expected targets, and the paper's table that it repeats."""

    targets: tuple[NamedTarget, ...]
    published: str = ""
    copies: CopyCount = CopyCount()
    """Exact copies among the images of the query set, including held-back ones."""
    chance: float | None = None
    """Accuracy of the best constant answer on D_Q."""
