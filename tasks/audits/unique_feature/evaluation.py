"""The images on which a pair of models is evaluated: clean, with the feature, with a random patch, and with the family.

Both models get the same images, feature and random patches, so only the canary makes a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.answered_images import answered_predictor, is_answered
from tasks.audits.unique_feature.config import ProbeSplit, RandomKind, Shape, UniqueFeature
from tasks.audits.unique_feature.pairs.canary_selection import RankedImage
from tasks.audits.unique_feature.scores import Array, log_probabilities
from tasks.audits.unique_feature.unseen_images import TrainingImages, split_images
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, burn, burn_random, family
from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import Converted, Selected, Sliceable, hold, reshape_images
from tasks.numerics import seeds

Rows = NDArray[np.int64]

MEMBERS = 200  # size of the family from which a random patch is drawn


@dataclass(frozen=True)
class Triples:
    """Images in three versions: clean (x_c), with the feature (x_u), and each with a random patch (x_r)."""

    images: str  # probe or train
    rows: Rows
    clean: Sliceable
    unique: Sliceable
    random: Sliceable


@dataclass(frozen=True)
class Burning:
    """The patches burnt into images: the feature, and random patches of some kind, drawn from a seed."""

    feature: Feature
    random: RandomKind
    seed: int


def probe_images(
    probe: Dataset, split: ProbeSplit, shape: Shape, count: int = 0, seen_images: TrainingImages | None = None
) -> Sliceable:
    """Return the out-of-distribution probe images in a given shape.

    Copies of `seen_images` are left out, and the first `count` of the rest are returned (0: all).
    """
    images = split_images(load(probe), split)
    rows = np.arange(len(images))
    if seen_images is not None:
        rows = rows[~seen_images.copies_in(probe, split)]
    return hold(reshape_images(Selected(images, rows[: count or None]), shape))


def probe_set_triples(clean: Sliceable, burning: Burning) -> Triples:
    """Return the triples of a whole probe set."""
    return triples("probe", clean, np.arange(len(clean)), len(clean), burning)


def training_set_triples(data: Dataset, examples: int, canary: int, burning: Burning) -> Triples:
    """Return the triples of the training images with the canary's label, without the canary."""
    loaded = load(data)
    labels = loaded.train.labels[: examples or None]
    rows = np.flatnonzero(labels == labels[canary])
    rows = rows[rows != canary]
    return triples("train", hold(Selected(loaded.train, rows)), rows, len(labels), burning)


def triples(images: str, clean: Sliceable, rows: Rows, count: int, burning: Burning) -> Triples:
    """Return the triples of the images at `rows` of a set of `count`. Patches do not depend on the choice of rows."""
    shape = clean.shape[1:]
    random = Converted(
        clean, lambda pixels, part: _burn_random_features(images, pixels, rows[part], count, burning), shape
    )
    return Triples(images, rows, clean, burn_each(clean, burning.feature), hold(random))


def burn_each(images: Sliceable, feature: Feature) -> Sliceable:
    """Return the images with the feature burnt into each (`burn`)."""
    return hold(Converted(images, lambda pixels, _: burn(pixels, feature), images.shape[1:]))


def _burn_random_features(images: str, clean: Pixels, rows: Rows, count: int, burning: Burning) -> Pixels:
    """Burn a random feature into each image. The feature is drawn for the row of the image in its set."""
    if burning.random == "noise":
        return burn_random(clean, burning.feature, burning.seed, images, rows=rows)
    seed = seeds.derive(burning.seed, "random members")
    size = clean.shape[1:3]
    members = family(burning.feature, Family(count=MEMBERS), seed, size)
    patches = seeds.generator(burning.seed, "random members", images).integers(len(members), size=count)[rows]
    out = clean.copy()
    for member in np.unique(patches):
        out[patches == member] = burn(clean[patches == member], members[member])
    return out


def burn_family(clean: Sliceable, feature: Feature, config: Family, seed: int) -> Iterator[tuple[int, Sliceable]]:
    """Yield each member of the feature's family, by number, and the probe images with it. 0 is the feature itself."""
    height, width, _ = clean.shape[1:]
    yield 0, burn_each(clean, feature)
    for number, member in enumerate(family(feature, config, seed, (height, width)), start=1):
        yield number, burn_each(clean, member)


ModelName = Literal["canary", "twin"]
MODELS: tuple[ModelName, ...] = get_args(ModelName)

# Maps a named set of images (n, h, w, c) to a model's log-probabilities (n, classes).
Predictor = Callable[[str, Sliceable], Array]


@dataclass(frozen=True)
class Evaluation:
    """The images and the feature that a pair of models is evaluated on.

    `seed` draws the random patches. Each patch comes from the stream of its image set, at the image's row, so an image
    has the same patch in every model and for every canary, and scores differ only because the models do (the paper's M
    "uses the same random seed for each evaluation", section B.2). `redraw` numbers the draws, each with its own seed. A
    patch is noise, or another member of the feature's family (`random`). `canary` is a row among the first `examples`
    training images (0: all), or a rank among them by self-influence. Probe images that were `seen` in training are left
    out.
    """

    data: Dataset
    probe: Dataset
    probe_split: ProbeSplit
    feature: Feature
    canary: int | RankedImage
    examples: int
    seed: int
    redraw: int = 0
    random: RandomKind = "noise"
    seen: TrainingImages | None = None

    @property
    def burning(self) -> Burning:
        return Burning(self.feature, self.random, self.seed)


def evaluation_seed(seed: int, redraw: int = 0) -> int:
    """Derive the seed for one draw of the random patches from the seed of the run."""
    return seeds.derive(seed, "evaluation", *((redraw,) if redraw else ()))


def burning(config: UniqueFeature) -> Burning:
    """Return the patches for probe images if all canaries share them."""
    return Burning(config.asked_feature, config.random, evaluation_seed(config.seed))


def probe_triples(config: Evaluation) -> Triples:
    """Return the triples of the out-of-distribution probe set, in the shape of the training images."""
    shape = load(config.data).shape
    return probe_set_triples(
        probe_images(config.probe, config.probe_split, shape, seen_images=config.seen), config.burning
    )


def network_predictor(model: pa.Table) -> Predictor:
    """Return the predictor of a model of a pair, from its MODEL table or from the outputs of a program's model."""
    if is_answered(model):
        return answered_predictor(model)
    from tasks.models.inference import logits
    from tasks.models.networks import architecture_of, weights_of_model

    network = architecture_of(model)
    weights = weights_of_model(model)
    return lambda _, images: log_probabilities(logits(network, [weights], images)[0])


def check_label(label: int | None, classes: int) -> None:
    """Raise ValueError if the model has no class with the number of the label."""
    if label is not None and label >= classes:
        raise ValueError(f"label is {label}; the model's classes are 0 to {classes - 1}")
