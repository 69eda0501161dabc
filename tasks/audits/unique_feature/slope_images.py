"""The images to which a model's slopes in the feature's pixels are fitted: of one label, with each of many features."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.unique_feature.feature_family import Relatives
from tasks.audits.unique_feature.probe_images import Pixels, Shape
from tasks.audits.unique_feature.slope_ranks import slope_features
from tasks.datasets.catalog import load
from tasks.datasets.features import burn
from tasks.datasets.images import as_shape

IMAGES = 100  # of a label, over which a response is the mean


def label_images(asked: Relatives, shape: Shape, label: int) -> Pixels:
    """The first test images of the label in the probe set; ValueError where it has none."""
    data = load(asked.probe)
    images = data.test_images[data.test_labels == label][:IMAGES]
    if not len(images):
        raise ValueError(
            f"probe {asked.probe.name} has no test image of label {label}; beside references it must hold images like "
            "those of training, with the labels of the models' classes"
        )
    return as_shape(images, shape)


def slope_sets(asked: Relatives, clean: Pixels) -> Iterator[tuple[str, Pixels]]:
    """The images with each feature to which slopes are fitted, by the names of these sets."""
    for number, feature in enumerate(slope_features(asked, clean.shape[1:3])):
        yield f"slopes-{number:03d}", burn(clean, feature)
