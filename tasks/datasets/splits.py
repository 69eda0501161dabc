"""Training and test splits of a user's images: their names, and random splits if none are defined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

EVERY = 5  # one in this many images of a class is in a drawn test split

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")
VALIDATION = "validation"
# Names of splits, case-insensitive.
CALLED: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "validation": VALIDATION,
    "valid": VALIDATION,
    "val": VALIDATION,
}
ALLOWED = "train or test (validation, or val, is the test split if there is no other)"


class Placed(Protocol):
    """An image with its class index and its split."""

    @property
    def label(self) -> int: ...

    @property
    def split(self) -> Split: ...


def split_called(word: str) -> str | None:
    """Return the split with this name (train, test or validation), or None for any other name."""
    return CALLED.get(word.strip().casefold())


def choose_splits(names: Iterable[str]) -> dict[str, Split]:
    """Map each of these names (train, test and validation) to a split.

    Validation images form the test split if there is no other. Otherwise they are not read.
    """
    occurring = set(names)
    read_as: dict[str, Split] = {name: name for name in SPLITS if name in occurring}
    if VALIDATION in occurring and "test" not in occurring:
        read_as[VALIDATION] = "test"
    return read_as


def unread_note(count: int) -> str:
    """Return a note about validation images that exist in addition to a test split."""
    return f"{count} images of its validation split are not read, since it has a test split"


def spread(labels: Sequence[int]) -> Iterator[Split]:
    """Yield the split of each image. The first, sixth, eleventh, ... of every class are for testing."""
    class_counts: Counter[int] = Counter()
    for label in labels:
        yield "train" if class_counts[label] % EVERY else "test"
        class_counts[label] += 1


def missing_class(entries: Iterable[Placed], names: Sequence[str]) -> str | None:
    """Return the rest of an error message about a class that is missing from a split.

    Returns None if every class is in both splits.
    """
    counts = Counter((entry.label, entry.split) for entry in entries)
    for label, name in enumerate(names):
        for split in SPLITS:
            if not counts[label, split]:
                total = counts[label, "train"] + counts[label, "test"]
                return (
                    f"class {name!r} has no image in the {split} split, and {total} in total; each class must be in "
                    "both splits"
                )
    return None
