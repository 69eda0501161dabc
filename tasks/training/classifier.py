"""Train image classifiers: the task with which classifier audits plan their models.

Published training: Adam, cross-entropy, up to 500 epochs, early stopping after 10 epochs without a lower validation
loss, with the best epoch restored. Hartley & Tsaftaris, "Unintended memorisation of unique features in neural
networks", appendix A.

With `privacy`, training uses DP-SGD (`tasks.training.dp_sgd`), for networks that process rows independently. The
guarantee covers one training image: two data sets are neighbours if one has an additional training image.

Planning a training does not import torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract import operations
from tasks.contract.job import ADDED_LATER, Inputs, Work, format_shape, single_table, task
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import MODEL, PRIVATE_MODEL, add_width
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature
from tasks.datasets.picture_rows import Sliceable, slices, whole_split
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers, classifier_growth
from tasks.numerics.precision import Precision
from tasks.training.chains import Linked, train_chains, without_length
from tasks.training.described_steps import ClassifierStep
from tasks.training.members import Member, Spec, Trained, minibatches
from tasks.training.recipe import Count, OptimiserName, Privacy, Rate, Recipe, check_recipe

if TYPE_CHECKING:
    from tasks.datasets.images import PictureSet
    from tasks.models.networks import Architecture
    from tasks.training.trainer import Outcome


@dataclass(frozen=True)
class NearestImages(Ranged):
    """The `count` images nearest to the image in `row` by pixel distance, excluding that image itself.

    Deduplication removes near copies of a record from training data. Lee et al. 2022, "Deduplicating training data
    makes language models better", and Kandpal et al. 2022, "Deduplicating training data mitigates privacy risks in
    language models", do so for text. Here a fixed number of images is left out, rather than all images within some
    distance, so that all trainings have the same number of images.
    """

    row: Annotated[int, AtLeast(0)]
    count: Annotated[int, AtLeast(1)]

    def rows_among(self, images: Sliceable) -> NDArray[np.int64]:
        """Return the rows (count,) of the neighbours among these images (n, h, w, c), ascending.

        The search is exact. At equal distances, the lower row comes first. Raises ValueError if there are too few
        images.
        """
        from tasks.numerics.nearest_neighbours import nearest

        if self.row >= len(images):
            raise ValueError(f"row {self.row} has no neighbours; the rows are 0 to {len(images) - 1}")
        if self.count >= len(images):
            raise ValueError(
                f"{self.count} nearest images are left out; there are only {len(images) - 1} other training images"
            )
        image = images[self.row : self.row + 1].reshape(1, -1)
        distances = []
        rows = []
        for part, pixels in slices(images):
            others = np.arange(part.start, part.stop)
            is_other = others != self.row
            if is_other.any():
                points = pixels.reshape(len(pixels), -1)[is_other]
                neighbours = nearest(image, points, min(self.count, len(points)))
                distances.append(neighbours.distances[0])
                rows.append(others[is_other][neighbours.rows[0]])
        closest_rows: NDArray[np.int64] = np.concatenate(rows)
        order = np.lexsort((closest_rows, np.concatenate(distances)))
        return np.sort(closest_rows[order[: self.count]])


# MLP-1's best epoch is about 42 for 1,437 digits and 12 for MNIST's 60,000 images: with more images, fewer epochs are
# needed.
DIGITS = 1437
KEPT = 42.0
FALL = -1 / 3  # the exponent between these two points
# Wider networks need fewer epochs: 81, 54, 41 and 25 for digits at a width of 0.25, 0.5, 1 and 2.
FALL_WITH_WIDTH = -1 / 2
FACTOR = 2.0  # by which the number of epochs may be off for other networks and data sets
BEGUN = "begin to train a classifier"  # fixed cost of a training
VALIDATED = 1 / 3  # cost of validating an image, in training steps on an image: the forward pass


def classifier_work(
    network: str,
    shape: tuple[int, ...],
    recipe: Recipe,
    examples: int,
    validated: int,
    ends_at_best_epoch: bool = False,
    way: str = "train",
    width: float = 1.0,
    times: float = 1.0,
    step: ClassifierStep | None = None,
) -> Work:
    """Return the work of training on `examples` images with `validated` validation images after every epoch.

    With `ends_at_best_epoch`, the training ends at the best epoch of another training with patience. `way` names the
    unit of work, which refers to the network at its published width. At this `width`, an image is `times` the work.
    `step` counts the operations of an image, unless the network is an estimator.
    """
    unit = f"{way} {network} on {format_shape(shape)}"
    epoch_work = times * (examples + VALIDATED * validated)
    counted: dict[str, operations.Operations | operations.Step | operations.InputStep] = {}
    if step is not None:
        counted = {unit: dataclasses.replace(step, images=1 / times), BEGUN: operations.NONE}
    if not (recipe.patience or ends_at_best_epoch):
        return Work({unit: recipe.epochs * epoch_work}, {BEGUN: 1.0}, operations=counted)
    best = _kept_epoch(examples, width)
    lower = min(recipe.epochs, (best / FACTOR) + recipe.patience)
    expected = min(recipe.epochs, best + recipe.patience)
    upper = min(recipe.epochs, (best * FACTOR) + recipe.patience)
    return Work({unit: expected * epoch_work}, {BEGUN: 1.0}, lower / expected, upper / expected, counted)


def _kept_epoch(examples: int, width: float = 1.0) -> float:
    """Return the expected epoch of the lowest validation loss for this number of examples and this width."""
    return max(1.0, KEPT * float((max(1, examples) / DIGITS) ** FALL * width**FALL_WITH_WIDTH))


PRIVATE = ("mlp1", "cnn1")  # networks that can be trained with privacy


@dataclass(frozen=True)
class Burnt(Ranged):
    """A training image that carries a feature."""

    row: Annotated[int, AtLeast(0)]  # row of the training split
    feature: Feature


@dataclass(frozen=True)
class Training(Ranged):
    """Training of one classifier. The validation loss is measured on the whole test split.

    `patience` is the number of epochs without a lower validation loss after which training stops and restores the best
    epoch. If it is 0, training runs for all epochs and keeps the last weights. `schedule` contains pairs (epoch,
    factor): after this epoch, the learning rate is the initial one times the factor. `width` scales the network's
    hidden layers. The classifier is trained on the first `examples` training images (0: all) except those in
    `left_out`.
    """

    data: Dataset
    network: Network = Network("mlp1")
    dropout: bool = False
    batch_norm: bool = False
    augmentation: bool = False
    seed: Annotated[int, AtLeast(0)] = 0
    burnt: tuple[Burnt, ...] = ()  # at most one feature per row, rows ascending
    examples: Annotated[int, AtLeast(0)] = 0
    epochs: Count = 500  # maximum
    patience: int = 10
    optimiser: OptimiserName = "adam"
    learning_rate: Rate = 3e-4
    schedule: tuple[tuple[int, float], ...] = ()
    batch: Count = 128
    privacy: Privacy | None = None
    width: float = 1.0
    left_out: NearestImages | None = None
    # The recipe's text, which identifies states of chains, contains the precision.
    precision: Precision = field(default="float32", repr=False, metadata={ADDED_LATER: True})

    def conflicts(self) -> Iterator[str]:
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm), self.width)
        _ = self.recipe  # its ranges are checked on construction
        if self.privacy is not None:
            check_private(self.network, self.batch_norm, self.recipe)
        rows = [burnt.row for burnt in self.burnt]
        if rows != sorted(set(rows)):  # a unique order, so that equal trainings have equal keys
            yield f"burnt has the rows {rows}; they must be strictly ascending"

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


def check_private(network: Network, batch_norm: bool, recipe: Recipe) -> None:
    """Raise ValueError if this classifier cannot be trained with privacy."""
    if network.name not in PRIVATE:
        raise ValueError(f"privacy is set and network is {network}; it must be {' or '.join(PRIVATE)}")
    if batch_norm:
        raise ValueError("privacy is set and batch_norm is on; it must be off, since it mixes a minibatch's images")
    check_recipe(recipe)


def batch_key(config: Training) -> Training:
    """Return the settings that trainings in one call must share: all except seed, features and learning rate.

    The record whose neighbours are left out may also differ, since the number of rows stays the same.
    """
    neighbours = config.left_out and dataclasses.replace(config.left_out, row=0)
    return dataclasses.replace(config, seed=0, burnt=(), learning_rate=1.0, left_out=neighbours)


def work(config: Training, ends_at_best_epoch: bool = False) -> Work:
    """Return the work of the training.

    With `ends_at_best_epoch`, it ends at the best epoch of a training with patience.
    """
    from tasks.datasets.catalog import load

    images = load(config.data)
    examples = config.examples or len(images.train)
    if config.left_out is not None:
        examples = max(1, examples - config.left_out.count)
    way = "train" if config.privacy is None else "privately train"
    times = classifier_growth(config.network.name, images.shape, images.classes, config.width)
    return classifier_work(
        config.network.name,
        images.shape,
        config.recipe,
        examples,
        len(images.test),
        ends_at_best_epoch=ends_at_best_epoch,
        way=way,
        width=config.width,
        times=times,
        step=ClassifierStep(
            str(config.network),
            images.shape,
            images.classes,
            Regularisers(config.dropout, config.batch_norm),
            config.width,
            config.batch,
            config.optimiser,
            config.augmentation,
            config.privacy is not None,
            precision=config.precision,
        ),
    )


def train_many(
    configs: Sequence[Training],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each training's MODEL table, or its exception, when it ends. All must have the same batch key."""
    return train_jobs(dict(enumerate(configs)))


def train_jobs(configs: Mapping[int, Training]) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Run `train_many` for one or more of a call's jobs, keyed by their index in the call."""
    from tasks.datasets.catalog import load

    if len({batch_key(config) for config in configs.values()}) > 1:
        raise ValueError("trainings that differ in more than seed, features and learning rate cannot share a call")
    first = next(iter(configs.values()))
    images = load(first.data)
    members: dict[int, Member] = {}
    for index, config in configs.items():
        try:
            members[index] = member_of(config, images)
        except ValueError as error:
            yield index, error
    for index, outcome in train_members(first, spec_of(first, images), members, configs):
        yield index, outcome if isinstance(outcome, Exception) else model_table(configs[index], images, outcome)


def train_members(
    first: Training, spec: Spec, members: Mapping[int, Member], configs: Mapping[int, Training]
) -> Iterator[Outcome]:
    """Yield each member's outcome, keyed by its job's index in the call. Trainings with privacy have no chains."""
    if first.privacy is None:
        return train_chains(spec, members, {index: chain_state(configs[index]) for index in members})
    from tasks.training import dp_sgd

    steps = {}
    for index, member in members.items():
        steps[index] = minibatches(len(member.rows), first.batch)
    return dp_sgd.train_by_index(spec, members, first.privacy, steps)


@task(
    version=3,
    name="classifier.train",
    gpus=1.0,
    many=train_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def train(config: Training, inputs: Inputs) -> pa.Table:
    """Train a network and return its MODEL table, or PRIVATE_MODEL if it is trained with privacy."""
    return single_table(train_many, config, inputs)


def chain_state(config: Training) -> Linked:
    """Return the states that a training may continue from: those of the same training with any number of epochs."""
    comparable = without_length(config)
    return Linked(f"{comparable} {comparable.recipe}", config.epochs)


def architecture(config: Training, images: PictureSet) -> Architecture:
    """Return the architecture of the trained network."""
    from tasks.models.networks import Architecture

    regularisers = Regularisers(config.dropout, config.batch_norm)
    return Architecture(str(config.network), images.shape, images.classes, regularisers, config.width)


def spec_of(config: Training, images: PictureSet) -> Spec:
    """Return what all trainings of one batch key share."""
    from tasks.training.cross_entropy import CrossEntropy

    return Spec(CrossEntropy(architecture(config, images), config.augmentation), config.recipe, images)


def member_of(config: Training, images: PictureSet) -> Member:
    """Return the member with its rows and its images with features. Raises ValueError if the split has too few rows."""
    from tasks.datasets.features import burn

    rows = training_rows(config, images)
    replaced = {}
    for burnt in config.burnt:
        replaced[burnt.row] = burn(images.train.pixels(np.array([burnt.row])), burnt.feature)[0]
    return Member(config.seed, rows, replaced, config.learning_rate)


class TrainingRows(Protocol):
    """What determines the rows of a training and the features in them."""

    @property
    def data(self) -> Dataset: ...

    @property
    def examples(self) -> int: ...

    @property
    def burnt(self) -> tuple[Burnt, ...]: ...

    @property
    def left_out(self) -> NearestImages | None: ...


def training_rows(config: TrainingRows, images: PictureSet) -> NDArray[np.int64]:
    """Return the rows of a training, ascending. Raises ValueError if the split has too few, or none for a feature."""
    count = config.examples or len(images.train)
    if count > len(images.train):
        raise ValueError(f"examples is {count}; {config.data.name} has {len(images.train)} training images")
    rows = np.arange(count)
    if config.left_out is not None:
        rows = np.delete(rows, config.left_out.rows_among(whole_split(images.train, count)))
    for burnt in config.burnt:
        if burnt.row >= count:
            raise ValueError(f"a feature is burnt into row {burnt.row}; the training rows are 0 to {count - 1}")
        if burnt.row not in rows:
            raise ValueError(f"a feature is burnt into row {burnt.row}, which is left out of the training")
    return rows


def model_table(config: Training, images: PictureSet, result: Trained) -> pa.Table:
    """Return the one-row MODEL or PRIVATE_MODEL table of a trained network."""
    row = model_row(config.seed, architecture(config, images), result)
    if result.epsilons is None:
        return pa.Table.from_pylist([row], schema=add_width(MODEL, config.width))
    row |= {"epsilons": list(result.epsilons)}
    return pa.Table.from_pylist([row], schema=add_width(PRIVATE_MODEL, config.width))


def model_row(seed: int, network: Architecture, result: Trained) -> dict[str, Any]:
    """Return the MODEL row of a network trained with this seed."""
    from tasks.models.networks import network_row, weight_rows

    return {
        "seed": seed,
        "network": network_row(network),
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "history": [dataclasses.asdict(epoch) for epoch in result.history],
        "weights": weight_rows({name: values.astype(np.float32) for name, values in result.weights.items()}),
    }
