"""Boxed images in a table: a CSV or Parquet file with the columns path, label, left, top, right and bottom.

Each row is a box. An image has one row per box, all with the same label, or one row without numbers if no box is known.
Boxes are in pixels of the displayed image (rotated by its EXIF tag). Right and bottom are the first column and row
outside the box. Paths are relative to the file and, exactly as written, serve as the image ids. Labels are text or
integers, and classes are numbered as in lists (`tasks.datasets.classes`).

The optional column `part` gives each image's role for a third-party model: trained (a training image), held out, public
(other known images, with labels), or reference (training data of reference models).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from tasks.datasets.boxed.picture_files import BoxedFiles, Listed, Listing
from tasks.datasets.dataset import DatasetError
from tasks.datasets.picture_table import NAMED, Cells, Columns, read_table
from tasks.datasets.source import Source

RULE = "boxed table 2"
SIDES = ("left", "top", "right", "bottom")
COLUMNS = Columns("table of boxed images", (*NAMED, *SIDES), "part")
GivenPart = Literal["trained", "held out", "public", "reference"]
GIVEN_PARTS = get_args(GivenPart)
FURTHEST = 1_000_000  # pixels

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Row:
    """A table row. `where` is its position, for error messages."""

    where: str
    path: str
    label: str
    box: Box | None
    part: str


def source(file: Path, bits: int | None = None) -> Source:
    """Return the table's images. 16-bit images use `bits` bits.

    Raises DatasetError, naming the row, if a row is invalid.
    """
    image_listing = listing(file)
    rule = RULE if bits is None else f"{RULE} #bits{bits}"
    content = BoxedFiles(rule, file.parent, lambda: image_listing, bits=bits, decoded=True)
    return Source(rule, (file, *(file.parent / entry.path for entry in image_listing.entries)), lambda: content)


def listing(file: Path) -> Listing:
    table = read_table(file, COLUMNS)
    rows = [row_of(row) for row in table.rows]
    classes = table.number_labels(file)
    rows = [replace(row, label=classes.names[label]) for row, label in zip(rows, classes.labels, strict=True)]
    labels = {name: label for label, name in enumerate(classes.names)}
    pictures: dict[str, list[Row]] = {}
    for row in rows:
        pictures.setdefault(row.path, []).append(row)
    entries = [entry(file, path, pictures[path], labels) for path in sorted(pictures)]
    names_by_path: dict[Path, str] = {}
    for listed_image in entries:
        real_path = Path(os.path.realpath(file.parent / listed_image.path))  # resolve() rejects circular links
        if real_path in names_by_path:
            raise DatasetError(
                f"{file} names {real_path} as {names_by_path[real_path]} and as {listed_image.path}; use one spelling"
            )
        names_by_path[real_path] = listed_image.path
    return Listing(classes.names, tuple(entries))


def entry(file: Path, path: str, rows: list[Row], labels: dict[str, int]) -> Listed:
    """Combine all rows of one image."""
    first = rows[0]
    for row in rows[1:]:
        for name in ("label", "part"):
            first_value = getattr(first, name)
            row_value = getattr(row, name)
            if first_value != row_value:
                raise DatasetError(
                    f"{row.where}: {name} of {path} is {row_value!r}, but {first_value!r} at {first.where}; use one "
                    "value"
                )
        if row.box is None or first.box is None:
            raise DatasetError(
                f"{row.where} names {path} again, after {first.where}; if an image has several rows, each must have a "
                "box"
            )
    try:
        is_file = (file.parent / path).is_file()
    except (OSError, ValueError):  # not a valid file name
        is_file = False
    if not is_file:
        raise DatasetError(f"{first.where} names {path}, but there is no file {file.parent / path}")
    boxes = tuple(row.box for row in rows if row.box is not None)
    return Listed(path, path, labels[first.label], boxes=boxes, part=first.part)


def row_of(row: Cells) -> Row:
    part = row.text.get("part", "")
    if "part" in row.text and part not in GIVEN_PARTS:
        raise DatasetError(f"{row.where}: part is {part!r}; it must be one of {', '.join(GIVEN_PARTS)}")
    box = _box_of(row.where, [row.text[name] for name in SIDES])
    return Row(row.where, row.text["path"], row.text["label"], box, part)


def _box_of(where: str, words: list[str]) -> Box | None:
    """Return the box, or None if all four numbers are empty."""
    if not any(words):
        return None
    numbers = []
    for name, word in zip(SIDES, words, strict=True):
        try:
            number = float(word)
        except ValueError:
            raise DatasetError(
                f"{where}: {name} is {word!r}; it must be a whole number of pixels, or all four empty"
            ) from None
        if not number.is_integer() or abs(number) > FURTHEST:
            raise DatasetError(f"{where}: {name} is {word}; it must be a whole number of pixels")
        numbers.append(int(number))
    left, top, right, bottom = numbers
    if left >= right or top >= bottom:
        raise DatasetError(
            f"{where}: the box is {left}, {top}, {right}, {bottom}; left must be below right, top below bottom"
        )
    return left, top, right, bottom
