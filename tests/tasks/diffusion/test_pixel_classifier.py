"""The classifier of drawn images learns visible classes, keeps its best epoch and predicts labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.datasets.boxed.partition import Partition, TrainingImages
from tasks.datasets.dataset import Dataset
from tasks.diffusion.pixel_classifier import (
    PIXEL_CLASSIFIER,
    PixelClassifier,
    PixelTraining,
    classify,
    train_classifier,
    train_pixel_classifier,
)
from tasks.models.catalog import Network

X = TrainingImages(Dataset("digits-on-photos"), 0.0, Partition(per_class=2, public=20), "X")
TINY = PixelTraining(X, 8, PixelClassifier(augmentation=False, epochs=3, batch=16))
SMALL = replace(TINY, classifier=replace(TINY.classifier, network=Network("cnn1")))


def colours(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Noisy images, each red, green or blue according to its label."""
    stream = np.random.default_rng(seed)
    labels = stream.integers(0, 3, count)
    pixels = stream.integers(0, 120, (count, 8, 8, 3)).astype(np.uint8)
    pixels[np.arange(count), :, :, labels] += 100
    return pixels, labels


def test_visible_classes_are_learnt_and_generalise() -> None:
    table = train_classifier(SMALL, *colours(100, 0), 3)
    assert table.schema == PIXEL_CLASSIFIER
    assert table["held_out"].to_pylist() == [10]
    assert table["held_out_accuracy"].to_pylist() == [1.0]
    pixels, labels = colours(40, 1)
    np.testing.assert_array_equal(labels, classify(table, pixels))
    assert table.equals(train_classifier(SMALL, *colours(100, 0), 3))


def test_random_labels_give_low_held_out_accuracy() -> None:
    pixels, labels = colours(200, 0)
    table = train_classifier(SMALL, pixels, np.random.default_rng(2).permutation(labels), 3)
    assert table["held_out_accuracy"][0].as_py() < 0.7


def test_task_trains_on_images_of_its_part() -> None:
    table = train_pixel_classifier(TINY, [])
    assert [row["shape"] for row in table["network"].to_pylist()] == [[8, 8, 3]]
    assert [row["classes"] for row in table["network"].to_pylist()] == [10]
    assert table["held_out"].to_pylist() == [2]


def test_too_few_images_and_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="the classifier has 9 images; it needs at least ten"):
        train_classifier(TINY, *colours(9, 0), 3)
    with pytest.raises(ValueError, match="resolution is 4; it must be at least 8"):
        PixelTraining(X, 4)
    with pytest.raises(ValueError, match="network is 'mlp9'; it must be one of"):
        PixelClassifier(Network("mlp9"))
