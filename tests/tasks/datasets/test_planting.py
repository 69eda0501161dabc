"""Images planted in a data set by an option of its name."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.datasets.options import split

PLAIN = load(Dataset("digits#8x8"))


def planted(option: str) -> Images:
    return load(pin(Dataset(f"digits#8x8#{option}")))


def test_only_first_images_are_changed() -> None:
    for option, rows in (("inverted3", 3), ("mislabelled3", 3), ("duplicated3", 6)):
        changed = planted(option)
        np.testing.assert_array_equal(PLAIN.train_images[rows:], changed.train_images[rows:])
        np.testing.assert_array_equal(PLAIN.train_labels[rows:], changed.train_labels[rows:])
        np.testing.assert_array_equal(PLAIN.test_images, changed.test_images)


def test_each_option_makes_its_change() -> None:
    np.testing.assert_array_equal(255 - PLAIN.train_images[:3], planted("inverted3").train_images[:3])
    np.testing.assert_array_equal((PLAIN.train_labels[:3] + 1) % 10, planted("mislabelled3").train_labels[:3])
    twice = planted("duplicated3")
    np.testing.assert_array_equal(PLAIN.train_images[:3], twice.train_images[:3])
    np.testing.assert_array_equal(PLAIN.train_images[:3], twice.train_images[3:6])
    np.testing.assert_array_equal(PLAIN.train_labels[:3], twice.train_labels[3:6])


def test_planting_gives_another_data_set() -> None:
    names = (f"digits#8x8{option}" for option in ("", "#inverted3", "#inverted4", "#duplicated3"))
    digests = {pin(Dataset(name)).digest for name in names}
    assert len(digests) == 4
    assert split("digits#inverted3#8x8")[0] == "digits"
    assert str(split("digits#inverted3#8x8")[1]) == "#8x8#inverted3"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("#inverted2000", "#inverted2000 plants in 2000 training images; there are 1437"),
        ("#duplicated719", "#duplicated719 plants in 1438 training images; there are 1437"),
        ("#inverted3#duplicated3", "plants twice"),
        ("#inverted", "has no option #inverted; the options are .*, and #inverted10"),
    ],
)
def test_invalid_planting_is_refused(option: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load(Dataset(f"digits#8x8{option}"))
