"""The config of the audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tasks.datasets.dataset import Dataset
from tasks.datasets.released_partitions import FOLDS, REPETITIONS
from tasks.models.custom import is_own
from tasks.models.densities import DensityModel
from tasks.ranges import above_zero, at_least, not_negative, one_of, share, some_of
from tasks.training.density_config import Split
from tasks.training.privacy import Privacy
from tasks.training.recipe import Recipe

Estimator = Literal["kfold", "loo"]
Partitions = Literal["ours", "released"]
MeasureName = Literal["scores", "outliers", "neighbours", "duplicates", "kernel"]

RELEASED = ("mnist", "cifar10", "celeba")  # the data whose partitions the paper's code draws

# The measures for which models are trained; the others need none.
AROUND: tuple[MeasureName, ...] = ("scores", "outliers", "neighbours")

LEAST = {
    "repetitions": 1,
    "folds": 2,
    "left_out": 0,
    "examples": 0,
    "every": 0,
    "link": 0,
    "samples": 1,
    "refine": 0,
    "permutations": 1,
    "draws": 1,
    "seed": 0,
}


@dataclass(frozen=True)
class Density:
    """The density model, its data, the number of trainings, and the measures.

    The defaults are the published setting for MNIST: `model` trained for `epochs` with `batch` images a step, Adam at
    `learning_rate`. `tasks.models.densities` lists the models; one's own is written package.module:factory. Training
    uses the first `examples` training images (0: all).

    With `estimator` kfold there are `repetitions` random partitions (L) into `folds` (K), and a model for each fold
    that it has not seen; and one model of all data. With `partitions` released they are the first that the paper's
    released code draws (tasks.datasets.released_partitions). With loo there are `repetitions` models of all data (T)
    and as many without each of `left_out` observations, drawn at random (0: of each).

    log p of every observation is estimated with `samples` codes after every `every` epochs (0: after the last alone),
    from one view of it for all models or, as published, a view drawn `afresh` for each. With `refine` steps the codes
    are first fitted to each observation, and are no longer the encoder's. `asked` train is the audit; test scores
    images that no model was trained on as if they had been, which is a null. A training is a chain of links of `link`
    epochs each, and continues from the last of them after an interruption; 0: one job.

    An observation counts as memorised, and the generalisation gap as one, above `negligible` nats. The answer is *not
    seen* only where a single observation that is memorised by `detectable` nats would be found. The p-value of an
    observation compares its score with `permutations` others, or with all there are where hardly any of these reaches
    it; with fewer than 9,999 p-values are not counted together. The matched-count score is the mean of `draws`.
    `outlier_bin` and `score_bin` are widths of bins, in nats, of log p and of the score. `outliers` is the share of an
    outlier component in the likelihood, `privacy` has models trained with differential privacy. `seed` is the only
    source of chance.
    """

    data: Dataset = Dataset("mnist")
    model: DensityModel = DensityModel("vae")
    estimator: Estimator = "kfold"
    repetitions: int = 10
    folds: int = 10
    partitions: Partitions = "ours"
    left_out: int = 0
    asked: Split = "train"
    measures: tuple[MeasureName, ...] = ("scores",)
    examples: int = 0
    epochs: int = 100
    every: int = 5
    link: int = 0
    batch: int = 64
    learning_rate: float = 1e-3
    samples: int = 256
    afresh: bool = False
    refine: int = 0
    negligible: float = 0.1
    detectable: float = 10.0
    permutations: int = 99_999
    draws: int = 64
    outlier_bin: float = 10.0
    score_bin: float = 2.0
    outliers: float = 0.0
    privacy: Privacy | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, LEAST)
        _ = self.recipe  # its ranges are checked on construction
        above_zero(self, "outlier_bin", "score_bin", "detectable")
        one_of(self, "estimator", Estimator)
        one_of(self, "asked", Split)
        one_of(self, "partitions", Partitions)
        some_of(self, "measures", MeasureName)
        share(self, "outliers", one=False)
        not_negative(self, "negligible")
        if not self.detectable > self.negligible:
            raise ValueError(f"detectable is {self.detectable}; it must be above negligible, {self.negligible}")
        if self.estimator == "loo" and self.asked == "test":
            raise ValueError("asked is test and estimator loo; a training image alone can be left out")
        if self.estimator == "loo" and "neighbours" in self.measures:
            raise ValueError(
                "measures has neighbours; estimator must be kfold for it, which trains a model to draw from"
            )
        if self.privacy is not None and self.link:
            raise ValueError("privacy is given and link is not 0; private training is one job, by its noise")
        if self.partitions == "released":
            check_released(self)
        self.model.check()
        if self.refine and is_own(self.model.name):
            raise ValueError(
                f"refine is {self.refine}; it must be 0 for a model of your own, which has no codes of ours"
            )

    @property
    def recipe(self) -> Recipe:
        """The recipe of the models' training; ValueError where it is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate)

    @property
    def trains(self) -> bool:
        """Whether any of the measures needs models."""
        return any(measure in AROUND for measure in self.measures)

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


def tiny(config: Density) -> Density:
    """The same audit on embedded data, in seconds; slow networks get the smallest setting."""
    slow = config.model.name.startswith("conv")
    return replace(
        config,
        data=Dataset("photos#32x32#rgb" if slow else "digits"),
        repetitions=2,
        folds=min(config.folds, 3),
        partitions="ours",
        left_out=min(config.left_out, 3) or 3,
        examples=48 if slow else 120,
        epochs=min(config.epochs, 2),
        every=1 if config.every else 0,
        link=1 if config.link else 0,
        samples=min(config.samples, 8),
        permutations=min(config.permutations, 99),
        draws=min(config.draws, 8),
    )
