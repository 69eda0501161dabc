"""Columns of a table of features: numbers and categories, as one row of numbers per record.

| column | features |
|---|---|
| numbers | (value - mean) / standard deviation, over all rows of the table; 0 for a constant column |
| numbers with missing values | the same, with the median in place of missing values, and a feature that marks them |
| text | one feature per distinct text, which is 1 or 0; an empty cell is a category of its own |

The mean, the deviation and the median come from the whole table, whatever its splits and members are. They are
therefore the same for all models of an audit, and reveal nothing about the rows that a model was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.datasets.classes import number_classes, shorten_number
from tasks.datasets.dataset import DatasetError

Numbers = NDArray[np.float64]
Features = NDArray[np.float32]  # (rows, features)

MOST_CATEGORIES = 100  # per column
# If at least this share of a column's distinct cells are numbers, its few texts are mistakes, not categories.
MOST_NUMBERS = 0.9
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
GROUPED = r"^[+-]?[0-9]{1,3}([,' ][0-9]{3})+(\.[0-9]+)?$"  # thousands
MISSING = ("", "na", "n/a", "nan", "none", "null", "?")  # in a column of numbers, in upper or lower case
ALLOWED = "numbers (empty if missing) or at most {} distinct texts"
MISSING_CATEGORY = "missing"
SHOWN = 8  # categories listed in a message


@dataclass(frozen=True, eq=False)
class Column:
    """A column as numbers (rows,), with NaN for missing ones, or as the positions (rows,) of its categories."""

    name: str
    values: Numbers
    categories: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        return int(np.isnan(self.values).sum())


def read_column(name: str, cells: pa.ChunkedArray, where: str) -> Column:
    """Return a column of numbers or text. Raises DatasetError, with the column's name and the first bad row."""
    subject = f"{where}, column {name!r}"
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if cells.null_count == len(cells):
        raise DatasetError(f"{subject} has no values; remove it")
    kind = cells.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _read_text(name, pc.fill_null(pc.utf8_trim_whitespace(cells), ""), subject)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return Column(name, _numbers(cells.cast(pa.float64(), safe=False)))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if kind in (pa.float16(), pa.float32()):  # 0.1, as text files have it, not 0.10000000149
            cells = cells.cast(pa.float32()).cast(pa.string())
        return Column(name, _finite(_numbers(cells.cast(pa.float64(), safe=False)), subject))
    raise DatasetError(f"{subject} is {kind}; it must have {ALLOWED.format(MOST_CATEGORIES)}")


def _read_text(name: str, cells: pa.ChunkedArray, subject: str) -> Column:
    is_missing = pc.is_in(pc.utf8_lower(cells), pa.array(MISSING))
    is_number = pc.match_substring_regex(cells, NUMBER)
    if pc.all(is_missing).as_py():
        raise DatasetError(f"{subject} has no values; remove it")
    if pc.all(pc.or_(is_number, is_missing)).as_py():
        known = pc.if_else(is_number, pc.utf8_ltrim(cells, "+"), None)
        return Column(name, _finite(_numbers(known.cast(pa.float64())), subject))
    is_grouped = pc.match_substring_regex(cells, GROUPED)
    if pc.all(pc.or_(is_grouped, pc.or_(is_number, is_missing))).as_py():
        row = int(np.argmax(np.asarray(is_grouped)))
        raise DatasetError(f"{subject}: row {row + 1} is {cells[row].as_py()!r:.60}; write numbers without separators")
    return _read_categories(name, cells, pc.or_(is_number, is_missing), subject)


def _read_categories(name: str, cells: pa.ChunkedArray, is_number: pa.ChunkedArray, subject: str) -> Column:
    encoded = cells.combine_chunks().dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    places = np.asarray(encoded.indices)
    first_text = int(np.argmin(np.asarray(is_number)))
    example = f"row {first_text + 1} has {cells[first_text].as_py()!r:.60}"
    numbers = len(set(places[np.asarray(is_number)].tolist()))
    if numbers >= MOST_NUMBERS * len(texts):
        raise DatasetError(f"{subject} has numbers, but {example}; it must have {ALLOWED.format(MOST_CATEGORIES)}")
    if len(texts) > MOST_CATEGORIES:
        raise DatasetError(
            f"{subject} has {len(texts):,} distinct texts ({example}); it must have "
            f"{ALLOWED.format(MOST_CATEGORIES)}. Remove names, ids and free text, and group rare categories"
        )
    numbered = number_classes(texts)
    return Column(name, numbered.labels[places].astype(np.float64), numbered.names)


def _numbers(cells: pa.ChunkedArray) -> Numbers:
    values: Numbers = np.array(pc.fill_null(cells, np.nan), np.float64)
    return values


def _finite(values: Numbers, subject: str) -> Numbers:
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise DatasetError(f"{subject}: row {infinite[0] + 1} is infinite or too large; it must be a finite number")
    if np.isnan(values).all():
        raise DatasetError(f"{subject} has no values; remove it")
    return values


@dataclass(frozen=True)
class ColumnEncoding:
    """How the cells of a column become features, fitted to all rows of a table.

    Text has `categories`. Numbers are divided by `scale` before the other three; a deviation of 0 marks a constant.
    """

    name: str
    categories: tuple[str, ...] = ()
    has_missing: bool = False
    scale: float = 1.0
    mean: float = 0.0
    deviation: float = 0.0
    median: float = 0.0

    def feature_names(self) -> list[str]:
        if self.categories:
            return [f"{self.name} is {category or MISSING_CATEGORY}" for category in self.categories]
        return [self.name, f"{self.name} is {MISSING_CATEGORY}"][: 1 + self.has_missing]

    def encode(self, values: Numbers) -> Features:
        """Return the features (rows, features) of a column's values."""
        if self.categories:
            is_category: NDArray[np.bool_] = values[:, None] == np.arange(len(self.categories))
            return is_category.astype(np.float32)
        features = [self._standardise(values)]
        if self.has_missing:
            features.append(np.isnan(values).astype(np.float32))
        return np.stack(features, axis=1)

    def _standardise(self, values: Numbers) -> NDArray[np.float32]:
        if not self.deviation:
            return np.zeros(len(values), np.float32)
        filled = np.where(np.isnan(values), self.median, values / self.scale)
        with np.errstate(over="ignore"):  # of samples that are far from the table
            return ((filled - self.mean) / self.deviation).astype(np.float32)


def fit_encoding(column: Column) -> ColumnEncoding:
    """Return the encoding of a column: its categories, or the mean, deviation and median of its numbers."""
    if column.categories:
        return ColumnEncoding(column.name, column.categories)
    present = column.values[~np.isnan(column.values)]
    scale = float(np.abs(present).max()) or 1.0  # the squares of large numbers would be infinite
    present = present / scale
    is_constant = np.ptp(present) == 0
    return ColumnEncoding(
        column.name,
        has_missing=bool(column.missing),
        scale=scale,
        mean=float(present.mean()),
        deviation=0.0 if is_constant else float(present.std()),
        median=float(np.median(present)),
    )


@dataclass(frozen=True)
class TableEncoding:
    """The encodings of a table's feature columns, and of its label column, whose categories are the classes."""

    columns: tuple[ColumnEncoding, ...]
    label: ColumnEncoding
    is_raw: bool = False  # the data set's features are the numbers in the file

    def feature_names(self) -> tuple[str, ...]:
        names: list[str] = []
        for column in self.columns:
            names += column.feature_names()
        return tuple(names)

    def encode(self, columns: Sequence[Numbers]) -> Features:
        """Return the features (rows, features) of the values of each column."""
        pairs = zip(self.columns, columns, strict=True)
        return np.hstack([encoding.encode(values) for encoding, values in pairs])


def read_like(encoding: ColumnEncoding, cells: pa.ChunkedArray, where: str) -> Numbers:
    """Return the values of a column that must have the kind and the categories of an encoded column.

    Raises DatasetError, with the column's name and the first bad row.
    """
    subject = f"{where}, column {encoding.name!r}"
    if encoding.categories:
        try:
            texts = pc.fill_null(pc.utf8_trim_whitespace(cells.cast(pa.string())), "")
        except pa.ArrowException:
            raise DatasetError(f"{subject} is {cells.type}; write text, as in the data set") from None
        encoded = texts.combine_chunks().dictionary_encode()
        places = np.asarray(encoded.indices)
        return find_categories(encoding, encoded.dictionary.to_pylist(), places, subject).astype(np.float64)
    values = np.full(len(cells), np.nan)
    if cells.null_count < len(cells):
        column = read_column(encoding.name, cells, where)
        if column.categories:
            raise DatasetError(f"{subject} is text, and in the data set it has numbers; write numbers")
        values = column.values
    is_missing = np.isnan(values)
    if is_missing.any() and not encoding.has_missing:
        raise DatasetError(
            f"{subject}: row {int(np.argmax(is_missing)) + 1} has no value ({is_missing.sum():,} have none), and in "
            "the data set every row has one; write a number"
        )
    is_far = ~np.isfinite(encoding.encode(values)).all(axis=1)
    if is_far.any():
        row = int(np.argmax(is_far))
        raise DatasetError(
            f"{subject}: row {row + 1} is {values[row]:g}, too far from the data set's numbers for float32; write a "
            "number in their range"
        )
    return values


def find_categories(
    encoding: ColumnEncoding, texts: Sequence[str], places: NDArray[np.integer], subject: str
) -> NDArray[np.int64]:
    """Return the category of each row (rows,), whose text is at `places` among the distinct `texts`.

    A number may be written with further zeros. Raises DatasetError, with the first row, if a text is not a category.
    """
    known = {category: number for number, category in enumerate(encoding.categories)}
    numbers = np.empty(len(texts), np.int64)
    for place, text in enumerate(texts):
        number = known.get(text, known.get(shorten_number(text)))
        if number is None:
            listed = ", ".join(category or MISSING_CATEGORY for category in encoding.categories[:SHOWN])
            more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
            raise DatasetError(
                f"{subject}: row {int(np.argmax(places == place)) + 1} is {text or MISSING_CATEGORY!r:.60}, which no "
                f"row of the data set is; write one of its values ({listed}{more})"
            )
        numbers[place] = number
    categories: NDArray[np.int64] = numbers[places]
    return categories


def as_they_are(columns: Sequence[Column], where: str) -> tuple[Features, tuple[str, ...]]:
    """Return the numbers of the columns unchanged, and their names. Raises DatasetError for text and missing values."""
    for column in columns:
        if column.categories:
            raise DatasetError(
                f"{where}, column {column.name!r} is text, and with #raw a model takes the numbers as they are; write "
                "it as the numbers that the model was trained on"
            )
        if column.missing:
            row = int(np.flatnonzero(np.isnan(column.values))[0])
            raise DatasetError(
                f"{where}, column {column.name!r}: row {row + 1} has no value ({column.missing:,} have none), and with "
                "#raw a model takes the numbers as they are; fill it as in the model's training"
            )
    with np.errstate(over="ignore"):
        features = np.stack([column.values for column in columns], axis=1).astype(np.float32)
    if not np.isfinite(features).all():
        column = columns[int(np.argmin(np.isfinite(features).all(axis=0)))]
        raise DatasetError(f"{where}, column {column.name!r} has numbers that are too large for float32")
    return features, tuple(column.name for column in columns)
