"""Notes about a user's data set: one-line warnings that are printed by `engram plan` and `engram run` before any work.

A note never stops a run; what must not be run is a DatasetError. A rule is a function of the data set and its images;
add it to RULES. Notes are remembered by the digest of the content, so that a store's data sets are examined once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, MutableMapping

from tasks.datasets import catalog
from tasks.datasets.boxed.picture_files import PictureFiles
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.datasets.pictures import range_notes
from tasks.datasets.places import find

# Raise it if a rule is added or changed: remembered notes are those of one version.
VERSION = 1
EXAMINED = ("folder", "list", "parquet", "boxed")  # the kinds of a user's images; published sets are known
SAMPLE = 64  # boxed pictures whose levels are looked at
Rule = Callable[[Dataset, Images], Iterable[str]]


def notes_of_reading(_: Dataset, images: Images) -> Iterable[str]:
    """The notes that were taken while the images were decoded."""
    return images.notes


RULES: tuple[Rule, ...] = (notes_of_reading,)


def data_notes(dataset: Dataset, known: MutableMapping[str, str]) -> tuple[str, ...]:
    """The notes about a pinned data set, one line each, which begin with its name.

    There are none for published sets, for sets without images, and for those that are larger than memory. `known`
    remembers them between runs: it is the mapping that `catalog.pin` takes.
    """
    if dataset.name.partition(":")[0] not in EXAMINED:
        return ()
    source = find(dataset.name)[1]
    key = f"notes {VERSION} {dataset.digest}"
    if key not in known:
        known[key] = json.dumps([] if catalog.is_large(source) else _examine(dataset))
    return tuple(f"{dataset.name}: {note}" for note in (*source.notes, *json.loads(known[key])))


def _examine(dataset: Dataset) -> list[str]:
    if dataset.name.startswith("boxed:"):
        return list(notes_of_sample(dataset))
    images = catalog.load(dataset)
    return [note for rule in RULES for note in rule(dataset, images)]


def notes_of_sample(dataset: Dataset) -> Iterable[str]:
    """The notes about the levels of some boxed pictures, which are too many to decode all of them."""
    pictures = catalog.load_with_boxes(dataset)
    assert isinstance(pictures, PictureFiles)
    count = len(pictures.ids)
    sample = range(0, count, max(1, count // SAMPLE))
    return range_notes(pictures.decode(row).levels for row in sample)
