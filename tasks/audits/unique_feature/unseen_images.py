"""Leaves training images out of the images on which networks are evaluated.

The answer describes images that no network saw. A probe set or a test split may contain exact copies of training
images, in the networks' input shape. Such copies are left out and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.datasets.catalog import load
from tasks.datasets.copies import contents
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import PictureRows, Splits
from tasks.datasets.large_images import LargeImages
from tasks.datasets.picture_rows import (
    Concatenated,
    is_in_memory,
    reshape_images,
    slices,
    whole_split,
)


@dataclass(frozen=True)
class TrainingImages:
    """The first `examples` training images of a data set (0: all), whose exact copies are left out."""

    data: Dataset
    examples: int = 0

    def copies_in(self, data: Dataset, split: str) -> NDArray[np.bool_]:
        """Return whether each image of a split (`split_images`) is a copy of a training image, shape (n,).

        Images are compared in the shape of the training images. Uniform images, which show nothing, never count as
        copies. Images that are not in memory are compared by their files, as in `tasks.datasets.copies`. If only one of
        both sets is in memory, no copy is known.
        """
        return _find_copies(self, data, split)


@lru_cache(maxsize=16)
def _find_copies(training_images: TrainingImages, data: Dataset, split: str) -> NDArray[np.bool_]:
    trained_on = load(training_images.data)
    probed = load(data)
    images = split_images(probed, split)
    copies = np.zeros(len(images), bool)
    if isinstance(trained_on, LargeImages) and isinstance(probed, LargeImages):
        files = probed.test_hashes
        if split == "both":
            files = np.concatenate([files, probed.train_hashes])
        known_files = {digest.tobytes() for digest in trained_on.train_hashes[: training_images.examples or None]}
        copies[:] = [digest.tobytes() in known_files for digest in files]
    elif is_in_memory(trained_on.train) and is_in_memory(images):
        training_digests = training_contents(training_images.data, training_images.examples)
        for part, pixels in slices(reshape_images(whole_split(images), trained_on.shape)):
            values = pixels.reshape(len(pixels), -1)
            rows = np.flatnonzero(values.min(axis=1) < values.max(axis=1))
            copies[part.start + rows] = [digest.tobytes() in training_digests for digest in contents(pixels[rows])]
    copies.setflags(write=False)
    return copies


@lru_cache(maxsize=4)
def training_contents(data: Dataset, examples: int) -> frozenset[bytes]:
    digests = contents(whole_split(load(data).train, examples))
    return frozenset(digest.tobytes() for digest in digests)


def split_images(data: Splits, split: str) -> PictureRows:
    """Return the test images of a probe set, followed by its training images if `split` is `both`."""
    if split == "both":
        return Concatenated((data.test, data.train))
    return data.test


def seen_images(config: UniqueFeature) -> TrainingImages | None:
    """Return the training images to leave out, or None if no probe or test image is a copy of one."""
    question = config.trained
    if question is None:
        return None
    training_images = TrainingImages(question.data, question.examples)
    copies = count_copies(training_images, config.probe, config.probe_split)
    if copies or has_test_copies(training_images):
        return training_images
    return None


def has_test_copies(training_images: TrainingImages) -> bool:
    """Return whether test images of the data set are exact copies of its training images."""
    return bool(training_images.copies_in(training_images.data, "test").any())


def count_copies(training_images: TrainingImages, probe: Dataset, split: str) -> int:
    """Count the probe images that are exact copies of training images. Raises DatasetError if all are."""
    is_copy = training_images.copies_in(probe, split)
    copies = int(is_copy.sum())
    if copies == len(is_copy):
        raise DatasetError(
            f"probe: all {copies:,} images of {probe.name} (probe_split={split}) are exact copies of training images "
            f"of {training_images.data.name}. Choose images that the networks are not trained on"
        )
    return copies
