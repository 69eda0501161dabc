"""A list of pictures: a CSV or Parquet file with the columns path, label and, if wished, split (train or test).

Paths are relative to the file. Labels are text or whole numbers; the classes are the different ones, sorted, as numbers
where all are numbers. Without a column split, of every class's rows the first, the sixth, the eleventh ... are the test
split.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.datasets import labelled, picture_table
from tasks.datasets.content import Source
from tasks.datasets.dataset import DatasetError
from tasks.datasets.labelled import Labelled, Split, check_classes, spread
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.picture_table import Cells

COLUMNS = picture_table.Columns("list of pictures", picture_table.NAMED, "split")


def source(file: Path, options: Options = AS_THEY_ARE) -> Source:
    """The pictures it lists; a DatasetError naming the row that is not as it should be."""
    rows = picture_table.read(file, COLUMNS)
    names = picture_table.classes(row.text["label"] for row in rows)
    labels = {name: index for index, name in enumerate(names)}
    met: dict[Path, str] = {}
    for row in rows:
        named = row.text["path"]
        path = file.parent / named
        if path in met:
            raise DatasetError(f"{row.at} names {named} again, after {met[path]}; a picture must be listed once")
        if not path.is_file():
            raise DatasetError(f"{row.at} names {named}, but there is no file {path}")
        met[path] = row.at
    numbers = [labels[row.text["label"]] for row in rows]
    splits = list(read_splits(rows) if "split" in rows[0].text else spread(numbers))
    entries = [Labelled(path, number, split) for path, number, split in zip(met, numbers, splits, strict=True)]
    check_classes(entries, names, file)
    return labelled.source(entries, tuple(names), options, also=(file,))


def read_splits(rows: list[Cells]) -> Iterator[Split]:
    for row in rows:
        split = row.text["split"]
        if split == "train":
            yield "train"
        elif split == "test":
            yield "test"
        else:
            raise DatasetError(f"{row.at}: split is {split!r}; it must be train or test")
