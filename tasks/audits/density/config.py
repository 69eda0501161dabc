"""The config of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.options import split as split_name
from tasks.datasets.planting import Planting
from tasks.models.catalog import DensityModel
from tasks.models.custom import is_own
from tasks.training.density_config import FOLDS, REPETITIONS, Split
from tasks.training.recipe import Count, Privacy, Rate, Recipe

Estimator = Literal["kfold", "loo"]
Partitions = Literal["ours", "released"]
MeasureName = Literal["scores", "outliers", "neighbours", "duplicates", "kernel"]

RELEASED = ("mnist", "cifar10", "celeba")  # the data whose partitions the paper's code draws

# The measures for which models are trained; the others need none.
AROUND: tuple[MeasureName, ...] = ("scores", "outliers", "neighbours")


@dataclass(frozen=True)
class Density(Ranged):
    """The density model, its data, the number of trainings, and the measures.

    The defaults are the published setting for MNIST. With `estimator` kfold there is, beside the models of the folds,
    one of all data.
    """

    data: Dataset = Dataset("mnist")
    """The observations: images."""
    model: DensityModel = DensityModel("vae")
    """The density model: one of `tasks.models.catalog`, or your own as package.module:factory."""
    width: Annotated[float, Finite()] = 1.0
    """Ours: the factor on the units of its hidden layers (vae alone), rounded to whole ones; its code stays."""
    estimator: Estimator = "kfold"
    """kfold: models that each left out a fold of the data; loo: models that left out one observation."""
    repetitions: Annotated[int, AtLeast(1)] = 10
    """Random partitions into folds (L); of loo, models of all data (T), and as many without each of `left_out`."""
    folds: Annotated[int, AtLeast(2)] = 10
    """Folds of a partition (K), with a model for each that has not seen it."""
    partitions: Partitions = "ours"
    """Ours: random partitions of our own, or the first that the paper's released code draws."""
    left_out: Annotated[int, AtLeast(0)] = 0
    """Of loo, how many observations are left out, drawn at random; 0: every one."""
    asked: Split = "train"
    """Ours: train is the audit; test asks about images that no model was trained on, which is a null."""
    measures: tuple[MeasureName, ...] = ("scores",)
    """What is measured."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: train on the first so many training images; 0: all."""
    epochs: Count = 100
    """Epochs of training."""
    every: Annotated[int, AtLeast(0)] = 5
    """Epochs between estimates of log p; 0: after the last alone."""
    link: Annotated[int, AtLeast(0)] = 0
    """Ours: epochs per link of the chain that a training is, from whose ends it goes on after an interruption; 0:
    one job."""
    batch: Count = 64
    """Images a step."""
    learning_rate: Rate = 1e-3
    """The learning rate of Adam."""
    samples: Annotated[int, AtLeast(1)] = 256
    """Codes with which log p of an observation is estimated."""
    afresh: bool = False
    """Whether each model sees a view of its own of an observation, as published, or all see one."""
    refine: Annotated[int, AtLeast(0)] = 0
    """Ours: steps by which codes are first fitted to each observation; 0: they are the encoder's."""
    negligible: Annotated[float, Finite(zero=True)] = 0.1
    """Ours: nats from which an observation, or the generalisation gap, counts as memorised."""
    detectable: Annotated[float, Finite()] = field(default=10.0, metadata={ANSWER_ONLY: True})
    """Ours: not seen is answered only where one observation memorised by so many nats would be found."""
    permutations: Annotated[int, AtLeast(1)] = 99_999
    """Ours: scores that an observation's is compared with for its p-value, or all where hardly any reaches it;
    below 9,999 p-values are not counted together."""
    draws: Annotated[int, AtLeast(1)] = 64
    """Ours: draws whose mean the matched-count score is."""
    outlier_bin: Annotated[float, Finite()] = 10.0
    """Width of the bins of log p, in nats."""
    score_bin: Annotated[float, Finite()] = 2.0
    """Width of the bins of the score, in nats."""
    outliers: Annotated[float, Share(one=False)] = 0.0
    """The share of an outlier component in the likelihood (section 5); 0: none."""
    privacy: Privacy | None = None
    """Train with differential privacy (section 5); none: without."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def conflicts(self) -> Iterator[str]:
        _ = self.recipe  # its ranges are checked on construction
        if not self.detectable > self.negligible:
            yield f"detectable is {self.detectable}; it must be above negligible, {self.negligible}"
        if self.estimator == "loo" and self.asked == "test":
            yield "asked is test and estimator loo; a training image alone can be left out"
        if self.estimator == "loo" and "neighbours" in self.measures:
            yield "measures has neighbours; estimator must be kfold for it, which trains a model to draw from"
        if self.privacy is not None and self.link:
            yield "privacy is given and link is not 0; private training is one job, by its noise"
        if self.partitions == "released":
            check_released(self)
        self.model.check(self.width)
        if self.refine and is_own(self.model.name):
            yield f"refine is {self.refine}; it must be 0 for a model of your own, which has no codes of ours"

    @property
    def recipe(self) -> Recipe:
        """The recipe of the models' training; ValueError where it is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate)

    @property
    def trains(self) -> bool:
        """Whether any of the measures needs models."""
        return any(measure in AROUND for measure in self.measures)

    @property
    def models(self) -> int:
        """Models of a repetition (K): one for each fold; of loo the two with and without a row."""
        return 2 if self.estimator == "loo" else self.folds

    @property
    def is_null(self) -> bool:
        """Whether models are asked about images that none was trained on."""
        return self.asked == "test" and self.trains

    @property
    def planting(self) -> Planting | None:
        """What is planted in the images that the models are asked about."""
        return split_name(self.data.name)[1].planting if self.asked == "train" and self.trains else None

    @property
    def recorded(self) -> tuple[int, ...]:
        """The epochs after which log p is estimated, the last among them."""
        return (*range(self.every, self.epochs, self.every), self.epochs) if self.every else (self.epochs,)


def check_released(config: Density) -> None:
    """ValueError where the released code of the paper draws no partitions for such a run."""
    there: tuple[tuple[str, object, bool, str], ...] = (
        ("data", config.data.name, config.data.name in RELEASED, f"one of {', '.join(RELEASED)}"),
        ("estimator", config.estimator, config.estimator == "kfold", "kfold"),
        ("asked", config.asked, config.asked == "train", "train"),
        ("examples", config.examples, config.examples == 0, "0, all of them"),
        ("folds", config.folds, config.folds == FOLDS, f"{FOLDS}"),
        ("repetitions", config.repetitions, config.repetitions <= REPETITIONS, f"at most {REPETITIONS}"),
    )
    for name, value, drawn, allowed in there:
        if not drawn:
            raise ValueError(f"partitions is released and {name} is {value}; it must be {allowed}")


@dataclass(frozen=True)
class About:
    """The config of the summary: the facts about a run that its tables do not hold.

    `planned` is the number of models planned for an observation, `smallest` the smallest p-value that it can have,
    `published` the cell of the paper whose every setting the run has, if any, `privacy` the guarantee of models that
    left out a single row, and `together` whether p-values may be counted together (tasks.audits.density.tail).
    `copies` are the exact copies among the observations, which are held out together. `planted` says what is planted in
    the data that the models are asked about, such as inverted10; empty for nothing.
    """

    planned: int
    smallest: float
    published: str = ""
    privacy: Privacy | None = None
    together: bool = True
    planted: str = ""
    copies: CopyCount = CopyCount()
