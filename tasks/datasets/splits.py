"""Training and test splits of a user's images: what they may be called, and how they are drawn if nothing says them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

EVERY = 5  # one picture in so many of a class is in the test split, where none is given

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")
VALIDATION = "validation"
# What each split may be called, in any capitals.
CALLED: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "validation": VALIDATION,
    "valid": VALIDATION,
    "val": VALIDATION,
}
ALLOWED = "train or test (validation, or val, is the test split where there is no other)"


class Placed(Protocol):
    """A picture with the index of its class and its split."""

    @property
    def label(self) -> int: ...

    @property
    def split(self) -> Split: ...


def split_called(word: str) -> str | None:
    """The split of this name: train, test or validation; None if it is none of them."""
    return CALLED.get(word.strip().casefold())


def choose_splits(names: Iterable[str]) -> dict[str, Split]:
    """The split that each of these, train, test and validation, is read as.

    Validation images are the test split if there is no other, and are not read otherwise.
    """
    occurring = set(names)
    read_as: dict[str, Split] = {name: name for name in SPLITS if name in occurring}
    if VALIDATION in occurring and "test" not in occurring:
        read_as[VALIDATION] = "test"
    return read_as


def unread_note(count: int) -> str:
    """The note about validation images beside a test split."""
    return f"{count} images of its validation split are not read, as it has a test split"


def spread(labels: Sequence[int]) -> Iterator[Split]:
    """The split of each of these pictures: of every class the first, the sixth, the eleventh ... is for testing."""
    met: Counter[int] = Counter()
    for label in labels:
        yield "train" if met[label] % EVERY else "test"
        met[label] += 1


def missing_class(entries: Iterable[Placed], names: Sequence[str]) -> str | None:
    """The class that lacks pictures in a split, as the rest of an error message; None if every class is in both."""
    counts = Counter((entry.label, entry.split) for entry in entries)
    for label, name in enumerate(names):
        for split in SPLITS:
            if not counts[label, split]:
                total = counts[label, "train"] + counts[label, "test"]
                return (
                    f"class {name!r} has no picture in the {split} split, and {total} in all; each class must be in "
                    "both"
                )
    return None
