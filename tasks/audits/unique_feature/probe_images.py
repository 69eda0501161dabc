"""The images that models are asked about: clean, with the feature, with a random patch, with the feature's family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Feature, burn, burn_random, family
from tasks.datasets.images import as_shape

Pixels = NDArray[np.uint8]  # (n, height, width, channels)
Rows = NDArray[np.int64]
Shape = tuple[int, int, int]  # height, width, channels
ProbeSplit = Literal["test", "both"]
RandomKind = Literal["noise", "family"]

MEMBERS = 200  # of the family that a random patch is one of


@dataclass(frozen=True)
class Triples:
    """Images three times over: clean (x_c), with the feature (x_u) and with a random patch each (x_r)."""

    images: str  # probe or train
    rows: Rows
    clean: Pixels
    unique: Pixels
    random: Pixels


@dataclass(frozen=True)
class Burning:
    """What is put into images: the feature, and random patches of a kind, drawn below a seed."""

    feature: Feature
    random: RandomKind
    seed: int


def probe_images(probe: Dataset, split: ProbeSplit, shape: Shape, most: int = 0) -> Pixels:
    """The out-of-distribution probe set in a shape, its first `most` images (0: all)."""
    data = load(probe)
    images = data.test_images
    if split == "both":
        images = np.concatenate([images, data.train_images])
    return as_shape(images[: most or None], shape)


def probe_set_triples(clean: Pixels, burning: Burning) -> Triples:
    """The triples of a whole probe set."""
    return triples("probe", clean, np.arange(len(clean)), len(clean), burning)


def training_set_triples(data: Dataset, examples: int, canary: int, burning: Burning) -> Triples:
    """The triples of the training images of the canary's label, without the canary."""
    loaded = load(data)
    labels = loaded.train_labels[: examples or None]
    rows = np.flatnonzero(labels == labels[canary])
    rows = rows[rows != canary]
    return triples("train", loaded.train_images[rows], rows, len(labels), burning)


def triples(images: str, clean: Pixels, rows: Rows, count: int, burning: Burning) -> Triples:
    """`clean` holds the images at `rows` of a set of `count`; so an image's patch does not depend on the choice."""
    return Triples(
        images, rows, clean, burn(clean, burning.feature), burn_random_features(images, clean, rows, count, burning)
    )


def burn_random_features(images: str, clean: Pixels, rows: Rows, count: int, burning: Burning) -> Pixels:
    """The images with a random feature each, drawn for every row of the set."""
    if burning.random == "noise":
        return burn_random(clean, burning.feature, burning.seed, images, rows=rows)
    seed, size = seeds.derive(burning.seed, "random members"), clean.shape[1:3]
    members = family(burning.feature, Family(count=MEMBERS), seed, size)
    drawn = seeds.generator(burning.seed, "random members", images).integers(len(members), size=count)[rows]
    out = clean.copy()
    for which in np.unique(drawn):
        out[drawn == which] = burn(clean[drawn == which], members[which])
    return out


def burn_family(clean: Pixels, feature: Feature, config: Family, seed: int) -> Iterator[tuple[int, Pixels]]:
    """The probe images with each member of the feature's family, by its number: 0 is the feature itself."""
    yield 0, burn(clean, feature)
    for number, member in enumerate(family(feature, config, seed, clean.shape[1:3]), start=1):
        yield number, burn(clean, member)
