"""Training of the audit's classifiers: one network and one recipe for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tasks.contract.ranges import AtLeast
from tasks.models.catalog import Network
from tasks.training.classifier_config import RegularisedTraining


@dataclass(frozen=True)
class Classifier(RegularisedTraining):
    """A classifier that is trained here by cross-entropy."""

    tag: ClassVar[str] = "classifier"

    network: Network = Network("cnn1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    crop: Annotated[int, AtLeast(0)] = 0
    """Side of the random squares used in training, and of the central squares used in evaluation; 0: whole images."""
    link: Annotated[int, AtLeast(0)] = 0
    """Ours: epochs per link; a training is a chain of links and resumes after the last finished link if it is
    interrupted; 0: one job."""
    schedule: tuple[tuple[int, float], ...] = field(default=((16, 0.1),), kw_only=True)
    """Pairs (epoch, factor) that reduce the learning rate. Without convergence, models differ between replicates by
    more than by their data."""
