"""Training settings of the audit's classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.contract.ranges import AtLeast, Finite
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import Network
from tasks.training.classifier import Training
from tasks.training.classifier_config import RegularisedTraining
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining, guarantee_of, link_of
from tasks.training.recipe import Privacy


@dataclass(frozen=True, kw_only=True)
class CanaryTraining(RegularisedTraining):
    """Settings of every training run.

    The defaults are the published setting; the regularisers are the ones in Table 3.
    """

    width: Annotated[float, Finite()] = 1.0  # a field that replaces the property
    """Ours: factor on the number of units and channels of the hidden layers (mlp1, cnn1 and cnn2), rounded."""
    epochs: Annotated[int, AtLeast(1)] = 500
    """Maximum number of epochs."""
    patience: Annotated[int, AtLeast(0)] = 10  # a field that replaces the property
    """Epochs without a lower validation loss before training stops and returns to the best epoch; 0: never."""
    learning_rate: Annotated[float, Finite()] = 3e-4
    """Initial learning rate."""

    @property
    def network(self) -> Network:
        """The network that is trained."""
        return Network("mlp1")

    @property
    def link(self) -> int:
        """Epochs per link of the training chain. 0 means that the training is one job."""
        return 0

    def clean(self, data: Dataset, examples: int) -> Training:
        """Return the training without any canary on the first `examples` training images (0: all), with seed 0."""
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
            precision=self.precision,
        )


@dataclass(frozen=True)
class FollowedTraining(CanaryTraining):
    """A training run that is evaluated after every epoch, in one job."""

    tag: ClassVar[str] = "classifier"
    network: Network = Network("mlp1")
    """Classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""


@dataclass(frozen=True)
class WholeTraining(CanaryTraining):
    """A training run that is evaluated only at its end, so it can be divided into links, or private."""

    privacy: LinkedTraining | DifferentialPrivacy = LinkedTraining()
    """Ours: differential privacy (mlp1 and cnn1), or division of the training into links."""

    @property
    def guarantee(self) -> Privacy | None:
        return guarantee_of(self.privacy)

    @property
    def link(self) -> int:
        return link_of(self.privacy)


@dataclass(frozen=True)
class FeatureTraining(WholeTraining):
    """Training of a classifier."""

    tag: ClassVar[str] = "classifier"
    network: Network = Network("mlp1")
    """Classifier: one of `tasks.models.catalog`, or your own as package.module:factory."""


@dataclass(frozen=True)
class Mlp1Training(WholeTraining):
    """Training of an MLP-1, whose hidden units are observed."""

    tag: ClassVar[str] = "mlp1"
