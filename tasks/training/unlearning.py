"""Unlearning: a classifier that was trained on a mixture is made to forget some of it, by one of several methods.

It starts from the weights of a training's table. Each method has a `name`, by which one that is stored is told from
another with the same settings; what it does, step by step, is in `tasks.training.unlearner`. Planning imports no torch.

The papers tune epochs and learning rates to each data set and network. Those of distillation are of its released code;
the others are ours. Steps are those of the training's optimiser, where most of the papers take SGD.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

import numpy as np
import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Share
from tasks.training.mixed import pool_data, table_of
from tasks.training.recipe import OptimiserName, Recipe
from tasks.worker.work import Work, format_shape

UnlearningName = Literal["retraining", "fine-tuning", "gradient-ascent", "random-labels", "distillation"]
UNLEARNING: tuple[UnlearningName, ...] = get_args(UnlearningName)


@dataclass(frozen=True)
class Passes(Ranged):
    """So many passes over images at one learning rate."""

    epochs: Annotated[int, AtLeast(1)] = 10
    """Passes over the images, at most."""
    learning_rate: Annotated[float, Finite()] = 1e-3
    """The learning rate."""


@dataclass(frozen=True)
class FineTuning(Passes):
    """Further training on what is kept alone, by cross-entropy.

    The baseline of Golatkar, Achille & Soatto 2020, "Eternal sunshine of the spotless net", and of most papers since.
    """

    name: Literal["fine-tuning"] = field(default="fine-tuning", kw_only=True)
    """The method's name."""


@dataclass(frozen=True)
class GradientAscent(Passes):
    """Steps up the cross-entropy of what is to be forgotten, without what is kept.

    It ends after the step with which the mean loss on the images to be forgotten (the first 1,000) reaches that on the
    validation images, which no training saw: an owner can see this, and what is as hard as new images counts as
    forgotten. At most `epochs`. Golatkar, Achille & Soatto 2020 call it negative gradient; the stop is the forgetting
    threshold of Jang et al. 2023, "Knowledge unlearning for mitigating privacy risks in language models", with losses.
    """

    learning_rate: Annotated[float, Finite()] = 1e-4
    """The learning rate."""
    name: Literal["gradient-ascent"] = field(default="gradient-ascent", kw_only=True)
    """The method's name."""


@dataclass(frozen=True)
class RandomLabels(Passes):
    """Further training on what is kept with its labels and on what is to be forgotten with random wrong ones.

    The wrong labels are drawn once, uniformly from the other classes. Graves, Nagisetty & Ganesh 2021, "Amnesiac
    machine learning".
    """

    name: Literal["random-labels"] = field(default="random-labels", kw_only=True)
    """The method's name."""


@dataclass(frozen=True)
class Distillation(Ranged):
    """The model as its own teacher: the student obeys it on what is kept and departs from it on the rest.

    An epoch over what is kept minimises `cross_entropy` x cross-entropy + `divergence` x KL(teacher || student), one
    over what is to be forgotten maximises the KL, which is multiplied by the square of the temperature. Kurmanji et al.
    2023, "Towards unbounded machine unlearning" (SCRUB), eq. 3 and algorithm 1, with the settings of the released code
    for small data, less its weight decay.
    """

    epochs: Annotated[int, AtLeast(1)] = 10
    """Epochs over what is kept."""
    forgetting: Annotated[int, AtLeast(1)] = 3
    """Epochs over what is to be forgotten, each before one of the first over what is kept."""
    learning_rate: Annotated[float, Finite()] = 5e-4
    """The learning rate, at first."""
    falls: tuple[int, ...] = (5, 8, 9)
    """Epochs after which the learning rate falls tenfold."""
    cross_entropy: Annotated[float, AtLeast(0)] = 1.0
    """Weight of the cross-entropy."""
    divergence: Annotated[float, AtLeast(0)] = 0.5
    """Weight of KL(teacher || student)."""
    temperature: Annotated[float, Finite()] = 2.0
    """Temperature of both distributions."""
    name: Literal["distillation"] = field(default="distillation", kw_only=True)
    """The method's name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.forgetting > self.epochs:
            raise ValueError(f"forgetting is {self.forgetting}; it must be at most epochs, which is {self.epochs}")
        if not (self.cross_entropy or self.divergence):
            raise ValueError("cross_entropy and divergence are both 0; one of them must be above 0")
        if list(self.falls) != sorted(set(self.falls)) or any(epoch < 1 for epoch in self.falls):
            raise ValueError(f"falls is {self.falls}; it must be epochs from 1 on, ascending")


Method = FineTuning | GradientAscent | RandomLabels | Distillation


@dataclass(frozen=True)
class UnlearningSettings:
    """The settings of every method that starts from a trained model. Retraining has those of any training."""

    fine_tuning: FineTuning = FineTuning()
    """Of fine-tuning."""
    gradient_ascent: GradientAscent = GradientAscent()
    """Of gradient ascent."""
    random_labels: RandomLabels = RandomLabels()
    """Of random labels."""
    distillation: Distillation = Distillation()
    """Of distillation."""

    def method_named(self, name: UnlearningName) -> Method:
        """The settings of the method of this name; ValueError for retraining, which starts from no model."""
        match name:
            case "fine-tuning":
                return self.fine_tuning
            case "gradient-ascent":
                return self.gradient_ascent
            case "random-labels":
                return self.random_labels
            case "distillation":
                return self.distillation
        raise ValueError("retraining starts from no model; it is a training of its own")


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
    batch: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kept", "forgotten"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; it needs at least one share")
        _ = self.recipe  # its ranges are checked on construction

    @property
    def recipe(self) -> Recipe:
        """How its steps are taken; ValueError where that is impossible."""
        return Recipe(self.method.epochs, self.batch, self.method.learning_rate, 0, (), self.optimiser)


def work(config: Unlearning) -> Work:
    """What the steps compute; those of gradient ascent may end earlier."""
    from tasks.datasets.catalog import load

    images = load(config.validation)
    kept, forgotten = (
        sum(len(share.rows(load(share.part.data))) for share in shares) for shares in (config.kept, config.forgotten)
    )
    seen = forgotten if isinstance(config.method, GradientAscent) else kept + forgotten
    # The network is its input's, and no config says which: it is that of the reference.
    return Work({f"unlearn on {format_shape(images.shape)} by {config.method.name}": config.method.epochs * seen})


@task(version=1, name="unlearning.unlearn", gpus=1.0, trains=1, work=work)
def unlearn(config: Unlearning, inputs: Inputs) -> pa.Table:
    """The network of the (one) input's table after unlearning, as a table of MIXED.

    `examples` and `train_accuracy` are of the images that are kept; the epochs are those of unlearning.
    """
    from tasks.models.networks import architecture_of, weights_of_model
    from tasks.training.cross_entropy import CrossEntropy
    from tasks.training.unlearner import unlearn_model

    (trained,) = inputs
    network, weights = architecture_of(trained), weights_of_model(trained)
    pool = pool_data(tuple(dict.fromkeys(share.part.data for share in (*config.kept, *config.forgotten))), config)
    kept, forgotten = pool.rows(config.kept), pool.rows(config.forgotten)
    common = np.intersect1d(kept, forgotten)
    if len(common):
        raise ValueError(f"{len(common):,} images are both kept and forgotten; the shares must be apart")
    learning = CrossEntropy(network, config.augmentation, config.crop, pool.images.shape)
    end = unlearn_model(learning, config.recipe, config.method, pool.images, kept, forgotten, weights, config.seed)
    return table_of(config.seed, network, pool.images, kept, end)
