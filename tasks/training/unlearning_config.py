"""The unlearning methods and their settings.

Each method is an alternative with a tag, which users write and which distinguishes the stored results of methods with
the same settings. The papers tune epochs and learning rates to each data set and network. The settings of distillation
follow its released code; the others are Engram's. Steps use the optimiser of the training, while most papers use SGD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from tasks.contract.job import ADDED_LATER
from tasks.contract.ranges import Ascending, AtLeast, Finite, Ranged, UpTo
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Share
from tasks.numerics.precision import Precision
from tasks.training.recipe import Count, OptimiserName, Recipe

UnlearningName = Literal["retraining", "fine-tuning", "gradient-ascent", "random-labels", "distillation"]


@dataclass(frozen=True)
class Passes(Ranged):
    """A number of passes over images at one learning rate."""

    epochs: Annotated[int, AtLeast(1)] = 10
    """Maximum number of passes over the images."""
    learning_rate: Annotated[float, Finite()] = 1e-3
    """The learning rate."""


@dataclass(frozen=True)
class TuningOnKept(Passes):
    """Further training by cross-entropy on the kept images only.

    The baseline of Golatkar, Achille & Soatto 2020, "Eternal sunshine of the spotless net", and of most papers since.
    """

    tag: ClassVar[UnlearningName] = "fine-tuning"


@dataclass(frozen=True)
class GradientAscent(Passes):
    """Gradient ascent on the cross-entropy of the images to be forgotten, without using the kept images.

    It ends when the mean loss on the images to be forgotten (the first 1,000) reaches that on the validation images,
    which are new to the model, or after `epochs`. A model owner can measure both losses, and images with the loss of
    new images count as forgotten. Golatkar, Achille & Soatto 2020 call it negative gradient. The stopping rule is the
    forgetting threshold of Jang et al. 2023, "Knowledge unlearning for mitigating privacy risks in language models",
    applied to losses.
    """

    tag: ClassVar[UnlearningName] = "gradient-ascent"

    learning_rate: Annotated[float, Finite()] = 1e-4
    """The learning rate."""


@dataclass(frozen=True)
class RandomLabels(Passes):
    """Further training on kept images with their labels, and on images to be forgotten with random wrong labels.

    The wrong labels are drawn once, uniformly from the other classes. Graves, Nagisetty & Ganesh 2021, "Amnesiac
    machine learning".
    """

    tag: ClassVar[UnlearningName] = "random-labels"


@dataclass(frozen=True)
class Distillation(Ranged):
    """Distillation from the original model: the student follows it on kept images and moves away from it on the others.

    An epoch over the kept images minimises `cross_entropy` x cross-entropy + `divergence` x KL(teacher || student). An
    epoch over the images to be forgotten maximises the KL. In both cases, the KL is multiplied by the square of the
    temperature. Kurmanji et al. 2023, "Towards unbounded machine unlearning" (SCRUB), eq. 3 and algorithm 1, with the
    settings of the released code for small data, without its weight decay.
    """

    tag: ClassVar[UnlearningName] = "distillation"

    epochs: Annotated[int, AtLeast(1)] = 10
    """Epochs over the kept images."""
    forgetting: Annotated[int, AtLeast(1), UpTo("epochs")] = 3
    """Epochs over the images to be forgotten, each before one of the first epochs over the kept images."""
    learning_rate: Annotated[float, Finite()] = 5e-4
    """The initial learning rate."""
    falls: Annotated[tuple[int, ...], Ascending(1, "ascending epochs from 1")] = (5, 8, 9)
    """Epochs after which the learning rate falls tenfold."""
    cross_entropy: Annotated[float, AtLeast(0)] = 1.0
    """Weight of the cross-entropy."""
    divergence: Annotated[float, AtLeast(0)] = 0.5
    """Weight of KL(teacher || student)."""
    temperature: Annotated[float, Finite()] = 2.0
    """Temperature of both distributions."""

    def conflicts(self) -> Iterator[str]:
        if not (self.cross_entropy or self.divergence):
            yield "cross_entropy and divergence are both 0; set one of them above 0"


@dataclass(frozen=True)
class Retraining(Ranged):
    """Training from scratch on the kept images only."""

    tag: ClassVar[UnlearningName] = "retraining"


Method = TuningOnKept | GradientAscent | RandomLabels | Distillation
"""A method that starts from a trained model."""
UNLEARNING: Mapping[UnlearningName, type[Retraining | Method]] = {
    kind.tag: kind for kind in (Retraining, TuningOnKept, GradientAscent, RandomLabels, Distillation)
}
"""Every method, keyed by name."""


@dataclass(frozen=True)
class Unlearning(Ranged):
    """The kept images, the images to be forgotten, and the method.

    `validation`, `classes`, `augmentation`, `crop`, `optimiser`, `batch` and `precision` are as in the training
    (`tasks.training.mixed.Mixture`). `seed` determines the order of minibatches and the random labels.
    """

    kept: tuple[Share, ...]
    forgotten: tuple[Share, ...]
    method: Method
    validation: Dataset
    classes: Annotated[int, AtLeast(2)]
    augmentation: bool = False
    crop: Annotated[int, AtLeast(0)] = 0
    seed: Annotated[int, AtLeast(0)] = 0
    optimiser: OptimiserName = "adam"
    batch: Count = 128
    # The recipe's text, which identifies states of chains, contains the precision.
    precision: Precision = field(default="float32", repr=False, metadata={ADDED_LATER: True})

    def conflicts(self) -> Iterator[str]:
        for name in ("kept", "forgotten"):
            if not getattr(self, name):
                yield f"{name} is empty; it must contain at least one share"
        _ = self.recipe  # its ranges are checked on construction

    @property
    def recipe(self) -> Recipe:
        """The recipe of the unlearning steps. Raises ValueError for impossible settings."""
        return Recipe(
            self.method.epochs,
            self.batch,
            self.method.learning_rate,
            0,
            (),
            self.optimiser,
            precision=self.precision,
        )
