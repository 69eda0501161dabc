"""Boxed pictures named in a table: a CSV or Parquet file with the columns path, label, left, top, right and bottom.

A row is a box; a picture has as many rows as boxes, all with the same label, or one without numbers where no box is
known. Boxes are in pixels of the picture as a person sees it (turned by its EXIF tag); right and bottom are the first
column and row outside. Paths are relative to the file, and are the pictures' ids as they are written. Labels are text
or whole numbers, and classes are numbered as in lists (`tasks.datasets.classes`).

A column `part`, if there is one, says what each picture was to a model of somebody else: trained (it was trained on),
held out, public (others that are known, with labels), or reference (for reference models to train on).
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
COLUMNS = Columns("table of boxed pictures", (*NAMED, *SIDES), "part")
GivenPart = Literal["trained", "held out", "public", "reference"]
GIVEN_PARTS = get_args(GivenPart)
FURTHEST = 1_000_000  # pixels

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Row:
    """A row of the table; `at` says where it stands."""

    at: str
    path: str
    label: str
    box: Box | None
    part: str


def source(file: Path, bits: int | None = None) -> Source:
    """The pictures of the table, of which 16-bit ones use so many `bits`.

    Raises DatasetError, naming the row that is not as it should be.
    """
    found = listing(file)
    rule = RULE if bits is None else f"{RULE} #bits{bits}"
    content = BoxedFiles(rule, file.parent, lambda: found, bits=bits, decoded=True)
    return Source(rule, (file, *(file.parent / entry.path for entry in found.entries)), lambda: content)


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
    places: dict[Path, str] = {}
    for one in entries:
        place = Path(os.path.realpath(file.parent / one.path))  # resolve() refuses links in a circle
        if place in places:
            raise DatasetError(f"{file} names {place} as {places[place]} and as {one.path}; write it in one way")
        places[place] = one.path
    return Listing(classes.names, tuple(entries))


def entry(file: Path, path: str, rows: list[Row], labels: dict[str, int]) -> Listed:
    """One picture, of all its rows."""
    first = rows[0]
    for row in rows[1:]:
        for name in ("label", "part"):
            one, other = getattr(first, name), getattr(row, name)
            if one != other:
                raise DatasetError(f"{row.at}: {name} of {path} is {other!r}, and {one!r} at {first.at}; give one")
        if row.box is None or first.box is None:
            raise DatasetError(f"{row.at} names {path} again, after {first.at}; several rows must have a box each")
    try:
        there = (file.parent / path).is_file()
    except (OSError, ValueError):  # no name that a file can have
        there = False
    if not there:
        raise DatasetError(f"{first.at} names {path}, but there is no file {file.parent / path}")
    boxes = tuple(row.box for row in rows if row.box is not None)
    return Listed(path, path, labels[first.label], boxes=boxes, part=first.part)


def row_of(row: Cells) -> Row:
    part = row.text.get("part", "")
    if "part" in row.text and part not in GIVEN_PARTS:
        raise DatasetError(f"{row.at}: part is {part!r}; it must be one of {', '.join(GIVEN_PARTS)}")
    box = _box_of(row.at, [row.text[name] for name in SIDES])
    return Row(row.at, row.text["path"], row.text["label"], box, part)


def _box_of(at: str, words: list[str]) -> Box | None:
    """The box; None where all four are empty."""
    if not any(words):
        return None
    numbers = []
    for name, word in zip(SIDES, words, strict=True):
        try:
            number = float(word)
        except ValueError:
            raise DatasetError(
                f"{at}: {name} is {word!r}; it must be a whole number of pixels, or all four empty"
            ) from None
        if not number.is_integer() or abs(number) > FURTHEST:
            raise DatasetError(f"{at}: {name} is {word}; it must be a whole number of pixels")
        numbers.append(int(number))
    left, top, right, bottom = numbers
    if left >= right or top >= bottom:
        raise DatasetError(
            f"{at}: the box is {left}, {top}, {right}, {bottom}; left must be below right, top below bottom"
        )
    return left, top, right, bottom
