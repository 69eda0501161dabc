"""How an image classifier is trained, as a group of fields that audits share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tasks.contract.ranges import Ranged
from tasks.models.catalog import Network
from tasks.training.classifier import check_private
from tasks.training.recipe import Count, OptimiserName, Privacy, Rate, Recipe


@dataclass(frozen=True)
class ClassifierTraining(Ranged):
    """A classifier trained by Engram: network, optimiser and privacy.

    The defaults train as Carlini et al. train shadow models on MNIST-sized data, but for the network.
    """

    tag: ClassVar[str] = "classifier"

    network: Network = Network("cnn1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""
    epochs: Count = 20
    """Epochs of training."""
    batch: Count = 128
    """Images in a minibatch."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: Rate = 1e-3
    """The learning rate."""
    augmentation: bool = False
    """Whether images are shifted and turned in training; they are unchanged in evaluation."""
    privacy: Privacy | None = None
    """Ours: train with differential privacy (mlp1 and cnn1); none: without."""

    def conflicts(self) -> Iterator[str]:
        if self.privacy is not None:
            check_private(
                self.network, False, Recipe(self.epochs, self.batch, self.learning_rate, 0, (), self.optimiser)
            )
        yield from ()
