"""The one numbering of classes: of folders, lists, Parquet files, tables of boxes and arrays of labels.

Classes are the different labels that occur, in natural order: numbers by their value (1, 2, 10), text with its runs of
digits read as numbers (img2 before img10). Where all labels are whole numbers, 1 and 1.0 are one class, since pandas
writes whole numbers as fractions wherever a column has a gap. A class is named as its label is written; numbers need
not begin at 0, and gaps between them are no classes. Names that a file declares for its numbers (`ClassLabel` of the
Hugging Face hub) keep the order in which they are declared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WHOLE = re.compile(r"(-?[0-9]+)(?:\.0*)?")
DIGITS = re.compile(r"([0-9]+)")


class LabelError(ValueError):
    """Labels cannot be numbered; the message follows the name of the file that they are in."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The names of classes in their order, and the number of each picture's class, (n,)."""

    names: tuple[str, ...]
    labels: NDArray[np.int64]


def number_classes(labels: Sequence[str], declared: Sequence[str] = ()) -> Classes:
    """The classes of these labels. `declared` are names that all must occur and whose order is kept.

    Raises LabelError if a declared class does not occur.
    """
    spelling = {label: label for label in labels}
    if all(map(WHOLE.fullmatch, spelling)):
        spelling = {label: shorten_number(label) for label in labels}
    occurring = set(spelling.values())
    for name in declared:
        if name not in occurring:
            raise LabelError(f"declares the class {name!r}, which no picture has; leave it out of the names")
    names = tuple(declared) or tuple(sorted(occurring, key=natural_key))
    numbers = {name: number for number, name in enumerate(names)}
    return Classes(names, np.array([numbers[spelling[label]] for label in labels], np.int64))


def number_published(labels: Sequence[str], names: Sequence[str], count: int) -> Classes:
    """The classes of a published set, which are those of all its images: the numbers below `count`, or these names.

    Raises LabelError for another label.
    """
    names = tuple(names) or tuple(map(str, range(count)))
    numbers = {name: number for number, name in enumerate(names)}
    unknown = next((label for label in labels if label not in numbers), None)
    if unknown is not None:
        raise LabelError(f"has the label {unknown!r}; its {len(names)} classes are {names[0]} to {names[-1]}")
    return Classes(names, np.array([numbers[label] for label in labels], np.int64))


def number_array(labels: NDArray[Any]) -> Classes:
    """The classes of an array of whole numbers, (n,). Raises LabelError for other numbers."""
    different, places = np.unique(labels, return_inverse=True)
    classes = number_classes([label_text(value) for value in different.tolist()])
    return Classes(classes.names, classes.labels[places])


def natural_key(label: str) -> tuple[Any, ...]:
    """What labels are sorted by: whole numbers by their value, before text with its runs of digits as numbers."""
    if WHOLE.fullmatch(label):
        return 0, int(shorten_number(label)), label
    parts = [int(part) if number % 2 else part for number, part in enumerate(DIGITS.split(label))]
    return 1, parts, label


def shorten_number(label: str) -> str:
    """A whole number without a fraction of zeros; other text unchanged."""
    number = WHOLE.fullmatch(label)
    return label if number is None else number[1]


def label_text(value: Any) -> str:
    """A label as text, empty where there is none. Raises LabelError for what is neither text nor a whole number."""
    if isinstance(value, str | bool | int):
        return str(value).strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None or value != value:  # pandas' missing value is not a number
        return ""
    raise LabelError(f"is {value!r}; it must be text or a whole number")


def declared_names(metadata: Mapping[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """The names of the classes that a column's whole numbers stand for, by the metadata of the Hugging Face hub."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = features[column]["names"]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(map(str, names)) if isinstance(names, list) else ()


def name_label(value: Any, names: Sequence[str]) -> str:
    """A label by its declared name, empty where there is none. Raises LabelError for a number without a name."""
    if not names or isinstance(value, str | bool):
        return label_text(value)
    number = label_text(value)
    if number and not 0 <= int(number) < len(names):
        raise LabelError(f"is {number}; the names in the file's metadata are those of 0 to {len(names) - 1}")
    return names[int(number)] if number else ""
