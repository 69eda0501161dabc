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
from tasks.datasets.picture_rows import (
    Concatenated,
    Sliceable,
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

    def is_copy(self, images: Sliceable) -> NDArray[np.bool_]:
        """Return whether each image is a copy of a training image, shape (n,).

        The images must have the shape of the training images. Uniform images, which show nothing, never count as
        copies.
        """
        training_digests = training_contents(self.data, self.examples)
        copies = np.zeros(len(images), bool)
        for part, pixels in slices(images):
            values = pixels.reshape(len(pixels), -1)
            rows = np.flatnonzero(values.min(axis=1) < values.max(axis=1))
            copies[part.start + rows] = [digest.tobytes() in training_digests for digest in contents(pixels[rows])]
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
    """Return the training images to leave out, or None if no probe or test image is a copy of one.

    Images that are not in memory are compared by the jobs, not in planning, which would read all of them.
    """
    question = config.trained
    if question is None:
        return None
    training_images = TrainingImages(question.data, question.examples)
    if not (is_in_memory(load(question.data).train) and is_in_memory(load(config.probe).test)):
        return training_images
    copies = count_copies(training_images, config.probe, config.probe_split)
    if copies or has_test_copies(training_images):
        return training_images
    return None


@lru_cache(maxsize=4)
def has_test_copies(training_images: TrainingImages) -> bool:
    """Return whether test images of the data set are exact copies of its training images."""
    return bool(training_images.is_copy(whole_split(load(training_images.data).test)).any())


@lru_cache(maxsize=16)
def count_copies(training_images: TrainingImages, probe: Dataset, split: str) -> int:
    """Count the probe images that are exact copies of training images. Raises DatasetError if all are."""
    probe_rows = split_images(load(probe), split)
    probe_pixels = reshape_images(whole_split(probe_rows), load(training_images.data).shape)
    copies = int(training_images.is_copy(probe_pixels).sum())
    if copies == len(probe_pixels):
        raise only_copies(training_images, probe, split, copies)
    return copies


def only_copies(training_images: TrainingImages, probe: Dataset, split: str, copies: int) -> DatasetError:
    """Return the error for a probe set of which every image is a copy of a training image."""
    return DatasetError(
        f"probe: all {copies:,} images of {probe.name} (probe_split={split}) are exact copies of training images "
        f"of {training_images.data.name}. Choose images that the networks are not trained on"
    )
