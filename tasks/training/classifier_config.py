"""Configurations for training image classifiers, shared by audits.

An audit has one field `training` of one of these types, or of a type that adds settings. Each training method has its
own type, selected by its tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from tasks.contract.job import ADDED_LATER
from tasks.contract.ranges import Ranged
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers
from tasks.numerics.precision import Precision
from tasks.training.classifier import check_private
from tasks.training.recipe import Count, OptimiserName, Privacy, Rate, Recipe

T = TypeVar("T", bound="RegularisedTraining")


@dataclass(frozen=True, kw_only=True)
class NetworkTraining(Ranged):
    """A network trained by cross-entropy. Contains the settings that all such trainings share.

    A subclass turns a property into a setting by overriding it with a field.
    """

    augmentation: bool = False
    """Whether to shift and mirror training images at random; evaluation uses unchanged images."""
    epochs: Count = 20
    """Epochs of training."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: Rate = 1e-3
    """The initial learning rate."""
    batch: Count = 128
    """Images per step."""
    precision: Precision = field(default="float32", metadata={ADDED_LATER: True})
    """Ours: number format of the products in training; weights are always float32."""

    has_estimators: ClassVar[bool] = False  # whether the audit also trains scikit-learn estimators

    def conflicts(self) -> Iterator[str]:
        catalog.check(str(self.network), self.regularisers, self.width, self.has_estimators)
        recipe = self.recipe  # its ranges are checked on construction
        if self.guarantee is not None:
            check_private(self.network, self.regularisers.batch_norm, recipe)
        yield from ()

    @property
    def network(self) -> Network:
        """The network to train."""
        raise NotImplementedError

    @property
    def width(self) -> float:
        """The factor on the units and channels of its hidden layers."""
        return 1.0

    @property
    def regularisers(self) -> Regularisers:
        return Regularisers()

    @property
    def patience(self) -> int:
        """Number of epochs without a lower validation loss after which training stops; 0 disables early stopping."""
        return 0

    @property
    def schedule(self) -> tuple[tuple[int, float], ...]:
        """Pairs (epoch, factor) that change the learning rate."""
        return ()

    @property
    def guarantee(self) -> Privacy | None:
        """The privacy guarantee of the training, or None without one."""
        return None

    @property
    def recipe(self) -> Recipe:
        """The training recipe. Raises ValueError for impossible settings."""
        return Recipe(
            self.epochs,
            self.batch,
            self.learning_rate,
            self.patience,
            self.schedule,
            self.optimiser,
            precision=self.precision,
        )


@dataclass(frozen=True, kw_only=True)
class RegularisedTraining(NetworkTraining):
    """A training with the regularisers and the learning-rate schedule of published recipes."""

    dropout: bool = False
    """Whether to train with dropout."""
    batch_norm: bool = False
    """Whether the network has batch norm."""
    schedule: tuple[tuple[int, float], ...] = ()  # a field that replaces the property
    """Pairs (epoch, factor): after this epoch, the learning rate is the initial one times the factor."""

    @property
    def regularisers(self) -> Regularisers:
        return Regularisers(self.dropout, self.batch_norm)

    @property
    def is_regularised(self) -> bool:
        return self.dropout or self.batch_norm or self.augmentation

    def without_regularisers(self: T) -> T:
        """Return the same training without dropout, batch norm and augmentation."""
        return replace(self, dropout=False, batch_norm=False, augmentation=False)


@dataclass(frozen=True)
class ClassifierTraining(NetworkTraining):
    """A classifier trained by Engram: network, optimiser and privacy.

    Except for the network, the defaults follow Carlini et al.'s shadow models for data of MNIST's size.
    """

    tag: ClassVar[str] = "classifier"
    has_estimators: ClassVar[bool] = True

    network: Network = Network("cnn1")  # a field that replaces the property
    """The classifier: one of `tasks.models.catalog`, your own as package.module:factory, or a scikit-learn estimator
    such as sklearn:sklearn.ensemble.RandomForestClassifier, on which epochs, batch and learning_rate have no effect."""
    privacy: Privacy | None = None
    """Ours: train with differential privacy (mlp1 and cnn1 only); by default, train without."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if self.network.is_estimator and self.augmentation:
            yield f"augmentation is on and network is {self.network.name}; it must be off for scikit-learn estimators"
        if self.network.is_estimator and self.precision != "float32":
            yield (
                f"precision is {self.precision} and network is {self.network.name}; it must be float32 for "
                "scikit-learn estimators"
            )

    @property
    def guarantee(self) -> Privacy | None:
        return self.privacy
