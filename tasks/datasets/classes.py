"""Number the classes of folders, lists, Parquet files, box tables and label arrays.

Classes are the distinct labels in natural order: numbers by value (1, 2, 10), and text with runs of digits compared as
numbers (img2 before img10). If all labels are numbers, 1 and 1.0 are the same class, since pandas writes integers as
floats if a column has missing values, and so are 0.5 and 0.50. The number type in a file does not change class names.
The name of a class is its label as written. Numbers need not begin at 0, and skipped numbers are not classes. If a file
declares names for its numbers (`ClassLabel` of the Hugging Face hub), they keep the declared order.
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
    """Labels cannot be numbered. The message continues a sentence that begins with the file's name."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Class names in order, and the class number of each image, (n,)."""

    names: tuple[str, ...]
    labels: NDArray[np.int64]


def number_classes(labels: Sequence[str], declared: Sequence[str] = ()) -> Classes:
    """Return the classes of these labels. `declared` are names in a fixed order.

    Raises LabelError if a declared class does not occur.
    """
    spelling = {label: label for label in labels}
    if all(map(NUMBER.fullmatch, spelling)):
        spelling = {label: shorten_number(label) for label in labels}
    repeated = next((name for name in declared if declared.count(name) > 1), None)
    if repeated is not None:
        raise LabelError(f"declares the class {repeated!r} twice; names must differ")
    occurring = set(spelling.values())
    for name in declared:
        if name not in occurring:
            raise LabelError(f"declares the class {name!r}, which no image has; remove it from the names")
    names = tuple(declared) or tuple(sorted(occurring, key=_natural_key))
    numbers = {name: number for number, name in enumerate(names)}
    return Classes(names, np.array([numbers[spelling[label]] for label in labels], np.int64))


def number_published(labels: Sequence[str], names: Sequence[str], count: int) -> Classes:
    """Return the classes of a published data set: all numbers below `count`, or all these names.

    Classes are included even if they do not occur. Raises LabelError for any other label.
    """
    names = tuple(names) or tuple(map(str, range(count)))
    numbers = {name: number for number, name in enumerate(names)}
    unknown = next((label for label in labels if label not in numbers), None)
    if unknown is not None:
        raise LabelError(f"has the label {unknown!r}; its {len(names)} classes are {names[0]} to {names[-1]}")
    return Classes(names, np.array([numbers[label] for label in labels], np.int64))


def number_array(labels: NDArray[Any]) -> Classes:
    """Return the classes of an integer array (n,). Raises LabelError for other numbers."""
    different, places = np.unique(labels, return_inverse=True)
    classes = number_classes([_label_text(value) for value in _plain_numbers(different)])
    return Classes(classes.names, classes.labels[places])


def _natural_key(label: str) -> tuple[Any, ...]:
    """Return the sort key of a label. Numbers sort by value, before text whose digit runs compare as numbers."""
    if NUMBER.fullmatch(label):
        return 0, Decimal(shorten_number(label)), label
    parts = []
    for number, part in enumerate(DIGITS.split(label)):
        parts.append(int(part) if number % 2 else part)
    return 1, parts, label


def shorten_number(label: str) -> str:
    """Remove trailing zeros from the decimals of a number. Other text is returned unchanged."""
    number = NUMBER.fullmatch(label)
    if number is None:
        return label
    return f"{number[1]}.{number[2]}" if number[2] else number[1]


def _label_text(value: Any) -> str:
    """Return a label as text, empty if it is missing.

    Raises LabelError for values that are neither text nor numbers.
    """
    if isinstance(value, str | bool | int):
        return str(value).strip()
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return shorten_number(format(Decimal(str(value)), "f"))
    if value is None or value != value:  # pandas' missing value does not equal itself
        return ""
    raise LabelError(f"is {value!r:.80}; it must be text or a number")


def _plain_numbers(values: NDArray[Any]) -> list[Any]:
    """Return the values of an array as Python numbers.

    float32 and float16 are converted via their printed form: 0.1, not 0.10000000149.
    """
    if values.dtype.kind != "f" or values.dtype.itemsize > FLOAT32_BYTES:
        plain: list[Any] = values.tolist()
        return plain
    return [float(str(value)) for value in values]


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the cells of a label column, with None for missing ones.

    Short floats are converted as in `_plain_numbers`.
    """
    import pyarrow as pa

    if pa.types.is_float32(column.type) or pa.types.is_float16(column.type):
        return _plain_numbers(column.to_numpy())
    cells: list[Any] = column.to_pylist()
    return cells


def declared_names(metadata: Mapping[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """Return the class names that Hugging Face metadata declares for the integers of a column."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = features[column]["names"]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(map(str, names)) if isinstance(names, list) else ()


def name_label(value: Any, names: Sequence[str]) -> str:
    """Return the declared name of a label, empty if it is missing. Raises LabelError for a number without a name."""
    if not names or isinstance(value, str | bool):
        return _label_text(value)
    number = _label_text(value)
    if "." in number:
        raise LabelError(f"is {number}; the file's metadata has names for integers only")
    if number and not 0 <= int(number) < len(names):
        raise LabelError(f"is {number}; the file's metadata has names for 0 to {len(names) - 1}")
    return names[int(number)] if number else ""
