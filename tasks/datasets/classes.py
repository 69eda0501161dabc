"""The one numbering of classes: of folders, lists, Parquet files, tables of boxes and arrays of labels.

Classes are the different labels that occur, in natural order: numbers by their value (1, 2, 10), text with its runs of
digits read as numbers (img2 before img10). If all labels are numbers, 1 and 1.0 are one class, since pandas writes
whole numbers as fractions wherever a column has a gap, and so are 0.5 and 0.50; a file's type of number changes no
name. A class is named as its label is written; numbers need not begin at 0, and gaps between them are no classes. Names
that a file declares for its numbers (`ClassLabel` of the Hugging Face hub) keep the order in which they are declared.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER = re.compile(r"(-?[0-9]+)(?:\.([0-9]*?)0*)?")
FLOAT32_BYTES = 4
DIGITS = re.compile(r"([0-9]+)")


class LabelError(ValueError):
    """Labels cannot be numbered; the message follows the name of the file that they are in."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The names of classes in their order, and the number of each image's class, (n,)."""

    names: tuple[str, ...]
    labels: NDArray[np.int64]


def number_classes(labels: Sequence[str], declared: Sequence[str] = ()) -> Classes:
    """The classes of these labels. `declared` are names that all must occur and whose order is kept.

    Raises LabelError if a declared class does not occur.
    """
    spelling = {label: label for label in labels}
    if all(map(NUMBER.fullmatch, spelling)):
        spelling = {label: shorten_number(label) for label in labels}
    repeated = next((name for name in declared if declared.count(name) > 1), None)
    if repeated is not None:
        raise LabelError(f"declares the class {repeated!r} twice; each must have a name of its own")
    occurring = set(spelling.values())
    for name in declared:
        if name not in occurring:
            raise LabelError(f"declares the class {name!r}, which no picture has; leave it out of the names")
    names = tuple(declared) or tuple(sorted(occurring, key=_natural_key))
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
    classes = number_classes([_label_text(value) for value in _plain_numbers(different)])
    return Classes(classes.names, classes.labels[places])


def _natural_key(label: str) -> tuple[Any, ...]:
    """What labels are sorted by: numbers by their value, before text with its runs of digits as numbers."""
    if NUMBER.fullmatch(label):
        return 0, Decimal(shorten_number(label)), label
    parts = [int(part) if number % 2 else part for number, part in enumerate(DIGITS.split(label))]
    return 1, parts, label


def shorten_number(label: str) -> str:
    """A number without zeros at the end of its fraction; other text unchanged."""
    number = NUMBER.fullmatch(label)
    if number is None:
        return label
    return f"{number[1]}.{number[2]}" if number[2] else number[1]


def _label_text(value: Any) -> str:
    """A label as text, empty where there is none. Raises LabelError for what is neither text nor a number."""
    if isinstance(value, str | bool | int):
        return str(value).strip()
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return shorten_number(format(Decimal(str(value)), "f"))
    if value is None or value != value:  # pandas' missing value is not a number
        return ""
    raise LabelError(f"is {value!r:.80}; it must be text or a number")


def _plain_numbers(values: NDArray[Any]) -> list[Any]:
    """The values of an array; a float32 or float16 as the number that it is written as, 0.1 and not 0.10000000149."""
    if values.dtype.kind != "f" or values.dtype.itemsize > FLOAT32_BYTES:
        plain: list[Any] = values.tolist()
        return plain
    return [float(str(value)) for value in values]


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """The cells of a column of labels, None for nothing; short floats as `_plain_numbers` gives them."""
    import pyarrow as pa

    if pa.types.is_float32(column.type) or pa.types.is_float16(column.type):
        return _plain_numbers(column.to_numpy())
    cells: list[Any] = column.to_pylist()
    return cells


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
        return _label_text(value)
    number = _label_text(value)
    if "." in number:
        raise LabelError(f"is {number}; the file's metadata has names for whole numbers alone")
    if number and not 0 <= int(number) < len(names):
        raise LabelError(f"is {number}; the names in the file's metadata are those of 0 to {len(names) - 1}")
    return names[int(number)] if number else ""
