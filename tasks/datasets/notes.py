"""Notes about a user's data set: one-line warnings that `engram run` prints before doing any work.

A note never stops a run; invalid data raise DatasetError. A rule is a function of the data set and its images. To add
one, append it to RULES. Notes are cached by content digest, so the data sets of a store are examined only once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, MutableMapping

import numpy as np

from tasks.datasets import catalog
from tasks.datasets.boxed.picture_files import PictureFiles
from tasks.datasets.copies import count_copies, count_groups, test_contents, train_contents
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images, PictureSet
from tasks.datasets.near_copies import find_near_copies
from tasks.datasets.pictures import range_notes
from tasks.datasets.places import find

# Increase this when a rule is added or changed, so that notes of other versions are not reused.
VERSION = 4
EXAMINED = (
    "folder",
    "list",
    "parquet",
    "webdataset",
    "hf",
    "table",
    "boxed",
)  # kinds of users' data sets; published sets are not examined
SAMPLE = 64  # boxed images whose levels are examined
Rule = Callable[[Dataset, PictureSet], Iterable[str]]


def _notes_of_reading(_: Dataset, images: PictureSet) -> Iterable[str]:
    """Return the notes that decoding the images produced."""
    return images.notes


def _notes_of_copies(dataset: Dataset, images: PictureSet) -> Iterable[str]:
    """Yield notes on exact copies among the training images and in the test split, and on near copies.

    Near copies are not searched among images that are not in memory.
    """
    things = "rows" if images.is_table else "images"
    copies = count_copies(images, np.arange(len(images.train)))
    if copies.groups:
        yield (
            f"{copies.groups:,} groups of exact copies among the training {things} ({copies.images:,} {things}); the "
            "copies of a group count as one record, with one coin and in one split"
        )
    training_contents = {digest.tobytes() for digest in train_contents(images)}
    in_test = sum(digest.tobytes() in training_contents for digest in test_contents(images))
    if in_test:
        yield (
            f"{in_test:,} of {len(images.test):,} test {things} are exact copies of training {things}: the "
            f"accuracy on them is not that on unseen {things}; remove them"
        )
    if images.is_table or not isinstance(images, Images):
        return
    near = find_near_copies(images.train_images)
    if near:
        first, second = near[0]
        paths = catalog.files(dataset)
        if paths:
            example = f"{paths[first]} and {paths[second]}"
        else:
            example = f"training images {first} and {second}"
        count = len({row for pair in near for row in pair})
        yield (
            f"{count:,} training images are nearly equal to another, such as {example}; near copies hide memory, since "
            "models trained without one image are trained on the other: keep only one of them"
        )


RULES: tuple[Rule, ...] = (_notes_of_reading, _notes_of_copies)


def data_notes(dataset: Dataset, cache: MutableMapping[str, str]) -> tuple[str, ...]:
    """Return the notes about a pinned data set, one line each, beginning with the data set's name.

    Published data sets and those without images have none. `cache` keeps notes between runs,
    as in `catalog.pin`.
    """
    if dataset.name.partition(":")[0] not in EXAMINED:
        return ()
    source = find(dataset.name)[1]
    key = f"notes {VERSION} {dataset.digest}"
    if key not in cache:
        cache[key] = json.dumps(_examine(dataset))
    return tuple(f"{dataset.name}: {note}" for note in (*source.notes, *json.loads(cache[key])))


def _examine(dataset: Dataset) -> list[str]:
    if dataset.name.startswith("boxed:"):
        return [*_notes_of_sample(dataset), *_notes_of_boxed_copies(dataset)]
    images = catalog.load(dataset)
    return [note for rule in RULES for note in rule(dataset, images)]


def _notes_of_sample(dataset: Dataset) -> Iterable[str]:
    """Return notes on the levels of a sample of boxed images, since decoding every image would take too long."""
    pictures = catalog.load_with_boxes(dataset)
    assert isinstance(pictures, PictureFiles)
    count = len(pictures.ids)
    sample = range(0, count, max(1, count // SAMPLE))
    return range_notes(pictures.decode(row).levels for row in sample)


def _notes_of_boxed_copies(dataset: Dataset) -> Iterable[str]:
    """Return a note on exact copies among boxed images: identical pixels, or identical files for ImageNet."""
    copies = count_groups(catalog.load_with_boxes(dataset).first_copies)
    if copies.groups:
        yield (
            f"{copies.groups:,} groups of exact copies among the images ({copies.images:,} images); the copies of "
            "a group count as one image, and all are in one part"
        )
