"""The methods of unlearning and their settings.

Each method is an alternative with a tag, which users write and which distinguishes stored results of methods with the
same settings. The papers tune epochs and learning rates to each data set and network. Those of distillation are of its
released code; the others are ours. Steps are those of the training's optimiser, where most of the papers take SGD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tasks.contract.ranges import Ascending, AtLeast, Finite, Ranged, UpTo
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Share
from tasks.training.recipe import Count, OptimiserName, Recipe

UnlearningName = Literal["retraining", "fine-tuning", "gradient-ascent", "random-labels", "distillation"]


@dataclass(frozen=True)
class Passes(Ranged):
    """So many passes over images at one learning rate."""

    epochs: Annotated[int, AtLeast(1)] = 10
    """Passes over the images, at most."""
    learning_rate: Annotated[float, Finite()] = 1e-3
    """The learning rate."""


@dataclass(frozen=True)
class TuningOnKept(Passes):
    """Further training on what is kept alone, by cross-entropy.

    The baseline of Golatkar, Achille & Soatto 2020, "Eternal sunshine of the spotless net", and of most papers since.
    """

    tag: ClassVar[UnlearningName] = "fine-tuning"


@dataclass(frozen=True)
class GradientAscent(Passes):
    """Steps up the cross-entropy of what is to be forgotten, without what is kept.

    It ends after the step with which the mean loss on the images to be forgotten (the first 1,000) reaches that on the
    validation images, which no training saw: an owner can see this, and what is as hard as new images counts as
    forgotten. At most `epochs`. Golatkar, Achille & Soatto 2020 call it negative gradient; the stop is the forgetting
    threshold of Jang et al. 2023, "Knowledge unlearning for mitigating privacy risks in language models", with losses.
    """

    tag: ClassVar[UnlearningName] = "gradient-ascent"

    learning_rate: Annotated[float, Finite()] = 1e-4
    """The learning rate."""


@dataclass(frozen=True)
class RandomLabels(Passes):
    """Further training on what is kept with its labels and on what is to be forgotten with random wrong ones.

    The wrong labels are drawn once, uniformly from the other classes. Graves, Nagisetty & Ganesh 2021, "Amnesiac
    machine learning".
    """

    tag: ClassVar[UnlearningName] = "random-labels"


@dataclass(frozen=True)
class Distillation(Ranged):
    """The model as its own teacher: the student obeys it on what is kept and departs from it on the rest.

    An epoch over what is kept minimises `cross_entropy` x cross-entropy + `divergence` x KL(teacher || student), one
    over what is to be forgotten maximises the KL, which is multiplied by the square of the temperature. Kurmanji et al.
    2023, "Towards unbounded machine unlearning" (SCRUB), eq. 3 and algorithm 1, with the settings of the released code
    for small data, less its weight decay.
    """

    tag: ClassVar[UnlearningName] = "distillation"

    epochs: Annotated[int, AtLeast(1)] = 10
    """Epochs over what is kept."""
    forgetting: Annotated[int, AtLeast(1), UpTo("epochs")] = 3
    """Epochs over what is to be forgotten, each before one of the first over what is kept."""
    learning_rate: Annotated[float, Finite()] = 5e-4
    """The learning rate, at first."""
    falls: Annotated[tuple[int, ...], Ascending(1, "epochs from 1 on, ascending")] = (5, 8, 9)
    """Epochs after which the learning rate falls tenfold."""
    cross_entropy: Annotated[float, AtLeast(0)] = 1.0
    """Weight of the cross-entropy."""
    divergence: Annotated[float, AtLeast(0)] = 0.5
    """Weight of KL(teacher || student)."""
    temperature: Annotated[float, Finite()] = 2.0
    """Temperature of both distributions."""

    def conflicts(self) -> Iterator[str]:
        if not (self.cross_entropy or self.divergence):
            yield "cross_entropy and divergence are both 0; one of them must be above 0"


@dataclass(frozen=True)
class Retraining(Ranged):
    """Training on what is kept alone, from scratch, as any model is trained."""

    tag: ClassVar[UnlearningName] = "retraining"


Method = TuningOnKept | GradientAscent | RandomLabels | Distillation
"""A method that starts from a trained model."""
UNLEARNING: Mapping[UnlearningName, type[Retraining | Method]] = {
    kind.tag: kind for kind in (Retraining, TuningOnKept, GradientAscent, RandomLabels, Distillation)
}
"""Every method by its name."""


@dataclass(frozen=True)
class Unlearning(Ranged):
    """What is kept and what is to be forgotten of the images that a classifier was trained on, and by which method.

    `validation`, `classes`, `augmentation`, `crop`, `optimiser` and `batch` are as in the training
    (`tasks.training.mixed.Mixture`); `seed` orders the minibatches and draws random labels.
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

    def conflicts(self) -> Iterator[str]:
        for name in ("kept", "forgotten"):
            if not getattr(self, name):
                yield f"{name} is empty; it needs at least one share"
        _ = self.recipe  # its ranges are checked on construction

    @property
    def recipe(self) -> Recipe:
        """How its steps are taken; ValueError where that is impossible."""
        return Recipe(self.method.epochs, self.batch, self.method.learning_rate, 0, (), self.optimiser)
