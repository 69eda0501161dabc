"""The pictures that an owner is handed who keeps the model: every set that a model is asked about, blinded.

All are in one set, in an order that a secret says, some of them twice. Pictures with labels may be among them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks import seeds
from tasks.audits.unique_feature.feature_family import clean_images, member_image_sets
from tasks.audits.unique_feature.probe_images import Pixels, probe_set_triples
from tasks.audits.unique_feature.single_models import SingleModelConfig, burning
from tasks.audits.unique_feature.slope_images import label_images, slope_sets
from tasks.datasets.catalog import load
from tasks.datasets.images import Labels, as_shape
from tasks.external.blinding import HandedOut, blind_images, key_of

LABELLED_COUNT = 100  # pictures with labels that are mixed in, where there are any
LABELLED_SET = "labelled"  # their set


def image_sets(config: SingleModelConfig) -> Iterator[tuple[str, Pixels]]:
    """Every set of images that a model is evaluated on, by name, those that slopes are fitted to, those with labels."""
    clean = clean_images(config.relatives, config.shape)
    yield "clean", clean
    yield "random", probe_set_triples(clean, burning(config)).random
    for _, name, images in member_image_sets(clean, config.relatives):
        yield name, images
    if config.references and config.label is not None:
        yield from slope_sets(config.relatives, label_images(config.relatives, config.shape, config.label))
    if config.labelled is not None:
        yield LABELLED_SET, as_shape(load(config.labelled).test_images[_labelled_rows(config)], config.shape)


def labels(config: SingleModelConfig) -> Labels:
    """The true classes of the set of pictures with labels, (n,)."""
    assert config.labelled is not None
    return load(config.labelled).test_labels[_labelled_rows(config)]


def _labelled_rows(config: SingleModelConfig) -> NDArray[np.int64]:
    """The test images of the labelled set that are mixed in, drawn at random: folders list them class by class."""
    assert config.labelled is not None
    drawn = seeds.generator(config.order, "labelled").permutation(len(load(config.labelled).test_labels))
    return np.sort(drawn[:LABELLED_COUNT])


def pictures(config: SingleModelConfig) -> tuple[str, Pixels]:
    """The name of the one set that an owner gets, and its images."""
    handed, _ = _handed_out(_picture_config(config))
    return handed.name, np.concatenate([images for _, images in image_sets(config)])[handed.order]


def picture_ids(config: SingleModelConfig) -> dict[str, list[str]]:
    """The ids of each set's images, by the name of the set."""
    handed, slices = _handed_out(_picture_config(config))
    ids = handed.ids
    return {name: ids[rows] for name, rows in slices.items()}


def repeated_ids(config: SingleModelConfig) -> list[tuple[str, str]]:
    """The two ids of each picture that is there twice."""
    handed, _ = _handed_out(_picture_config(config))
    ids = handed.ids
    return [(ids[image], again) for image, again in handed.repeats.items()]


def split_key(config: SingleModelConfig) -> pa.Table:
    """What each picture is (`split.KEY`)."""
    handed, slices = _handed_out(_picture_config(config))
    ids, again = handed.ids, handed.repeats
    of = {image: name for name, rows in slices.items() for image in range(rows.start, rows.stop)}
    return key_of([*((ids[image], of[image]) for image in of), *((twice, of[image]) for image, twice in again.items())])


def _picture_config(config: SingleModelConfig) -> SingleModelConfig:
    """The config less what has no part in the pictures."""
    return SingleModelConfig(
        config.relatives,
        config.random,
        config.shape,
        label=config.label if config.references else None,
        order=config.order,
        labelled=config.labelled,
        references=config.references,
    )


@lru_cache(maxsize=2)
def _handed_out(config: SingleModelConfig) -> tuple[HandedOut, dict[str, slice]]:
    """How the images are handed out, and which of them are each set's."""
    digest, slices, count = hashlib.sha256(), dict[str, slice](), 0
    for name, images in image_sets(config):
        digest.update(name.encode() + images.tobytes())
        slices[name] = slice(count, count + len(images))
        count += len(images)
    return blind_images([digest.hexdigest(), config.order], count, config.order), slices
