"""Notes about a user's data set: one-line warnings that `engram run` prints before doing any work.

A note never stops a run; invalid data raise DatasetError. A rule is a function of the data set and its images. To add
one, append it to RULES. Notes are cached by content digest, so the data sets of a store are examined only once.

The images of a large data set are not decoded for notes before a run. A note then says what was not examined, and
`examine_images` does it on request, a block of images at a time.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, MutableMapping

import numpy as np

from tasks.datasets import catalog
from tasks.datasets.boxed.picture_files import PictureFiles
from tasks.datasets.copies import count_copies, count_groups, test_contents, train_contents
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import PictureSet
from tasks.datasets.labelled import LabelledFiles
from tasks.datasets.near_copies import find_near_copies
from tasks.datasets.picture_rows import Sliceable, is_in_memory, slices, whole_split
from tasks.datasets.pictures import range_notes
from tasks.datasets.places import find

# Increase this when a rule is added or changed, so that notes of other versions are not reused.
VERSION = 5
EXAMINED = (
    "folder",
    "list",
    "parquet",
    "webdataset",
    "hf",
    "table",
    "boxed",
)  # kinds of users' data sets; published sets are not examined
SAMPLE = 64  # boxed images, or images of a large data set, whose levels are examined
Rule = Callable[[Dataset, PictureSet], Iterable[str]]


def _notes_of_reading(_: Dataset, images: PictureSet) -> Iterable[str]:
    """Return the notes that decoding the images produced."""
    return images.notes


def _notes_of_copies(_: Dataset, images: PictureSet) -> Iterable[str]:
    """Yield notes on exact copies among the training images and in the test split."""
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


def _notes_of_near_copies(dataset: Dataset, images: PictureSet) -> Iterable[str]:
    """Return a note on near copies among the training images, which are searched if they are in memory."""
    if images.is_table or not is_in_memory(images.train):
        return ()
    return _describe_near_copies(dataset, whole_split(images.train))


def _describe_near_copies(dataset: Dataset, images: Sliceable) -> Iterable[str]:
    near = find_near_copies(images)
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


RULES: tuple[Rule, ...] = (_notes_of_reading, _notes_of_copies, _notes_of_near_copies)


def data_notes(dataset: Dataset, cache: MutableMapping[str, str]) -> tuple[str, ...]:
    """Return the notes about a pinned data set, one line each, beginning with the data set's name.

    Published data sets and those without images have none. `cache` keeps notes between runs,
    as in `catalog.pin`.
    """
    if dataset.name.partition(":")[0] not in EXAMINED:
        return ()
    source = find(dataset.name)[1]
    key = _key_of(dataset)
    if key not in cache:
        cache[key] = json.dumps(_examine(dataset))
    notes = json.loads(cache[key])
    large = catalog.large_files(dataset)
    if large is not None:
        if _key_of_images(dataset) in cache:
            notes += json.loads(cache[_key_of_images(dataset)])
        else:
            notes += _notes_of_large_sample(dataset, large, cache)
    return tuple(f"{dataset.name}: {note}" for note in (*source.notes, *notes))


def examine_images(dataset: Dataset, cache: MutableMapping[str, str]) -> None:
    """Decode all images of a large pinned data set, and keep the notes for `data_notes`. Other sets need no more.

    Raises DatasetError if an image cannot be decoded. Images are read from their files, without the image cache.
    """
    large = catalog.large_files(dataset)
    if large is None or dataset.name.partition(":")[0] not in EXAMINED:
        return
    train, train_levels = large.rows_with_levels("train")
    test, test_levels = large.rows_with_levels("test")
    near = list(_describe_near_copies(dataset, whole_split(train)))
    for _ in slices(whole_split(test)):
        pass
    cache[_key_of_images(dataset)] = json.dumps([*range_notes(train_levels | test_levels), *near])


def _key_of(dataset: Dataset) -> str:
    return f"notes {VERSION} {dataset.digest}"


def _key_of_images(dataset: Dataset) -> str:
    return f"notes of images {VERSION} {dataset.digest}"


def _notes_of_large_sample(dataset: Dataset, large: LabelledFiles, cache: MutableMapping[str, str]) -> list[str]:
    """Return notes on the levels of a sample of a large data set, and on what was not examined."""
    key = f"notes of sample {VERSION} {dataset.digest}"
    if key not in cache:
        levels = large.sample_levels(SAMPLE)
        cache[key] = json.dumps([len(levels), range_notes(levels)])
    count, notes = json.loads(cache[key])
    examined = f"only the levels of {count} of them were examined" if count else "their levels were not examined"
    command = f"engram store verify --data --images {shlex.quote(dataset.name)}"
    return [
        *notes,
        f"its {large.extent().count:,} images are read by rows: {examined}, and near copies were not searched; to "
        f"decode and examine all images, use {command}",
    ]


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
