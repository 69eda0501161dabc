"""How the classifiers of the audit are trained: one network and one recipe for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.contract.ranges import AtLeast, Ranged
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers
from tasks.training.recipe import Count, OptimiserName, Rate, Recipe


@dataclass(frozen=True)
class Classifier(Ranged):
    """A classifier that is trained here by cross-entropy."""

    tag: ClassVar[str] = "classifier"

    network: Network = Network("cnn1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    dropout: bool = False
    """Whether it is trained with dropout."""
    batch_norm: bool = False
    """Whether it has batch norm."""
    augmentation: bool = False
    """Whether training images are shifted and mirrored at random."""
    crop: Annotated[int, AtLeast(0)] = 0
    """Side of the random squares in training, and of the central squares in evaluation; 0: whole images."""
    epochs: Count = 20
    """Epochs of training."""
    link: Annotated[int, AtLeast(0)] = 0
    """Ours: epochs per link of the chain that a training is, from whose ends it continues after an interruption; 0:
    one job."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: Rate = 1e-3
    """The initial learning rate."""
    schedule: tuple[tuple[int, float], ...] = ((16, 0.1),)
    """Pairs (epoch, factor) that reduce the learning rate: models that have not converged differ between replicates by
    more than by their data."""
    batch: Count = 128
    """Images a step."""

    def conflicts(self) -> Iterator[str]:
        # Both raise ValueError if the settings are impossible.
        Recipe(self.epochs, self.batch, self.learning_rate, 0, self.schedule, self.optimiser)
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm))
        yield from ()
