"""How the classifiers of the audit are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, TypeVar

from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.datasets.dataset import Dataset
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers
from tasks.training.classifier import Training, check_private
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining, guarantee_of, link_of
from tasks.training.recipe import OptimiserName, Privacy, Recipe

T = TypeVar("T", bound="NetworkTraining")


@dataclass(frozen=True)
class NetworkTraining(Ranged):
    """What every way of training a network has. The defaults are the published setting."""

    width: Annotated[float, Finite()] = 1.0
    """Ours: the factor on the units and channels of its hidden layers (mlp1, cnn1 and cnn2), rounded to whole ones."""
    dropout: bool = False
    """Whether it is trained with dropout, as in Table 3."""
    batch_norm: bool = False
    """Whether it has batch norm, as in Table 3."""
    augmentation: bool = False
    """Whether training images are shifted and mirrored at random, as in Table 3."""
    epochs: Annotated[int, AtLeast(1)] = 500
    """Epochs of training, at most."""
    patience: Annotated[int, AtLeast(0)] = 10
    """Epochs without a lower validation loss after which training stops and goes back to the best; 0: never."""
    optimiser: OptimiserName = "adam"
    """The optimiser."""
    learning_rate: Annotated[float, Finite()] = 3e-4
    """The learning rate, at first."""
    schedule: tuple[tuple[int, float], ...] = ()
    """Pairs (epoch, factor): after so many epochs the learning rate is the first one times the factor."""
    batch: Annotated[int, AtLeast(1)] = 128
    """Images a step."""

    def conflicts(self) -> Iterator[str]:
        _ = self.recipe  # its schedule is checked on construction
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm), self.width)
        yield from ()

    @property
    def network(self) -> Network:
        """The network that is trained."""
        return Network("mlp1")

    @property
    def link(self) -> int:
        """Epochs for each link of the chain that a training is; 0 for one job."""
        return 0

    @property
    def guarantee(self) -> Privacy | None:
        """The guarantee that the network is trained with; None without one."""
        return None

    @property
    def recipe(self) -> Recipe:
        """How its networks are trained; ValueError where that is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate, self.patience, self.schedule, self.optimiser)

    @property
    def is_regularised(self) -> bool:
        return self.dropout or self.batch_norm or self.augmentation

    def without_regularisers(self: T) -> T:
        """The same training without dropout, batch norm and augmentation."""
        return replace(self, dropout=False, batch_norm=False, augmentation=False)

    def clean(self, data: Dataset, examples: int) -> Training:
        """The training without any canary on the first `examples` training images (0: all), with seed 0."""
        return Training(
            data=data,
            network=self.network,
            dropout=self.dropout,
            batch_norm=self.batch_norm,
            augmentation=self.augmentation,
            seed=0,
            examples=examples,
            epochs=self.epochs,
            patience=self.patience,
            optimiser=self.optimiser,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            batch=self.batch,
            privacy=self.guarantee,
            width=self.width,
        )


@dataclass(frozen=True)
class FollowedTraining(NetworkTraining):
    """A training that is evaluated after every epoch, in one job."""

    tag: ClassVar[str] = "classifier"
    network: Network = Network("mlp1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""


@dataclass(frozen=True)
class WholeTraining(NetworkTraining):
    """A training of which only the end is evaluated: it can be divided into links, or private."""

    privacy: LinkedTraining | DifferentialPrivacy = LinkedTraining()
    """Ours: whether training is differentially private (mlp1 and cnn1), or can be divided into links."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if self.guarantee is not None:
            check_private(self.network, self.batch_norm, self.recipe)

    @property
    def guarantee(self) -> Privacy | None:
        return guarantee_of(self.privacy)

    @property
    def link(self) -> int:
        return link_of(self.privacy)


@dataclass(frozen=True)
class ClassifierTraining(WholeTraining):
    """How a classifier is trained here."""

    tag: ClassVar[str] = "classifier"
    network: Network = Network("mlp1")
    """The classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""


@dataclass(frozen=True)
class Mlp1Training(WholeTraining):
    """How the network whose hidden units are observed is trained: an MLP-1."""

    tag: ClassVar[str] = "mlp1"
