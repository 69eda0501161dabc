"""Presets: the paper's tables and figures, one cell per model and data set, and our own configurations.

The paper's numbers appear only in runs that repeat all settings of a cell (section 4.1 and supplement B). The published
score is biased upwards by an amount that depends on the numbers of partitions and folds and on the variation of log p
between models, which in turn depends on codes, epochs and the resampling of pixels. Presets named after the paper's
data and figures resample pixels as published. Ours use one view for all models and end in `-one-view`. Van den Burg &
Williams 2021, captions of figures 2, 4 and 7 to 9. The ends of the ranges are approximate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tasks.audits.density.config import (
    Density,
    KernelDensity,
    KFold,
    Memorization,
    ModelTraining,
    NearDuplicates,
    NeighbourMeasure,
    OutlierMeasure,
    PublishedFolds,
    Question,
    ScoreMeasure,
    SingleRows,
)
from tasks.contract.ranges import with_defaults
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel
from tasks.programs.config import Program
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining

AROUND = (ScoreMeasure(), OutlierMeasure(), NeighbourMeasure())
LARGE = (ScoreMeasure(), OutlierMeasure(500.0), NeighbourMeasure(50.0))  # wider bins for larger images
MNIST3 = Memorization(measures=AROUND, resample_pixels=True)
MNIST4 = replace(MNIST3, training=ModelTraining(learning_rate=1e-4))
CIFAR10 = Memorization(
    data=Dataset("cifar10"),
    training=ModelTraining(DensityModel("conv-vae"), evaluation_interval=50, privacy=LinkedTraining(50)),
    measures=LARGE[:2],
    samples=128,
    resample_pixels=True,
)
CELEBA = replace(
    CIFAR10,
    data=Dataset("celeba"),
    training=ModelTraining(
        DensityModel("conv-vae-one-scale"), epochs=50, evaluation_interval=25, privacy=LinkedTraining(25)
    ),
    measures=LARGE,
)
TINY_ROWS = 120
QUICKSTART = Memorization(
    data=Dataset("digits"),
    training=ModelTraining(epochs=50, evaluation_interval=25),
    estimator=KFold(5),
    measures=(ScoreMeasure(), OutlierMeasure(25.0), NeighbourMeasure(5.0)),
    repetitions=6,
    samples=64,
)
# Leave-one-out on few data. The epsilon check needs few observations, each held out of many trainings.
ALONE = Memorization(
    data=Dataset("digits"),
    training=ModelTraining(epochs=20, evaluation_interval=0),
    estimator=SingleRows(10),
    repetitions=20,
    samples=64,
)
PRIVATE = DifferentialPrivacy(epsilon=8.0)
# Used with several epsilons. With few small images each image matters most, and a training takes a second.
LADDER = replace(
    ALONE,
    data=Dataset("digits#8x8"),
    training=ModelTraining(epochs=100, evaluation_interval=0, batch=20, learning_rate=3e-3),
    estimator=SingleRows(4),
    repetitions=6,
    examples=20,
)
EPSILONS = (64.0, 8.0, 1.0)


def _with_one_view(config: Memorization) -> Memorization:
    """Use one view of each observation for all models, so that log p varies only because models differ."""
    return replace(config, resample_pixels=False)


def _with_training(config: Memorization, **settings: Any) -> Memorization:
    """Replace settings of the training."""
    return replace(config, training=replace(config.training, **settings))


def only(config: Memorization, *tags: str) -> Memorization:
    """Keep only the measures with these tags."""
    return replace(config, measures=tuple(measure for measure in config.measures if measure.tag in tags))


PLAIN = only(_with_one_view(MNIST3), "scores")
QUESTIONS: Mapping[str, Question | tuple[Question, ...]] = {
    "quickstart": QUICKSTART,
    "null": replace(only(QUICKSTART, "scores"), estimator=KFold(5, evaluation_split="test")),
    "planted": (
        replace(only(QUICKSTART, "scores"), data=Dataset("digits#inverted10")),
        replace(only(QUICKSTART, "scores"), data=Dataset("digits#duplicated10")),
    ),
    "smoke": replace(
        QUICKSTART,
        training=ModelTraining(epochs=4, evaluation_interval=2),
        estimator=KFold(3),
        repetitions=2,
        examples=200,
        samples=8,
    ),
    "mnist3": MNIST3,
    "mnist4": MNIST4,
    "cifar10": CIFAR10,
    "celeba": CELEBA,
    "mnist3-one-view": _with_one_view(MNIST3),
    "mnist4-one-view": _with_one_view(MNIST4),
    "cifar10-one-view": _with_one_view(CIFAR10),
    "celeba-one-view": _with_one_view(CELEBA),
    "figure1": KernelDensity(),
    "figure2": only(CIFAR10, "scores"),
    "figure3": only(CELEBA, "scores", "outliers"),
    "figure4": (only(MNIST3, "scores"), only(MNIST4, "scores")),
    "figure5": only(CELEBA, "scores", "neighbours"),
    "figure6": NearDuplicates(),
    "figure7": only(MNIST3, "scores"),
    "figure8": only(MNIST4, "scores"),
    "figure9": only(CELEBA, "scores"),
    "figure10": only(MNIST3, "scores", "outliers"),
    "figure11": only(MNIST4, "scores", "outliers"),
    "figure12": only(MNIST3, "scores", "neighbours"),
    "figure13": only(MNIST4, "scores", "neighbours"),
    "mitigation": (
        PLAIN,
        _with_training(PLAIN, outlier_share=0.05),
        _with_training(PLAIN, privacy=PRIVATE),
        ALONE,
        _with_training(ALONE, privacy=PRIVATE),
    ),
    "ladder": (LADDER, *(_with_training(LADDER, privacy=DifferentialPrivacy(epsilon)) for epsilon in EPSILONS)),
}


def _configs(questions: Question | tuple[Question, ...]) -> Density | tuple[Density, ...]:
    if isinstance(questions, tuple):
        return tuple(map(Density, questions))
    return Density(questions)


PRESETS: Mapping[str, Density | tuple[Density, ...]] = {
    preset: _configs(questions) for preset, questions in QUESTIONS.items()
}

# What each preset repeats: a part of the paper, or one of our own settings.
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: digits, 6 partitions into 5 folds",
    "null": "ours: quickstart, evaluated on images that no model was trained on",
    "planted": "ours: quickstart with ten negatives planted in the data, and with ten duplicated images",
    "smoke": "ours: 200 digits, 4 epochs",
    "mnist3": "MNIST at learning rate 1e-3, L = K = 10",
    "mnist4": "MNIST at learning rate 1e-4, L = K = 10",
    "cifar10": "CIFAR-10, the convolutional autoencoder",
    "celeba": "CelebA, the convolutional autoencoder",
    "mnist3-one-view": "ours: mnist3 with one view of an image for all models, which adds no noise",
    "mnist4-one-view": "ours: mnist4 with one view of an image for all models",
    "cifar10-one-view": "ours: cifar10 with one view of an image for all models",
    "celeba-one-view": "ours: celeba with one view of an image for all models",
    "figure1": "Figure 1: a density whose scores are known exactly",
    "figure2": "Figure 2: observations of low, median and high M, CIFAR-10",
    "figure3": "Figure 3: are the highly memorised outliers? CelebA",
    "figure4": "Figure 4: losses, quantiles during training and M, at two learning rates",
    "figure5": "Figure 5: the nearest-neighbour ratio and M, CelebA",
    "figure6": "Figure 6: near duplicates inside CIFAR-10's training set",
    "figure7": "Figure 7: observations of low, median and high M, MNIST at 1e-3",
    "figure8": "Figure 8: the same at 1e-4",
    "figure9": "Figure 9: the same, CelebA",
    "figure10": "Figure 10: are the highly memorised outliers? MNIST at 1e-3",
    "figure11": "Figure 11: the same at 1e-4",
    "figure12": "Figure 12: the nearest-neighbour ratio and M, MNIST at 1e-3",
    "figure13": "Figure 13: the same at 1e-4",
    "mitigation": "ours: without mitigation, with an outlier component and with differential privacy (section 5)",
    "ladder": "ours: leave-one-out on 20 digits, without privacy and at three epsilons",
}


# The published numbers.
Numbers = Mapping[str, float]  # by statistic

CELLS: Mapping[str, tuple[Memorization, Numbers]] = {
    "MNIST, 1e-3": (MNIST3, {"median": 4.4, "lowest": -18.0, "highest": 210.0}),
    "MNIST, 1e-4": (MNIST4, {"median": 3.5, "lowest": -13.0, "highest": 80.0}),
    "CIFAR-10": (CIFAR10, {"median": 97.0, "lowest": -180.0, "highest": 900.0}),
    "CelebA": (CELEBA, {"median": 60.0, "lowest": -450.0, "highest": 6500.0}),
}


OPEN = ("measures", "negligible", "detectable", "permutations", "draws", "seed")


def repeats(config: Memorization) -> str:
    """Return the cell whose settings the configuration repeats. Empty if there is none."""
    if isinstance(config.training, Program):
        return ""
    return next(
        (name for name, (cell, _) in CELLS.items() if comparable_config(cell) == comparable_config(config)),
        "",
    )


def numbers(cell: str) -> Numbers:
    """Return the published numbers of the cell. Empty for an empty name."""
    return CELLS[cell][1] if cell else {}


def comparable_config(config: Memorization) -> Memorization:
    """Reset the seed, the draws and settings that do not affect the final score to their defaults.

    Asserts that Engram trains the models.
    """
    assert isinstance(config.training, ModelTraining)
    estimator = KFold(config.estimator.folds) if isinstance(config.estimator, PublishedFolds) else config.estimator
    privacy = config.training.privacy if config.guarantee else LinkedTraining()
    training = with_defaults(config.training, ("evaluation_interval",), privacy=privacy)
    return with_defaults(config, OPEN, data=Dataset(config.data.name), training=training, estimator=estimator)


def tiny(config: Density) -> Density:
    """Reduce the audit to seconds on embedded data. Slow networks get the smallest setting."""
    match config.question:
        case Memorization() as question:
            return Density(_tiny_observations(question))
        case NearDuplicates():
            return Density(NearDuplicates(Dataset("photos#32x32#rgb"), 48))
        case KernelDensity():
            return config


def _tiny_observations(config: Memorization) -> Memorization:
    training = config.training
    if isinstance(training, Program):  # keeps its data
        return replace(_tiny_design(config, 3), examples=min(config.examples or TINY_ROWS, TINY_ROWS))
    slow = training.model.name.startswith("conv")
    planted = "" if config.planting is None else f"#{config.planting}"
    return replace(
        _tiny_design(config, 2 if slow else 3),
        data=Dataset("photos#32x32#rgb" if slow else f"digits{planted}"),
        training=replace(
            training,
            epochs=min(training.epochs, 2),
            evaluation_interval=1 if training.evaluation_interval else 0,
            privacy=LinkedTraining(1) if training.link else training.privacy,
        ),
        examples=48 if slow else TINY_ROWS,
        samples=min(config.samples, 8),
    )


def _tiny_design(config: Memorization, folds: int) -> Memorization:
    """Reduce the number of models and of draws."""
    return replace(
        config,
        estimator=_tiny_estimator(config, folds),
        repetitions=2,
        permutations=min(config.permutations, 99),
        draws=min(config.draws, 8),
    )


def _tiny_estimator(config: Memorization, folds: int) -> KFold | SingleRows:
    match config.estimator:
        case KFold() as estimator:
            return replace(estimator, folds=min(estimator.folds, folds))
        case PublishedFolds():
            return KFold(folds)
        case SingleRows(held_out_rows=rows):
            return SingleRows(min(rows, 3) or 3)
