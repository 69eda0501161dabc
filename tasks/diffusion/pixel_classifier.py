"""A pixel classifier, trained independently of all audited models, which names the object in a reconstruction.

It is trained by `tasks.training.trainer` on public images, prepared as in evaluation, at the resolution of the
reconstructions. Planning does not import torch; computing does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.job import Inputs, Work, task
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import MODEL
from tasks.datasets.boxed.partition import TrainingImages, expect_sizes
from tasks.datasets.images import Images
from tasks.models import catalog
from tasks.models.catalog import Network
from tasks.numerics import seeds
from tasks.training.described_steps import ClassifierStep
from tasks.training.members import Member, Spec
from tasks.training.recipe import Count, Rate, Recipe

# A MODEL row with its accuracy on held-out images, and their number.
PIXEL_CLASSIFIER = pa.schema([*MODEL, ("held_out_accuracy", pa.float64()), ("held_out", pa.int64())])
HELD_OUT = 0.1  # share of the images


@dataclass(frozen=True)
class PixelClassifier(Ranged):
    """A classifier and its training with Adam. The best epoch is kept."""

    network: Network = Network("resnet18")
    """Network."""
    augmentation: bool = True
    """Whether to mirror images, shift them and change their contrast in training; unsuitable for letters and digits."""
    epochs: Count = 30
    """Epochs of training; the best is kept."""
    batch: Count = 128
    """Images per step."""
    learning_rate: Rate = 1e-3
    """Learning rate of Adam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        catalog.check(str(self.network))
        _ = self.recipe  # construction checks its ranges

    @property
    def recipe(self) -> Recipe:
        """The training recipe. Raises ValueError for invalid settings."""
        return Recipe(self.epochs, self.batch, self.learning_rate, patience=self.epochs)


@dataclass(frozen=True)
class PixelTraining(Ranged):
    """Training of a classifier on these images. A tenth of them is held out and selects the best epoch."""

    images: TrainingImages
    resolution: Annotated[int, AtLeast(8)] = 128
    classifier: PixelClassifier = PixelClassifier()
    seed: Annotated[int, AtLeast(0)] = 0


def work(config: PixelTraining) -> Work:
    """Return the work of the training on nine tenths of the images, with the rest evaluated after every epoch."""
    from tasks.datasets.catalog import load_with_boxes
    from tasks.training.classifier import classifier_work

    sizes = expect_sizes(load_with_boxes(config.images.data, config.images.correlation), config.images.partition)
    images = sizes.public if config.images.part == "X" else sizes.trained
    held_out = int(HELD_OUT * images)
    shape = (config.resolution, config.resolution, 3)
    network = config.classifier.network
    step = ClassifierStep(
        str(network),
        shape,
        sizes.classes,
        batch=config.classifier.batch,
        augmentation=config.classifier.augmentation,
    )
    recipe = replace(config.classifier.recipe, patience=0)
    return classifier_work(network.name, shape, recipe, images - held_out, held_out, step=step)


@task(version=1, name="diffusion.classify_pixels", gpus=1.0, trains=1, work=work, spreads=True)
def train_pixel_classifier(config: PixelTraining, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Train the classifier and return it as a one-row table (PIXEL_CLASSIFIER)."""
    from tasks.datasets.boxed.crops import evaluation_pictures
    from tasks.datasets.boxed.partition import split_pictures
    from tasks.datasets.catalog import load_with_boxes

    pictures = load_with_boxes(config.images.data, config.images.correlation)
    rows = split_pictures(pictures, config.images.partition).rows(config.images.part)
    pixels = evaluation_pictures(pictures, rows, config.resolution)
    return train_classifier(config, pixels, pictures.labels[rows], len(pictures.names))


def train_classifier(
    config: PixelTraining, pixels: NDArray[np.uint8], labels: NDArray[np.int64], classes: int
) -> pa.Table:
    """Train a classifier on these images (n, side, side, 3) with labels (n,) in [0, classes), as PIXEL_CLASSIFIER.

    Raises TrainingError if a loss is not finite, and ValueError for fewer than ten images.
    """
    from tasks.models.networks import Architecture
    from tasks.training.classifier import model_row
    from tasks.training.cross_entropy import CrossEntropy
    from tasks.training.trainer import train_many

    if len(pixels) < 10:
        raise ValueError(f"the classifier has {len(pixels)} images; it needs at least ten, one of which is held out")
    order = seeds.generator(config.seed, "held out").permutation(len(pixels))
    validation_rows = np.sort(order[: int(HELD_OUT * len(pixels))])
    training_rows = np.sort(order[len(validation_rows) :])
    images: Images = Images(
        pixels[training_rows], labels[training_rows], pixels[validation_rows], labels[validation_rows], classes
    )
    network = Architecture(str(config.classifier.network), images.shape, classes)
    spec = Spec(CrossEntropy(network, config.classifier.augmentation), config.classifier.recipe, images)
    ((_, outcome),) = train_many(spec, [Member(config.seed, np.arange(len(training_rows)))])
    if isinstance(outcome, Exception):
        raise outcome
    accuracy = outcome.history[outcome.best_epoch - 1].validation_accuracy
    row = model_row(config.seed, network, outcome) | {"held_out_accuracy": accuracy, "held_out": len(validation_rows)}
    return pa.Table.from_pylist([row], PIXEL_CLASSIFIER)


def classify(table: pa.Table, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the labels (n,) that a PIXEL_CLASSIFIER assigns to images (n, side, side, 3)."""
    from tasks.models.inference import logits
    from tasks.models.networks import architecture_of, weights_of_model

    labels: NDArray[np.int64] = logits(architecture_of(table), [weights_of_model(table)], pixels)[0].argmax(1)
    return labels
