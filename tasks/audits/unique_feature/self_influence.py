"""How strongly every training image pulls at the weights that it is trained on: its self-influence.

    TracInCP(x) = sum over checkpoints t of  eta_t ||grad loss(w_t, x)||^2

over all learned weights, with x's own label, in evaluation (nothing dropped, running statistics). Large: the network
has to change for this image's sake, again and again; about 0: the others have taught it already what the image shows.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", A.5, eq. 2; Garima et
al. 2020, "Estimating training data influence by tracing gradient descent", section 3.2.

Decisions where the paper is silent.
- A checkpoint is the end of an epoch, and eta_t the learning rate in the epoch that ends there, schedule included. It
  is the nominal one: Adam's and RMSprop's rates per weight are not in the formula. The published high values (6.6e4,
  7.5e4) fit the sum without it (8.1e4 is the highest of MNIST here), so `squared_slopes` gives that too; with one rate
  for all epochs both rank alike.
- The loss falls from that of the initial weights over the training images (near log classes) to the lowest epoch's mean
  over its minibatches. The checkpoints lie evenly over the epochs up to the first at which `share` of that fall has
  passed, the last of them there.
- Where that part has fewer epochs than there shall be checkpoints, it goes on to as many epochs, if there are so many:
  MLP-1 on MNIST passes 95 % in its third epoch of sixteen (seed 0), and the paper has ten checkpoints.

Cost. One training, with every epoch's weights held in memory (float32: 2.3 MB an epoch for MLP-1, 3.2 MB for
DenseNet-100), and per checkpoint a pass forward and back over all training images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.canary_selection import RankedImage, RankedTraining, check_no_features, resolve_canary
from tasks.audits.unique_feature.scores import log_probabilities
from tasks.datasets.catalog import load
from tasks.datasets.features import Feature
from tasks.job import Inputs, task
from tasks.ranges import check_minimums, share
from tasks.training import classifier
from tasks.training.classifier import Training

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.datasets.images import Images
    from tasks.models.networks import Architecture, Weights
    from tasks.training.members import Member, Spec
    from tasks.training.recipe import Recipe

Pixels = NDArray[np.uint8]  # (n, height, width, channels)
Labels = NDArray[np.int64]  # (n,)

INFLUENCE = pa.schema(
    [
        ("row", pa.int64()),  # of the training images
        ("label", pa.int32()),
        ("self_influence", pa.float64()),  # the sum over checkpoints of the learning rate times the squared slope
        ("squared_slopes", pa.float64()),  # the same without the learning rate
        ("checkpoints", pa.list_(pa.int32())),  # the epochs summed over, from 1
    ]
)


@dataclass(frozen=True)
class Tracing:
    """Which training is traced, and at how many checkpoints over which share of its loss's fall.

    With `canary` and `feature` the training image of that rank carries the feature, in training and where its slope is
    measured.
    """

    training: Training
    canary: RankedImage | None = None
    feature: Feature | None = None
    checkpoints: int = 10
    share: float = 0.95

    def __post_init__(self) -> None:
        if (self.canary is None) != (self.feature is None):
            given, missing = ("feature", "canary") if self.canary is None else ("canary", "feature")
            raise ValueError(f"{given} is given and {missing} is not; give both, or neither")
        if self.canary is not None:
            check_no_features(self.training)
        check_minimums(self, {"checkpoints": 1})
        share(self, "share", zero=False)


def batch_key(config: Tracing) -> Training:
    """What tracings must share to take about as long as one another."""
    return classifier.batch_key(config.training)


@task(version=1, name="unique_feature.influence", gpus=1.0, batch_key=batch_key, trains=1)
def influence(config: Tracing, inputs: Inputs) -> pa.Table:
    """Every training image's self-influence (INFLUENCE), by row.

    The input, where the canary is named by its rank, is the table of the chosen ones.
    """
    from tasks.models.per_example_gradients import squared_gradients

    training = traced_training(config, inputs)
    images = load(training.data)
    network, member = classifier.architecture(training, images), classifier.member_of(training, images)
    spec = classifier.spec_of(training, images)
    pixels, labels = training_images(member, images)
    losses, weights = trace_training(spec, member)
    start = mean_loss(network, network.initial(training.seed), pixels, labels)
    epochs = checkpoint_epochs([start, *losses], config.checkpoints, config.share)
    squares = squared_gradients(network, [weights[epoch] for epoch in epochs], pixels, labels)  # (checkpoints, images)
    columns = {
        "row": member.rows,
        "label": labels,
        "self_influence": learning_rates(spec.recipe, epochs) @ squares,
        "squared_slopes": squares.sum(axis=0),
        "checkpoints": [epochs] * len(labels),
    }
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in INFLUENCE], schema=INFLUENCE)


def checkpoint_epochs(losses: Sequence[float], count: int, share: float) -> list[int]:
    """The epochs, from 1, at which a training is traced: at most `count`, evenly spaced, by its losses.

    `losses` are that before training and each epoch's. The last epoch chosen is the first one at which the loss has
    fallen by `share` of its whole fall, to the lowest; or, where there are not `count` epochs up to there, the
    count-th; or the training's last, where it has no more, or where the loss never fell. The k-th of n is that times
    k / n, rounded, halves up.
    """
    start, *after = losses
    falls = [start - loss for loss in after]
    whole = max(falls)
    passed = next(epoch for epoch, fall in enumerate(falls, 1) if fall >= share * whole) if whole > 0 else len(after)
    last = max(passed, min(count, len(after)))
    number = min(count, last)
    return [(2 * k * last + number) // (2 * number) for k in range(1, number + 1)]


def learning_rates(recipe: Recipe, epochs: Sequence[int]) -> NDArray[np.float64]:
    """The learning rate in each of these epochs."""
    return np.array([recipe.learning_rate * recipe.factor(epoch) for epoch in epochs])


def traced_training(config: Tracing, inputs: Inputs) -> Training:
    """The training that is traced, the canary's row in place of its rank."""
    if config.canary is None or config.feature is None:
        return config.training
    return resolve_canary(RankedTraining(config.training, config.canary, config.feature), inputs)


def training_images(member: Member, images: Images) -> tuple[Pixels, Labels]:
    """The images that a training sees, with their features, and their labels."""
    pixels = images.train_images[member.rows]
    for place in np.flatnonzero(np.isin(member.rows, list(member.replaced))):
        pixels[place] = member.replaced[int(member.rows[place])]
    return pixels, images.train_labels[member.rows]


def trace_training(spec: Spec, member: Member) -> tuple[list[float], dict[int, Weights]]:
    """Each epoch's training loss, and its weights by epoch (from 1); TrainingError where training cannot go on."""
    from tasks.models.networks import model_weights
    from tasks.training.trainer import train_many

    weights: dict[int, Weights] = {}

    def watch(who: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]) -> None:
        for place, (_, epoch) in enumerate(who):
            weights[epoch] = model_weights(tensors, place)  # a training that starts again gives the same once more

    ((_, outcome),) = train_many(replace(spec, watch=watch), [member])
    if isinstance(outcome, Exception):
        raise outcome
    return [epoch.train_loss for epoch in outcome.history], weights


def mean_loss(network: Architecture, weights: Weights, pixels: Pixels, labels: Labels) -> float:
    """The mean cross-entropy in nats."""
    from tasks.models.inference import logits

    log_p = log_probabilities(logits(network, [weights], pixels)[0])
    return float(-log_p[np.arange(len(labels)), labels].mean())
