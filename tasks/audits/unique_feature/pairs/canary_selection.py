"""Choice of canaries: training images drawn at random, or chosen by their self-influence.

In a choice by self-influence, the canaries are the training images with the strongest and the weakest effect on a
network's weights. Their rows are known only after a network without canaries has been trained. The jobs of a plan
therefore name a canary by its rank (`RankedImage`), and one of their inputs, the table CHOSEN, contains its row.

    TracInCP(x) = sum over checkpoints t of  eta_t ||grad loss(w_t, x)||^2

is the self-influence of x over all learned weights, with the label of x, in evaluation mode (no dropout, running
statistics). If it is large, the network changes repeatedly because of this image; if it is near 0, the other images
have already taught the network the content of this one.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", sections 3.1.1 and
A.5, eq. 2; Garima et al. 2020, "Estimating training data influence by tracing gradient descent", section 3.2.

Decisions where the paper is silent.

- A checkpoint is the end of an epoch, and eta_t is the learning rate in the epoch that ends there, including the
  schedule. It is the nominal rate: the per-weight rates of Adam and RMSprop are not in the formula. The published high
  values (6.6e4, 7.5e4) fit the sum without eta_t (8.1e4 is the highest on MNIST here), so `squared_slopes` contains
  this sum. If all epochs have one learning rate, both sums give the same ranks.
- The fall of the loss is the difference between the loss of the initial weights on the training images (near log
  classes) and the lowest mean of an epoch over its minibatches. Checkpoints are evenly spaced up to the first epoch at
  which `share` of this fall is reached, which is the last checkpoint.
- If there are fewer epochs up to this one than checkpoints, checkpoints are placed after each of the first
  `checkpoints` epochs, or up to the end of training: MLP-1 on MNIST reaches 95 % in its third epoch of sixteen (seed
  0), and the paper has ten checkpoints.

Cost. One training run, with the weights of every epoch in memory (float32: 2.3 MB per epoch for MLP-1, 3.2 MB for
DenseNet-100), and for each checkpoint a forward and a backward pass over all training images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.config import Shape, UniqueFeature
from tasks.audits.unique_feature.questions import CanaryPairs, Pairs, SelfInfluenceChoice
from tasks.audits.unique_feature.scores import log_probabilities
from tasks.contract.job import Inputs, Work, single_table, task
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load
from tasks.datasets.copies import CopyCount, count_copies, distinct_rows
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, draw_member
from tasks.datasets.picture_rows import Selected, hold, replace_images
from tasks.numerics import seeds
from tasks.training import classifier
from tasks.training.chains import up_to
from tasks.training.classifier import Burnt, Training, TrainingRows
from tasks.training.described_steps import ClassifierStep

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.datasets.images import Labels, PictureSet
    from tasks.datasets.picture_rows import Sliceable
    from tasks.models.networks import Architecture, Weights
    from tasks.training.members import Member, Spec
    from tasks.training.recipe import Recipe


TrainedImages = TypeVar("TrainedImages", bound=TrainingRows)  # a dataclass with the field `burnt`
End = Literal["highest", "lowest"]

CHOSEN = pa.schema(
    [
        ("end", pa.string()),  # highest or lowest self-influence
        ("rank", pa.int32()),  # from 1, which is the most extreme
        ("row", pa.int64()),  # row in the training images
        ("label", pa.int32()),
        ("self_influence", pa.float64()),
        ("squared_slopes", pa.float64()),
    ]
)


@dataclass(frozen=True)
class RankedImage(Ranged):
    """A training image named by its rank, from 1, among those with the highest or lowest self-influence."""

    end: End
    rank: Annotated[int, AtLeast(1)]


def canary_row(canary: int | RankedImage, inputs: Inputs) -> int:
    """Return the canary's row in the training images. A rank is looked up in the CHOSEN table.

    A number is returned unchanged. Raises ValueError if the table is missing or has no such rank.
    """
    if not isinstance(canary, RankedImage):
        return canary
    tables = [table for table in inputs if table.schema == CHOSEN]
    if not tables:
        raise ValueError(
            f"the canary is the {canary.end} by rank {canary.rank}, but no input is a table of selected canaries"
        )
    end_rows = []
    for row in tables[0].select(["end", "rank", "row"]).to_pylist():
        if row["end"] == canary.end:
            end_rows.append(row)
    rows: dict[int, int] = {row["rank"]: row["row"] for row in end_rows}
    if canary.rank not in rows:
        raise ValueError(f"rank is {canary.rank}; of the {canary.end} self-influence {len(rows)} images were chosen")
    return rows[canary.rank]


@dataclass(frozen=True)
class Canary:
    """One canary: its training image, the feature that it carries, and the audited feature."""

    number: int
    image: int | RankedImage
    carried_feature: Feature
    audited_feature: Feature

    def burn_into(self, clean: TrainedImages) -> TrainedImages:
        """Return the training with the canary added. The canary must be named by its row."""
        training: Any = clean
        changed: TrainedImages = replace(training, burnt=(self.burnt,))
        return changed

    @property
    def burnt(self) -> Burnt:
        """The training image that carries the feature. The canary must be named by its row."""
        assert not isinstance(self.image, RankedImage)
        return Burnt(self.image, self.carried_feature)


def canaries(config: UniqueFeature, question: CanaryPairs, trained_on: PictureSet) -> list[Canary]:
    """Return the canaries among these images. A smaller random choice is the beginning of a larger one.

    At most one of several exact copies is drawn, because two copies would be one canary.
    """
    selected = []
    for number, image in enumerate(canary_images(config, question, trained_on)):
        draws_features = isinstance(question, Pairs) and question.drawn
        feature = config.asked_feature
        if draws_features:
            feature = own_feature(feature, config.family, config.seed, number, trained_on.shape)
        selected.append(Canary(number, image, question.burnt or feature, feature))
    return selected


def canary_images(config: UniqueFeature, question: CanaryPairs, trained_on: PictureSet) -> list[int | RankedImage]:
    """Return the rows of the canaries, or their ranks by self-influence."""
    if isinstance(question.choice, SelfInfluenceChoice):
        highest = (question.canaries + 1) // 2
        images: list[int | RankedImage] = [RankedImage("highest", rank) for rank in range(1, highest + 1)]
        images += [RankedImage("lowest", rank) for rank in range(1, question.canaries - highest + 1)]
        return images
    rows = question.examples or len(trained_on.train)
    order = seeds.generator(config.seed, *config.stream("canaries")).permutation(rows)
    records = distinct_rows(trained_on, order)
    if question.canaries > len(records):
        raise ValueError(
            f"canaries is {question.canaries}; it must be at most {len(records)}, the training images that differ"
        )
    return [int(row) for row in records[: question.canaries]]


def count_canary_copies(question: object) -> CopyCount:
    """Count the exact copies among the images from which canaries are chosen. Zero if no canary is chosen."""
    if not isinstance(question, CanaryPairs):
        return CopyCount()
    images = load(question.data)
    return count_copies(images, np.arange(question.examples or len(images.train)))


def own_feature(feature: Feature, among: Family, seed: int, number: int, shape: Shape) -> Feature:
    """Draw a member of the audited feature's family for this canary, in the same way as its other members are drawn."""
    return draw_member(feature, seeds.derive(seed, "feature", number), among, shape[:2])


# By self-influence


@dataclass(frozen=True)
class CanaryChoice(Ranged):
    """The number of canaries: half with the highest self-influence (one more if odd), half with the lowest.

    Only the first of several exact copies in `copied` can be chosen, because two copies would be one canary.
    """

    count: Annotated[int, AtLeast(1)]
    copied: Dataset | None = None
    """The data set of the training images if it has exact copies."""


@task(version=1, name="unique_feature.chosen")
def choose_canaries(config: CanaryChoice, inputs: Inputs) -> pa.Table:
    """Choose training images (CHOSEN), the highest first, from the table with every image's INFLUENCE (the input).

    Images with equal values are ordered by row, at both ends. No image is chosen twice.
    """
    (influence,) = inputs
    if config.copied is not None:
        distinct = distinct_rows(load(config.copied), influence["row"].to_numpy())
        influence = influence.filter(pa.array(np.isin(influence["row"].to_numpy(), distinct)))
    if config.count > influence.num_rows:
        image_count = influence.num_rows
        raise ValueError(f"count is {config.count}; it must be at most {image_count}, the number of training images")
    lowest = config.count // 2
    values = influence["self_influence"].to_numpy()
    rows = influence["row"].to_numpy()
    ranked = zip(get_args(End), extreme_indices(values, rows, config.count - lowest, lowest), strict=True)
    rows_of_ends = []
    for end, places in ranked:
        for rank, index in enumerate(places, 1):
            rows_of_ends.append(
                {"end": end, "rank": rank} | influence.slice(index, 1).select(CHOSEN.names[2:]).to_pylist()[0]
            )
    return pa.Table.from_pylist(rows_of_ends, CHOSEN)


def extreme_indices(
    values: NDArray[np.float64], rows: NDArray[np.int64], highest: int, lowest: int
) -> tuple[list[int], list[int]]:
    """Return the indices of the highest values, descending, and of the lowest of the remaining values, ascending.

    Equal values are ordered by row.
    """
    falling: list[int] = np.lexsort((rows, -values)).tolist()
    rising: list[int] = np.lexsort((rows, values)).tolist()
    first = set(falling[:highest])
    return falling[:highest], [index for index in rising if index not in first][:lowest]


# Training


@dataclass(frozen=True)
class RankedTraining:
    """`training` with `feature` burnt into the training image of that rank, and into no other."""

    training: Training
    canary: RankedImage
    feature: Feature

    def __post_init__(self) -> None:
        _check_no_features(self.training)

    @property
    def epochs(self) -> int:
        return self.training.epochs


def _check_no_features(training: Training) -> None:
    """Raise ValueError if a training to which a canary is added already has features."""
    if training.burnt:
        rows = ", ".join(str(burnt.row) for burnt in training.burnt)
        raise ValueError(f"training burns a feature into row {rows}; it must burn none except for the canary's")


def link(config: RankedTraining, before: int, end: int) -> RankedTraining:
    """Return the training up to epoch `end`."""
    return replace(config, training=up_to(config.training, before, end))


def batch_key(config: RankedTraining) -> Training:
    """Return the settings shared by training runs computed together, as for canaries named by row."""
    return classifier.batch_key(config.training)


def resolve_canary(config: RankedTraining, inputs: Inputs) -> Training:
    """Return the training with the canary's row instead of its rank."""
    return replace(config.training, burnt=(Burnt(canary_row(config.canary, inputs), config.feature),))


def train_many(
    configs: Sequence[RankedTraining], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each training's MODEL table, or its exception, as it ends. All must have the same batch key."""
    trainings: dict[int, Training] = {}
    for index, (config, tables) in enumerate(zip(configs, inputs, strict=True)):
        try:
            trainings[index] = resolve_canary(config, tables)
        except ValueError as error:
            yield index, error
    if trainings:
        yield from classifier.train_jobs(trainings)


def work(config: RankedTraining) -> Work:
    return classifier.work(config.training)


@task(
    version=2,
    name="unique_feature.train_ranked",
    gpus=1.0,
    many=train_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def train_with_canary(config: RankedTraining, inputs: Inputs) -> pa.Table:
    """Train the network with the canary of that rank (MODEL), with the same result as `classifier.train` for its row.

    The input is the table of selected canaries. If the version of `classifier.train` is raised, also raise that of this
    task.
    """
    return single_table(train_many, config, inputs)


# Self-influence

INFLUENCE = pa.schema(
    [
        ("row", pa.int64()),  # row in the training images
        ("label", pa.int32()),
        ("self_influence", pa.float64()),  # sum over checkpoints of the learning rate times the squared slope
        ("squared_slopes", pa.float64()),  # the same sum without the learning rate
        ("checkpoints", pa.list_(pa.int32())),  # the epochs in the sum, from 1
    ]
)


@dataclass(frozen=True)
class Tracing(Ranged):
    """The traced training, the number of checkpoints, and the share of the fall of its loss that they cover.

    If `canary` and `feature` are given, the training image of that rank carries the feature, both in training and when
    its gradient is measured.
    """

    training: Training
    canary: RankedImage | None = None
    feature: Feature | None = None
    checkpoints: Annotated[int, AtLeast(1)] = 10
    share: Annotated[float, Share(zero=False)] = 0.95

    def conflicts(self) -> Iterator[str]:
        if (self.canary is None) != (self.feature is None):
            if self.canary is None:
                present = "feature"
                absent = "canary"
            else:
                present = "canary"
                absent = "feature"
            yield f"{present} is given and {absent} is not; give both, or neither"
        if self.canary is not None:
            _check_no_features(self.training)


def _tracing_batch_key(config: Tracing) -> Training:
    """Return the settings shared by tracings with similar run times."""
    return classifier.batch_key(config.training)


def _tracing_work(config: Tracing) -> Work:
    """Return the work of the training, and of every image's gradient at each checkpoint."""
    training = classifier.work(config.training)
    (step,) = [step for step in training.operations.values() if isinstance(step, ClassifierStep)]
    rows = config.training.examples or len(load(config.training.data).train)
    gradients = f"take gradients by {config.training.network.name}"
    return replace(
        training,
        besides={**training.besides, gradients: float(config.checkpoints * rows)},
        operations={**training.operations, gradients: replace(step, is_private=True)},
    )


@task(
    version=1,
    name="unique_feature.influence",
    gpus=1.0,
    batch_key=_tracing_batch_key,
    trains=1,
    work=_tracing_work,
    spreads=True,
)
def influence(config: Tracing, inputs: Inputs) -> pa.Table:
    """Compute every training image's self-influence (INFLUENCE), by row.

    If the canary is named by its rank, the input is the table of selected canaries.
    """
    from tasks.models.per_example_gradients import squared_gradients

    training = _traced_training(config, inputs)
    images = load(training.data)
    network = classifier.architecture(training, images)
    member = classifier.member_of(training, images)
    spec = classifier.spec_of(training, images)
    pixels, labels = _training_images(member, images)
    losses, weights = _trace_training(spec, member)
    start = mean_loss(network, network.initial(training.seed), pixels, labels)
    epochs = checkpoint_epochs([start, *losses], config.checkpoints, config.share)
    squares = squared_gradients(network, [weights[epoch] for epoch in epochs], pixels, labels)  # (checkpoints, images)
    return make_table(
        INFLUENCE,
        row=member.rows,
        label=labels,
        self_influence=_learning_rates(spec.recipe, epochs) @ squares,
        squared_slopes=squares.sum(axis=0),
        checkpoints=[epochs] * len(labels),
    )


def checkpoint_epochs(losses: Sequence[float], count: int, share: float) -> list[int]:
    """Return the epochs, from 1, at which a training is traced: at most `count`, evenly spaced, given its losses.

    `losses` contains the loss before training and that of each epoch. The last checkpoint is the first epoch at which
    the loss has fallen by `share` of its fall to the lowest loss. If this is before epoch `count`, the last checkpoint
    is epoch `count`, or the last epoch of a shorter training. If the loss never fell, it is the last epoch. The k-th of
    n checkpoints is at k / n of the last one, rounded, halves up.
    """
    start, *after = losses
    falls = [start - loss for loss in after]
    total_fall = max(falls)
    if total_fall > 0:
        passed = next(epoch for epoch, fall in enumerate(falls, 1) if fall >= share * total_fall)
    else:
        passed = len(after)
    last = max(passed, min(count, len(after)))
    number = min(count, last)
    return [(2 * k * last + number) // (2 * number) for k in range(1, number + 1)]


def _learning_rates(recipe: Recipe, epochs: Sequence[int]) -> NDArray[np.float64]:
    """Return the learning rate in each of these epochs."""
    return np.array([recipe.learning_rate * recipe.factor(epoch) for epoch in epochs])


def _traced_training(config: Tracing, inputs: Inputs) -> Training:
    """Return the traced training, with the canary's row instead of its rank."""
    if config.canary is None or config.feature is None:
        return config.training
    return resolve_canary(RankedTraining(config.training, config.canary, config.feature), inputs)


def _training_images(member: Member, images: PictureSet) -> tuple[Sliceable, Labels]:
    """Return the training images with their features, and their labels."""
    with_features = replace_images(images.train, member.replaced)
    return hold(Selected(with_features, member.rows)), images.train.labels[member.rows]


def _trace_training(spec: Spec, member: Member) -> tuple[list[float], dict[int, Weights]]:
    """Return each epoch's training loss and weights, from 1. Raises TrainingError if training cannot continue."""
    from tasks.models.networks import model_weights
    from tasks.training.trainer import train_many

    weights: dict[int, Weights] = {}

    def watch(epochs: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]) -> None:
        for position, (_, epoch) in enumerate(epochs):
            weights[epoch] = model_weights(tensors, position)  # a restarted training has the same weights

    ((_, outcome),) = train_many(replace(spec, watch=watch), [member])
    if isinstance(outcome, Exception):
        raise outcome
    return [epoch.train_loss for epoch in outcome.history], weights


def mean_loss(network: Architecture, weights: Weights, pixels: Sliceable, labels: Labels) -> float:
    """Return the mean cross-entropy in nats."""
    from tasks.models.inference import logits

    log_p = log_probabilities(logits(network, [weights], pixels)[0])
    return float(-log_p[np.arange(len(labels)), labels].mean())
