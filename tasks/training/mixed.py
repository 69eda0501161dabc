"""Train image classifiers on mixtures (shares of several data sets of one shape), and unlearn some of the images.

Trainings of one design share a call regardless of their training data: the images of all data sets are concatenated in
memory, and each training uses its own rows. Unlearning starts from the weights in a training's table;
`tasks.training.unlearner` implements its methods. Planning does not import torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.job import ADDED_LATER, Inputs, Work, format_shape, single_table, task
from tasks.contract.operations import InputStep
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import MODEL
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Opened, PictureSet, Splits, rows_at_once
from tasks.datasets.mixtures import BalancedHalf, CoinedCanaries, CoinHalf, Part, Rows, Share
from tasks.datasets.picture_rows import Concatenated, Selected, Sliceable, Subset
from tasks.models import catalog
from tasks.models.catalog import Network, Regularisers
from tasks.numerics.precision import Precision
from tasks.training.chains import Linked, train_chains, without_length
from tasks.training.classifier import check_private, classifier_work, model_row
from tasks.training.described_steps import ClassifierStep
from tasks.training.members import Member, Spec, Trained, minibatches
from tasks.training.recipe import Count, OptimiserName, Privacy, Rate, Recipe
from tasks.training.unlearning_config import Distillation, GradientAscent, Unlearning

if TYPE_CHECKING:
    from tasks.models.networks import Architecture, Weights
    from tasks.training.trainer import Outcome

ROWS_AT_ONCE = 8192
VALIDATED = 1000  # maximum number of test images; the validation loss has no effect on training
# A MODEL row with the number of training images, and the accuracy on them after training, in evaluation mode.
MIXED = pa.schema([*MODEL, ("examples", pa.int64()), ("train_accuracy", pa.float64())])
PRIVATE_MIXED = pa.schema([*MIXED, ("epsilons", pa.list_(pa.float64()))])  # spent by the end of each epoch


@dataclass(frozen=True)
class Mixture(Ranged):
    """One classifier, trained for all epochs. The validation loss is measured on the first test images of `validation`.

    `classes` is the number of classes of the network. It is the same for trainings that are compared. If `crop` is
    above 0, training uses random squares with this side length in every minibatch, and evaluation uses central squares.
    `schedule` contains pairs (epoch, factor): after this epoch, the learning rate is the initial one times the factor.
    """

    shares: tuple[Share | BalancedHalf | CoinHalf | CoinedCanaries, ...]
    validation: Dataset
    classes: Annotated[int, AtLeast(1)]
    network: Network = Network("cnn1")
    dropout: bool = False
    batch_norm: bool = False
    augmentation: bool = False
    crop: Annotated[int, AtLeast(0)] = 0
    seed: Annotated[int, AtLeast(0)] = 0
    epochs: Count = 20
    optimiser: OptimiserName = "adam"
    learning_rate: Rate = 1e-3
    schedule: tuple[tuple[int, float], ...] = ()
    batch: Count = 128
    privacy: Privacy | None = None
    # The recipe's text, which identifies states of chains, contains the precision.
    precision: Precision = field(default="float32", repr=False, metadata={ADDED_LATER: True})

    def conflicts(self) -> Iterator[str]:
        if not self.shares:
            yield "shares is empty; it must contain at least one share"
        if self.privacy is not None:
            check_private(self.network, self.batch_norm, self.recipe)
        _ = self.recipe  # its ranges are checked on construction
        catalog.check(str(self.network), Regularisers(self.dropout, self.batch_norm))

    @property
    def recipe(self) -> Recipe:
        """The training recipe. Raises ValueError for impossible settings."""
        return Recipe(
            self.epochs, self.batch, self.learning_rate, 0, self.schedule, self.optimiser, precision=self.precision
        )


def batch_key(config: Mixture) -> Mixture:
    """Return the settings that trainings in one call must share: all except images, seed and learning rate.

    If canaries have altered labels or images, these must also be the same, since all trainings read one copy.
    """
    altered = _altered_canaries(config)
    placeholder = altered or Share(Part(config.validation))
    return dataclasses.replace(config, shares=(placeholder,), seed=0, learning_rate=1.0)


def _altered_canaries(config: Mixture) -> CoinedCanaries | None:
    """Return the share that changes labels or images, or None without one.

    It is the same for all models of a design.
    """
    coined = []
    for share in config.shares:
        if isinstance(share, CoinedCanaries) and share.is_altered:
            coined.append(share)
    return dataclasses.replace(coined[0], number=0) if coined else None


def work(config: Mixture) -> Work:
    """Return the work of the training."""
    from tasks.datasets.catalog import load

    images = load(config.validation)
    if config.crop:
        shape = (config.crop, config.crop, images.shape[2])
    else:
        shape = images.shape
    examples = sum(len(share.rows(load(share.part.data))) for share in config.shares)
    validated = min(VALIDATED, len(images.test))
    way = "train" if config.privacy is None else "privately train"
    step = classifier_step(config, shape, config.classes)
    return classifier_work(config.network.name, shape, config.recipe, examples, validated, way=way, step=step)


def classifier_step(config: Mixture, shape: tuple[int, int, int], classes: int) -> ClassifierStep:
    """Return the step of a training on images of this shape."""
    return ClassifierStep(
        str(config.network),
        shape,
        classes,
        Regularisers(config.dropout, config.batch_norm),
        batch=config.batch,
        optimiser=config.optimiser,
        augmentation=config.augmentation,
        is_private=config.privacy is not None,
        precision=config.precision,
    )


def train_many(
    configs: Sequence[Mixture],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each training's MIXED table, or its exception, when it ends. All must have the same batch key."""
    if len({batch_key(config) for config in configs}) > 1:
        raise ValueError("trainings that differ in more than images, seed and learning rate cannot share a call")
    data = tuple(dict.fromkeys(share.part.data for config in configs for share in config.shares))
    pool = pool_data(data, configs[0], _altered_canaries(configs[0]))
    members: dict[int, Member] = {}
    for index, config in enumerate(configs):
        try:
            members[index] = Member(config.seed, pool.rows(config.shares), learning_rate=config.learning_rate)
        except ValueError as error:
            yield index, error
    for index, outcome in train_members(pool, members, configs):
        if isinstance(outcome, Exception):
            yield index, outcome
        else:
            network = architecture(configs[index], pool.images)
            rows = members[index].rows
            yield index, table_of(configs[index].seed, network, pool.images, rows, outcome)


def train_members(pool: Pool, members: Mapping[int, Member], configs: Sequence[Mixture]) -> Iterator[Outcome]:
    """Yield each member's outcome, keyed by the position of its config. Trainings with privacy have no chains."""
    spec = spec_of(configs[0], pool.images)
    privacy = configs[0].privacy
    if privacy is None:
        return train_chains(spec, members, {index: chain_state(configs[index]) for index in members})
    from tasks.training import dp_sgd

    steps = {}
    for index in members:
        steps[index] = minibatches(pool.expected_count(configs[index].shares), configs[0].batch)
    return dp_sgd.train_by_index(spec, members, privacy, steps)


@task(
    version=3,
    name="mixed.train",
    gpus=1.0,
    many=train_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def train(config: Mixture, inputs: Inputs) -> pa.Table:
    """Train a network and return its MIXED table, or PRIVATE_MIXED if it is trained with privacy."""
    return single_table(train_many, config, inputs)


def chain_state(config: Mixture) -> Linked:
    """Return the states that a training may continue from: those of the same training with any number of epochs."""
    comparable = without_length(config)
    return Linked(f"{comparable} {comparable.recipe}", config.epochs)


@dataclass(frozen=True, eq=False)
class Pool:
    """The concatenated training images of several data sets, and the first row of each data set."""

    images: Splits
    sets: Mapping[Dataset, PictureSet]
    begins: Mapping[Dataset, int]

    def rows(self, shares: Sequence[Share | BalancedHalf | CoinHalf | CoinedCanaries]) -> Rows:
        """Return the rows of these shares, concatenated."""
        rows = [self.begins[share.part.data] + share.rows(self.sets[share.part.data]) for share in shares]
        return np.concatenate(rows)

    def expected_count(self, shares: Sequence[Share | BalancedHalf | CoinHalf | CoinedCanaries]) -> int:
        """Return the expected number of rows in these shares, which is the same with and without a given canary."""
        return sum(
            share.expected_count(self.sets[share.part.data])
            if isinstance(share, CoinedCanaries)
            else len(share.rows(self.sets[share.part.data]))
            for share in shares
        )


class Checked(Protocol):
    """A configuration with validation images and a number of classes."""

    @property
    def validation(self) -> Dataset: ...

    @property
    def classes(self) -> int: ...


def pool_data(data: tuple[Dataset, ...], config: Checked, altered: CoinedCanaries | None = None) -> Pool:
    """Return the pool of these data sets, with the config's validation images as its test split.

    `altered` canaries replace their records. Raises DatasetError for images of another shape, or for labels beyond the
    config's classes.
    """
    return _load_pool(data, config.validation, config.classes, altered)


@lru_cache(maxsize=2)  # calls of a run use the same data sets, and devices keep copies while the pool lives
def _load_pool(data: tuple[Dataset, ...], validation: Dataset, classes: int, altered: CoinedCanaries | None) -> Pool:
    from tasks.datasets.catalog import load

    sets = {dataset: load(dataset) for dataset in data}
    if altered is not None:
        sets[altered.part.data] = altered.alter_canaries(sets[altered.part.data])
    first = load(validation)
    for dataset, images in sets.items():
        if images.shape != first.shape:
            shapes = [" x ".join(map(str, shape)) for shape in (images.shape, first.shape)]
            raise DatasetError(
                f"images of {dataset.name} are {shapes[0]}, but those of {validation.name} {shapes[1]}; all must have "
                "one shape: add #28x28, or another height x width, and #grey or #rgb to the data sets' names"
            )
    train = Concatenated([images.train for images in sets.values()])
    if train.labels.max() >= classes:
        raise DatasetError(f"train labels range from 0 to {train.labels.max()}; expected 0 to {classes - 1}")
    validation_rows = np.arange(min(VALIDATED, len(first.test)))
    pool_images = Opened(train, Subset(first.test, validation_rows), classes)
    return Pool(pool_images, sets, dict(zip(data, map(int, train.begins), strict=False)))


def architecture(config: Mixture, images: Splits) -> Architecture:
    """Return the architecture of the trained network."""
    from tasks.models.networks import Architecture

    if config.crop:
        shape = (config.crop, config.crop, images.shape[2])
    else:
        shape = images.shape
    return Architecture(str(config.network), shape, config.classes, Regularisers(config.dropout, config.batch_norm))


def spec_of(config: Mixture, images: Splits) -> Spec:
    """Return what all trainings of one batch key share."""
    from tasks.training.cross_entropy import CrossEntropy

    learning = CrossEntropy(architecture(config, images), config.augmentation, config.crop, images.shape)
    return Spec(learning, config.recipe, images)


def table_of(seed: int, network: Architecture, images: Splits, rows: Rows, result: Trained) -> pa.Table:
    """Return the one-row MIXED table of a network trained on these rows with this seed."""
    weights = {name: values.astype(np.float32) for name, values in result.weights.items()}
    right = accuracy(network, weights, images, rows)
    row = model_row(seed, network, result) | {"examples": len(rows), "train_accuracy": right}
    if result.epsilons is None:
        return pa.Table.from_pylist([row], schema=MIXED)
    return pa.Table.from_pylist([row | {"epsilons": list(result.epsilons)}], schema=PRIVATE_MIXED)


def accuracy(network: Architecture, weights: Weights, images: Splits, rows: Rows) -> float:
    """Return the fraction of these training images whose label the network predicts."""
    right = 0
    for start in range(0, len(rows), ROWS_AT_ONCE):  # keeps the logits of one batch at a time
        batch = rows[start : start + ROWS_AT_ONCE]
        predicted = logits(network, weights, Selected(images.train, batch)).argmax(1)
        right += int((predicted == images.train.labels[batch]).sum())
    return right / len(rows)


def logits(network: Architecture, weights: Weights, images: Sliceable) -> NDArray[np.float32]:
    """Return the logits (n, classes) of a trained network for images (n, h, w, c), cropped as in evaluation."""
    from tasks.models import inference
    from tasks.training.cross_entropy import central_images

    if images.shape[1:] == network.shape:
        logits_of_images: NDArray[np.float32] = inference.logits(network, [weights], images)[0]
        return logits_of_images
    parts = []
    at_once = rows_at_once(images.shape[1:], ROWS_AT_ONCE)
    for start in range(0, len(images), at_once):
        central = central_images(images[start : start + at_once], network.shape[0])
        parts.append(inference.logits(network, [weights], central)[0])
    return np.concatenate(parts)


def _unlearning_work(config: Unlearning) -> Work:
    """Return the work of the steps. Gradient ascent may end earlier."""
    from tasks.datasets.catalog import load

    images = load(config.validation)
    kept_count = sum(len(share.rows(load(share.part.data))) for share in config.kept)
    forgotten_count = sum(len(share.rows(load(share.part.data))) for share in config.forgotten)
    if isinstance(config.method, GradientAscent):
        images_per_epoch = forgotten_count
    else:
        images_per_epoch = kept_count + forgotten_count
    # The network comes from the input and is not named in the config, since the reference has the same network.
    unit = f"unlearn on {format_shape(images.shape)} by {config.method.tag}"
    passes = 4 / 3 if isinstance(config.method, Distillation) else 1.0  # its teacher's forward pass
    return Work({unit: config.method.epochs * images_per_epoch}, operations={unit: InputStep(passes)})


@task(version=2, name="unlearning.unlearn", gpus=1.0, trains=1, work=_unlearning_work, spreads=True)
def unlearn(config: Unlearning, inputs: Inputs) -> pa.Table:
    """Unlearn with the network in the input table, and return a MIXED table.

    `examples` and `train_accuracy` refer to the kept images, and the epochs to unlearning.
    """
    from tasks.models.networks import architecture_of, weights_of_model
    from tasks.training.cross_entropy import CrossEntropy
    from tasks.training.unlearner import unlearn_model

    (original_model,) = inputs
    network = architecture_of(original_model)
    weights = weights_of_model(original_model)
    pool = pool_data(tuple(dict.fromkeys(share.part.data for share in (*config.kept, *config.forgotten))), config)
    kept_rows = pool.rows(config.kept)
    forgotten_rows = pool.rows(config.forgotten)
    common = np.intersect1d(kept_rows, forgotten_rows)
    if len(common):
        raise ValueError(f"{len(common):,} images are both kept and forgotten; the shares must be disjoint")
    learning = CrossEntropy(network, config.augmentation, config.crop, pool.images.shape)
    end = unlearn_model(
        learning, config.recipe, config.method, pool.images, kept_rows, forgotten_rows, weights, config.seed
    )
    return table_of(config.seed, network, pool.images, kept_rows, end)
