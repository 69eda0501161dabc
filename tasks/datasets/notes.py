"""Notes about a user's data set: one-line warnings that are printed by `engram plan` and `engram run` before any work.

A note never stops a run; what must not be run is a DatasetError. A rule is a function of the data set and its images;
add it to RULES. Notes are remembered by the digest of the content, so that a store's data sets are examined once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, MutableMapping

from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.datasets.places import find

# Raise it if a rule is added or changed: remembered notes are those of one version.
VERSION = 1
EXAMINED = ("folder", "list", "parquet")  # the kinds of a user's images; published sets are known
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
    key = f"notes {VERSION} {dataset.digest}"
    if key not in known:
        known[key] = json.dumps(_find_notes(dataset))
    return tuple(f"{dataset.name}: {note}" for note in json.loads(known[key]))


def _find_notes(dataset: Dataset) -> list[str]:
    if catalog.is_large(find(dataset.name)[1]):
        return []
    images = catalog.load(dataset)
    return [note for rule in RULES for note in rule(dataset, images)]
