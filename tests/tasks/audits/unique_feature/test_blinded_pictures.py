"""What an owner gets: the very images that a model here is asked about, in one set that says nothing about them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from tasks.audits.unique_feature.blinded_pictures import (
    LABELLED_COUNT,
    LABELLED_SET,
    image_sets,
    labels,
    picture_ids,
    pictures,
    repeated_ids,
    split_key,
)
from tasks.audits.unique_feature.feature_family import Relatives, clean_images, family_rows
from tasks.audits.unique_feature.single_models import SingleModelConfig
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph

SHAPE, PROBES, MEMBERS = (12, 12, 1), 30, 19
RELATIVES = Relatives(pin(Dataset("photos")), "test", PROBES, Glyph(), Family(count=MEMBERS), seed=2)
ASKED = SingleModelConfig(RELATIVES, "noise", SHAPE, order=5, labelled=pin(Dataset("digits")))
NAMES = ["clean", "random", "feature", *(f"family-{number:03d}" for number in range(1, MEMBERS + 1))]


def test_the_sets_are_the_very_images_that_a_model_here_is_asked_about() -> None:
    held = dict(image_sets(ASKED))
    assert [*NAMES, LABELLED_SET] == list(held)
    assert {(PROBES, *SHAPE)} == {held[name].shape for name in NAMES}
    asked: list[str] = []

    def says(name: str, images: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        asked.append(name)
        assert (held[name] == images).all()
        return np.full((len(images), 2), np.log(0.5))

    family_rows(RELATIVES, clean_images(RELATIVES, SHAPE), [says])
    assert set(NAMES) - {"random"} == set(asked)


def test_the_owner_gets_them_in_one_set_and_the_key_says_which_is_which() -> None:
    name, given = pictures(ASKED)
    count = len(NAMES) * PROBES + LABELLED_COUNT
    assert (count + round(0.1 * count), *SHAPE) == given.shape
    at = {f"{name}/{place:06d}.png": picture for place, picture in enumerate(given)}
    held, where = dict(image_sets(ASKED)), picture_ids(ASKED)
    for of, images in held.items():
        assert all((at[place] == image).all() for place, image in zip(where[of], images, strict=True))
    assert all((at[first] == at[second]).all() for first, second in repeated_ids(ASKED))
    listed = {row["image"]: row["set"] for row in split_key(ASKED).to_pylist()}
    assert set(at) == set(listed)
    assert all(listed[place] == of for of, ids in where.items() for place in ids)
    assert all(listed[first] == listed[second] for first, second in repeated_ids(ASKED))
    assert (PROBES, LABELLED_COUNT) <= (min(Counter(listed.values()).values()), Counter(listed.values())[LABELLED_SET])


def test_beside_references_the_images_that_slopes_are_fitted_to_are_among_them() -> None:
    digits = replace(RELATIVES, probe=pin(Dataset("digits")))
    beside = replace(ASKED, relatives=digits, shape=(28, 28, 1), label=3, references=True)
    more = set(picture_ids(beside)) - set(picture_ids(replace(beside, references=False)))
    assert {f"slopes-{at:03d}" for at in range(100)} == more
    assert pictures(beside)[0] != pictures(replace(beside, label=4))[0]


def test_what_is_not_seen_in_the_pictures_does_not_change_them() -> None:
    name, given = pictures(ASKED)
    same, again = pictures(replace(ASKED, number=3, label=1, accuracy=0.9, classes=10))
    assert (name, True) == (same, bool((given == again).all()))
    assert name != pictures(replace(ASKED, order=6))[0]
    assert name != pictures(replace(ASKED, relatives=replace(RELATIVES, probes=29)))[0]


def test_the_pictures_with_labels_are_drawn_from_all_classes_and_have_their_own() -> None:
    digits = load(Dataset("digits"))
    whole = replace(ASKED, shape=(28, 28, 1))
    shown, known = dict(image_sets(whole))[LABELLED_SET], labels(whole)
    label_of = {image.tobytes(): label for image, label in zip(digits.test_images, digits.test_labels, strict=True)}
    assert [label_of[image.tobytes()] for image in shown] == known.tolist()
    # A folder lists its pictures class by class: the first hundred would be of one.
    assert set(range(10)) == set(known.tolist())
    assert digits.test_labels[:LABELLED_COUNT].tolist() != known.tolist()
    assert known.tolist() != labels(replace(whole, order=6)).tolist()
