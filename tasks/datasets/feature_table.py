"""Tables of features, one record per row: `table:FILE.csv#label=COLUMN`, or a Parquet file.

The label column holds the classes (`tasks.datasets.classes`). A column `split` is optional and means the same as in a
list of images; without it, every fifth row of a class, with its copies, is in the test split. Every other column is a
feature, of numbers or of text (`tasks.datasets.feature_columns`). A record is stored like an image of one pixel whose
channels are the features, in float32: (rows, 1, 1, features).

With `#raw`, features are the numbers in the file, for a model that was trained on them elsewhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.datasets.classes import LabelError, column_values, declared_names, name_label, number_classes
from tasks.datasets.dataset import DatasetError, file_bytes
from tasks.datasets.feature_columns import (
    Column,
    ColumnEncoding,
    Features,
    TableEncoding,
    as_they_are,
    find_categories,
    fit_encoding,
    read_column,
    read_like,
)
from tasks.datasets.images import Images
from tasks.datasets.options import Options
from tasks.datasets.row_order import draw_class_order
from tasks.datasets.selection import Selection
from tasks.datasets.source import Source, digest_of
from tasks.datasets.splits import ALLOWED, choose_splits, split_called, spread, unread_note
from tasks.worker.delimited_text import DelimitedTextError, is_row_number, match_names, read_delimited
from tasks.worker.size_limits import TooLarge, read_parquet

RULE = "feature table 1"
SUFFIXES = (".csv", ".parquet")
SPLIT = "split"
MOST_CLASSES = 1_000
SHOWN = 8  # columns listed in a message

TRAIN = 0
TEST = 1
NOT_READ = 2  # neither split, or not selected
Parts = NDArray[np.int64]  # TRAIN, TEST or NOT_READ for each row


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """The records of a table: features, class numbers and parts, one per row, and the digest of the columns."""

    features: Any  # `Features`; Any, because images are typed as bytes
    labels: NDArray[np.int64]
    parts: Parts
    classes: tuple[str, ...]
    names: tuple[str, ...]  # of the features
    encoding: TableEncoding
    sha256: str
    notes: tuple[str, ...]

    def digest(self) -> str:
        return self.sha256

    def images(self) -> Images:
        """Return the records of both splits, in random order (`tasks.datasets.row_order`)."""
        train, test = (self._rows(part, name) for part, name in ((TRAIN, "train"), (TEST, "test")))
        return Images(
            self.features[train][:, None, None, :],
            self.labels[train],
            self.features[test][:, None, None, :],
            self.labels[test],
            len(self.classes),
            self.classes,
            notes=self.notes,
            features=self.names,
            encoding=self.encoding,
            train_file_rows=train,
        )

    def _rows(self, part: int, stream: str) -> NDArray[np.int64]:
        rows = np.flatnonzero(self.parts == part)
        return rows[draw_class_order(self.labels[rows], stream)]


def source(file: Path, options: Options) -> Source:
    """Return the table in a file. Raises DatasetError if the options name no label column."""
    if options.label is None:
        raise DatasetError(f"{file}: name the column of the classes, such as table:{file.name}#label=outcome")
    if file.suffix.lower() not in SUFFIXES:
        raise DatasetError(f"{file} is not a table; it must end in {' or '.join(SUFFIXES)}")
    return Source(f"{RULE} {options}", (file,), lambda: read_features(file, options))


def read_features(file: Path, options: Options) -> FeatureTable:
    """Read the records. Raises DatasetError, with the column and the row, if a cell is invalid."""
    assert options.label is not None
    selection = options.selection
    named = (options.label,) if selection is None else (options.label, selection.column)
    cells, declared = _read_cells(file, named, named)
    labels, classes = _read_labels(file, options.label, cells.column(options.label), declared)
    parts, notes = _read_splits(file, cells)
    is_drawn = parts is None
    if parts is None:
        parts = np.array([TRAIN if split == "train" else TEST for split in spread(labels.tolist())])
    columns = []
    for name in cells.column_names:
        if name not in (*named, SPLIT):
            columns.append(read_column(name, cells.column(name), str(file)))
    if not columns:
        raise DatasetError(f"{file} has no column other than {options.label!r}; every other column is a feature")
    label = ColumnEncoding(options.label, classes)
    encoding = TableEncoding(tuple(map(fit_encoding, columns)), label, options.is_raw)
    if options.is_raw:
        features, names = as_they_are(columns, str(file))
    else:
        features = encoding.encode([column.values for column in columns])
        names = encoding.feature_names()
    features += 0.0  # turns -0.0 into 0.0, which is the same number in other bytes
    if selection is not None:
        parts, is_drawn = _select(file, selection, cells.column(selection.column), labels, parts, is_drawn)
    if is_drawn:
        parts = _join_copies(features, parts)
    _check_classes(file, labels, parts, classes)
    return FeatureTable(
        features,
        labels,
        parts,
        classes,
        names,
        encoding,
        _digest(columns, labels, parts, classes, options.is_raw),
        (*notes, *_missing_notes(columns)),
    )


def read_rows_like(file: Path, encoding: TableEncoding) -> tuple[Features, NDArray[np.int64] | None]:
    """Return the features of other rows than the data set's, with its encoding, and their classes if they are given.

    Other columns are ignored. Raises DatasetError if a column is missing or a cell is invalid.
    """
    needed = tuple(column.name for column in encoding.columns)
    label = encoding.label
    cells, declared = _read_cells(file, (label.name,), needed)
    columns = [read_like(column, cells.column(column.name), str(file)) for column in encoding.columns]
    features = encoding.encode(columns)
    if label.name not in cells.column_names:
        return features, None
    places, texts = _read_label_texts(file, label.name, cells.column(label.name), declared)
    return features, find_categories(label, texts, places, f"{file}, column {label.name!r}")


def _digest(
    columns: Sequence[Column], labels: NDArray[np.int64], parts: Parts, classes: Sequence[str], is_raw: bool
) -> str:
    """Return the digest of the values, whatever the file's format and the names of the columns are."""
    shape = np.array([len(labels), len(columns), int(is_raw)], "<i8")
    encoded = [
        shape.tobytes(),
        "\0".join(classes).encode(),
        labels.astype("<i8").tobytes(),
        parts.astype("<i8").tobytes(),
    ]
    for column in columns:
        values = np.where(np.isnan(column.values), np.nan, column.values) + 0.0  # one NaN, and one zero
        encoded += ["\0".join(column.categories).encode(), values.astype("<f8").tobytes()]
    return digest_of(RULE, encoded)


def _missing_notes(columns: Sequence[Column]) -> tuple[str, ...]:
    missing = [column for column in columns if not column.categories and column.missing]
    if not missing:
        return ()
    listed = ", ".join(f"{column.name} ({column.missing:,})" for column in missing[:SHOWN])
    more = f" and {len(missing) - SHOWN} more columns" if len(missing) > SHOWN else ""
    return (f"missing numbers in {listed}{more} are replaced by the median of the column, and a feature marks them",)


def _read_cells(file: Path, named: Sequence[str], needed: Sequence[str]) -> tuple[pa.Table, tuple[str, ...]]:
    """Return all columns except row numbers, and the class names that a Parquet file declares.

    The file may spell `named` columns in any case, and must have the `needed` ones. The first named one is the label.
    """
    if file.suffix.lower() == ".parquet":
        table, header, declared = _from_parquet(file, named)
    else:
        table, header = _from_csv(file, named)
        declared = ()
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise DatasetError(f"{file} has the column {repeated!r} {header.count(repeated)} times; names must differ")
    for name in needed:
        if name not in header:
            raise DatasetError(f"{file} {_describe_absent(name, header)}")
    if not table.num_rows:
        raise DatasetError(f"{file} has no rows; write one row per record")
    return table, declared


def _describe_absent(name: str, header: Sequence[str]) -> str:
    listed = ", ".join(header[:SHOWN]) + (f" and {len(header) - SHOWN} more" if len(header) > SHOWN else "")
    close_matches = difflib.get_close_matches(name, header, 1)
    hint = f"; did you mean {close_matches[0]!r}?" if close_matches else ""
    if len(header) == 1:
        hint = "; columns are separated by commas, semicolons or tabs"
    return f"has no column {name!r}; it has {listed}{hint}"


def _from_csv(file: Path, named: Sequence[str]) -> tuple[pa.Table, list[str]]:
    try:
        text = read_delimited(file_bytes(file), (*named, SPLIT))
        header = [name for name in text.header if not is_row_number(name)]
        if len(set(header)) < len(header):
            return pa.table({}), header
        return text.table(), header
    except DelimitedTextError as error:
        raise DatasetError(error.describe(file)) from None


def _from_parquet(file: Path, named: Sequence[str]) -> tuple[pa.Table, list[str], tuple[str, ...]]:
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
        header = match_names(schema.names, (*named, SPLIT))
        if len(set(header)) < len(header):
            return pa.table({}), list(header), ()
        read = [name for name, spelt in zip(schema.names, header, strict=True) if not is_row_number(spelt)]
        table = read_parquet(file, columns=read)
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise DatasetError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    header_read = [name for name in header if not is_row_number(name)]
    label = schema.names[header.index(named[0])] if named[0] in header else ""
    return table.rename_columns(header_read), header_read, declared_names(schema.metadata, label)


def _read_labels(
    file: Path, name: str, cells: pa.ChunkedArray, declared: Sequence[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the class number of each row, and the class names."""
    subject = f"{file}, column {name!r}"
    places, texts = _read_label_texts(file, name, cells, declared)
    try:
        numbered = number_classes(texts, declared)
    except LabelError as error:
        raise DatasetError(f"{subject} {error}") from None
    if len(numbered.names) < 2:
        raise DatasetError(f"{subject} has only the class {numbered.names[0]!r}; at least two are needed")
    return numbered.labels[places], numbered.names


def _read_label_texts(
    file: Path, name: str, cells: pa.ChunkedArray, declared: Sequence[str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the position of each row's label among the distinct labels, and these as text."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    encoded = cells.combine_chunks().dictionary_encode("encode")
    places = np.asarray(encoded.indices)
    subject = f"{file}, column {name!r}"
    if len(encoded.dictionary) > MOST_CLASSES:
        raise DatasetError(
            f"{subject} has {len(encoded.dictionary):,} distinct values; a label has at most {MOST_CLASSES:,} classes. "
            "To audit a prediction of numbers, group them into classes"
        )
    try:
        texts = [name_label(value, declared) for value in column_values(pa.chunked_array([encoded.dictionary]))]
    except LabelError as error:
        raise DatasetError(f"{subject} {error}") from None
    empty = np.flatnonzero(np.isin(places, [place for place, text in enumerate(texts) if not text]))
    if len(empty):
        raise DatasetError(f"{subject}: row {empty[0] + 1} has no label ({len(empty):,} have none); remove the row")
    return places, texts


def _read_splits(file: Path, cells: pa.Table) -> tuple[Parts | None, tuple[str, ...]]:
    """Return the part of each row, and notes on rows that are not read. None without a column `split`."""
    if SPLIT not in cells.column_names:
        return None, ()
    encoded = pc.fill_null(cells.column(SPLIT).cast(pa.string()), "").combine_chunks().dictionary_encode()
    called = [split_called(word) for word in encoded.dictionary.to_pylist()]
    places = np.asarray(encoded.indices)
    for place, name in enumerate(called):
        if name is None:
            row = int(np.argmax(places == place))
            raise DatasetError(
                f"{file}, column {SPLIT!r}: row {row + 1} is {encoded.dictionary[place].as_py()!r:.80}; it must be "
                f"{ALLOWED}. Rename the column if it is a feature"
            )
    read_as = choose_splits(name for name in called if name is not None)
    numbers = {"train": TRAIN, "test": TEST, None: NOT_READ}
    parts = np.array([numbers[read_as.get(name or "")] for name in called], np.int64)[places]
    unread = int((parts == NOT_READ).sum())
    return parts, (unread_note(unread),) if unread else ()


def _select(
    file: Path,
    selection: Selection,
    marks: pa.ChunkedArray,
    labels: NDArray[np.int64],
    parts: Parts,
    is_drawn: bool,
) -> tuple[Parts, bool]:
    """Return the parts of the selected rows, and whether they are drawn.

    They are spread over both splits if the table has no splits, or if all are in one.
    """
    encoded = pc.fill_null(marks.cast(pa.string()), "").combine_chunks().dictionary_encode()
    places = np.asarray(encoded.indices)
    is_included = np.zeros(len(encoded.dictionary), bool)
    for place, mark in enumerate(encoded.dictionary.to_pylist()):
        try:
            is_included[place] = selection.includes(mark)
        except LabelError as error:
            raise DatasetError(f"{file}, row {int(np.argmax(places == place)) + 1}: {error}") from None
    selected = is_included[places] & (parts != NOT_READ)
    parts = np.where(selected, parts, NOT_READ)
    if is_drawn or len(np.unique(parts[selected])) == 1:
        spread_parts = [TRAIN if split == "train" else TEST for split in spread(labels[selected].tolist())]
        parts[selected] = spread_parts
        is_drawn = True
    return parts, is_drawn


def _join_copies(features: Features, parts: Parts) -> Parts:
    """Move rows with equal features to the part of the first one. Rows that are not read stay."""
    rows = np.flatnonzero(parts != NOT_READ)
    read = np.ascontiguousarray(features[rows])
    content = read.view(np.dtype((np.void, read.shape[1] * read.itemsize)))[:, 0]
    _, first, inverse = np.unique(content, return_index=True, return_inverse=True)
    joined = parts.copy()
    joined[rows] = parts[rows][first[inverse]]
    return joined


def _check_classes(file: Path, labels: NDArray[np.int64], parts: Parts, classes: Sequence[str]) -> None:
    """Raise DatasetError unless every class is in both splits."""
    for part, split in ((TRAIN, "train"), (TEST, "test")):
        counts = np.bincount(labels[parts == part], minlength=len(classes))
        if not counts.all():
            label = int(np.argmin(counts))
            total = int(((labels == label) & (parts != NOT_READ)).sum())
            raise DatasetError(
                f"{file}: class {classes[label]!r} has no row in the {split} split, and {total} in total; each class "
                "must be in both splits, and copies of one row are in the same split"
            )
