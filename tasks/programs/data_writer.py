"""Write records into {data} if an audit changes them: `train`, the records to train on, and `ask`, those to score.

    npz       train.npz and ask.npz: the arrays rows, labels and images, uint8 (records, height, width, channels); for a
              table, features, float32 (records, features), instead of images
    folder    train/CLASS/ROW.png and ask/CLASS/ROW.png
    parquet   train.parquet and ask.parquet: columns row, image (bytes and path, as on the Hugging Face hub) and label;
              for a table, one column per feature, and label
    jsonl     train.jsonl: one line {"row": 0, "text": "..."} per text

Records are in the order of {rows} and {ask}. Labels are class numbers, and the folders of classes have their names if
the alphabetical order of these is that of the numbers. Records whose labels Engram does not know have none: `labels`
and `label` are then absent, and the images are in ask/ROW.png. Equal records give equal bytes.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.datasets.images import Labels, PictureSet, Pixels, is_table
from tasks.datasets.picture_rows import Selected, Sliceable, slices
from tasks.external.handout import png
from tasks.programs.config import CommandTraining, DataFormat, Program
from tasks.programs.training import Rows, WriteData

Kind = Literal["images", "tables", "texts"]
# The formats of each kind of records; `auto` is the first.
FORMATS: Mapping[Kind, tuple[DataFormat, ...]] = MappingProxyType(
    {"images": ("npz", "folder", "parquet"), "tables": ("npz", "parquet"), "texts": ("jsonl",)}
)
TRAIN = "train"
ASK = "ask"
ROW = "row"
LABEL = "label"
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@dataclass(frozen=True, eq=False)
class Records:
    """Images (records, h, w, c), or records of a table (records, 1, 1, features), with their row numbers.

    `labels` is None if they are unknown. `names` are the class names and `features` those of a table's features.
    """

    rows: Rows
    pixels: Sliceable
    labels: Labels | None
    names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @classmethod
    def of_rows(cls, images: PictureSet, rows: Rows) -> Records:
        """Return training records of a data set."""
        labels = images.train.labels[rows]
        return cls(images.file_rows(rows), Selected(images.train, rows), labels, images.names, images.features)

    @property
    def is_table(self) -> bool:
        return is_table(self.pixels[:1])


def check_writable(program: Program, kind: Kind, features: Sequence[str] = ()) -> None:
    """Raise ValueError, in one line, if the program cannot receive changed records of this kind, and why."""
    if isinstance(program, CommandTraining) and not program.uses("data"):
        raise ValueError(
            "command has no {data}: this audit changes records, so the program must read them from that folder; add "
            "it, such as --data {data}"
        )
    data_format = choose_format(program, kind)
    if data_format == "parquet" and kind == "tables" and LABEL in features:
        raise ValueError(f"the table has a feature named {LABEL}, as the column of classes; set data_format=npz")


def choose_format(program: Program, kind: Kind) -> DataFormat:
    """Return the format of the records in {data}. Raises ValueError, in one line, if it does not fit them."""
    data_format = program.data_format
    allowed = FORMATS[kind]
    if data_format == "auto":
        return allowed[0]
    if data_format not in allowed:
        raise ValueError(f"data_format is {data_format}; it must be {' or '.join(allowed)} for {kind}")
    return data_format


def image_writer(program: Program, train: Records, ask: Records) -> WriteData:
    """Return the function that writes these records into {data}."""
    data_format = choose_format(program, "tables" if train.is_table else "images")

    def write(folder: Path) -> None:
        for name, records in ((TRAIN, train), (ASK, ask)):
            write_records(folder, name, records, data_format)

    return write


def write_records(folder: Path, name: str, records: Records, data_format: DataFormat) -> None:
    """Write records in one format. `name` is that of the file without its suffix, or of the sub-folder."""
    if data_format == "npz":
        _write_arrays(folder / f"{name}.npz", records)
    elif data_format == "folder":
        _write_pictures(folder / name, records)
    else:
        _write_parquet(folder / f"{name}.parquet", records)


def write_texts(folder: Path, name: str, rows: Sequence[int], texts: Sequence[str]) -> None:
    """Write texts with their row numbers as JSON Lines."""
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for row, text in zip(rows, texts, strict=True):
            file.write(json.dumps({ROW: int(row), "text": text}, ensure_ascii=False) + "\n")


def _write_arrays(path: Path, records: Records) -> None:
    """Write the file that `numpy.savez` would write, without having all pixels in memory."""
    name = "features" if records.is_table else "images"
    pixels = records.pixels
    shape = (len(pixels), math.prod(pixels.shape[1:])) if records.is_table else pixels.shape
    header = {"descr": np.lib.format.dtype_to_descr(pixels[:1].dtype), "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(path, "w") as archive:
        for array_name, values in (("rows", records.rows), ("labels", records.labels)):
            if values is not None:
                with archive.open(f"{array_name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for _, part in slices(pixels):
                file.write(np.ascontiguousarray(part).data)


def _write_pictures(folder: Path, records: Records) -> None:
    folder.mkdir()
    names = _folder_names(records)
    for part, pixels in slices(records.pixels):
        for index, picture in enumerate(pixels, part.start):
            target = folder
            if records.labels is not None:
                target = folder / names[int(records.labels[index])]
                target.mkdir(exist_ok=True)
            (target / f"{records.rows[index]}.png").write_bytes(png(picture))


def _folder_names(records: Records) -> Sequence[str]:
    """Return a folder name for each class. Sorted as text, they are in the order of the class numbers."""
    names = records.names
    are_paths = all(name == Path(name).name and not name.startswith(".") for name in names)
    if names and are_paths and list(names) == sorted(names):
        return names
    classes = 0 if records.labels is None else max(len(names), int(records.labels.max()) + 1)
    digits = len(str(max(0, classes - 1)))
    return [str(number).zfill(digits) for number in range(classes)]


def _write_parquet(path: Path, records: Records) -> None:
    """Write a file with one row group per block of records."""
    writer: pq.ParquetWriter | None = None
    for part, pixels in slices(records.pixels):
        table = _table(records, part, pixels)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is None:
        pq.write_table(_table(records, slice(0, 0), records.pixels[:0]), path)
    else:
        writer.close()


def _table(records: Records, part: slice, pixels: Pixels) -> pa.Table:
    columns: dict[str, Any] = {}
    rows = records.rows[part]
    if is_table(pixels):
        features = pixels.reshape(len(pixels), -1)
        for name, values in zip(records.features, features.T, strict=True):
            columns[name] = np.ascontiguousarray(values)
    else:
        cells = []
        for row, picture in zip(rows.tolist(), pixels, strict=True):
            cells.append({"bytes": png(picture), "path": f"{row}.png"})
        columns[ROW] = rows
        columns["image"] = pa.array(cells, IMAGE)
    if records.labels is not None:
        columns[LABEL] = records.labels[part]
    return pa.table(columns)
