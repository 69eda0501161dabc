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
from tasks.datasets.images import Images, Pixels, as_shape


@dataclass(frozen=True)
class TrainingImages:
    """The first `examples` training images of a data set (0: all), whose exact copies are left out."""

    data: Dataset
    examples: int = 0

    def leave_out(self, images: Pixels) -> Pixels:
        """Return the images without copies of training images. They must have the shape of the training images."""
        return images[~self.is_copy(images)]

    def is_copy(self, images: Pixels) -> NDArray[np.bool_]:
        """Return whether each image is a copy of a training image, shape (n,).

        Uniform images, which show nothing, never count as copies.
        """
        pixels = images.reshape(len(images), -1)
        rows = np.flatnonzero(pixels.min(axis=1) < pixels.max(axis=1))
        training_digests = training_contents(self.data, self.examples)
        copies = np.zeros(len(images), bool)
        copies[rows] = [digest.tobytes() in training_digests for digest in contents(images, rows)]
        return copies


@lru_cache(maxsize=4)
def training_contents(data: Dataset, examples: int) -> frozenset[bytes]:
    digests = contents(load(data).train_images[: examples or None])
    return frozenset(digest.tobytes() for digest in digests)


def split_images(data: Images, split: str) -> Pixels:
    """Return the test images of a probe set, followed by its training images if `split` is `both`."""
    if split == "both":
        return np.concatenate([data.test_images, data.train_images])
    return data.test_images


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


@lru_cache(maxsize=4)
def has_test_copies(training_images: TrainingImages) -> bool:
    """Return whether test images of the data set are exact copies of its training images."""
    return bool(training_images.is_copy(load(training_images.data).test_images).any())


@lru_cache(maxsize=16)
def count_copies(training_images: TrainingImages, probe: Dataset, split: str) -> int:
    """Count the probe images that are exact copies of training images. Raises DatasetError if all are."""
    probe_pixels = as_shape(split_images(load(probe), split), load(training_images.data).shape)
    copies = int(training_images.is_copy(probe_pixels).sum())
    if copies == len(probe_pixels):
        raise DatasetError(
            f"probe: all {copies:,} images of {probe.name} (probe_split={split}) are exact copies of training images "
            f"of {training_images.data.name}. Choose images that the networks are not trained on"
        )
    return copies
