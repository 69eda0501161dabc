"""Export images or questions in random order, some of them twice, and keep a record of the order for the auditor.

The model owner receives all items in one set under opaque names that do not reveal what they are. The name of the set
ends in a digest of its content, so a table made for other settings does not match.

Next to the folder PROBES, which goes to the owner, are two files that the auditor keeps:

PROBES-key.csv      image, set: the identity of each image; for questions: id, set, question. The owner's README.txt
contains the SHA-256 of this file. Once the owner has returned the table, the auditor can share the key, and `sha256sum`
verifies it.
PROBES-split.csv    the source of each image, if the auditor needs it before the model is evaluated
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.schemas import table_of_rows
from tasks.datasets.dataset import DatasetError
from tasks.external.handout import image_of, write_whole
from tasks.numerics import seeds

TOGETHER = "pictures"  # the exported set
REPEATED = 0.1  # fraction of items that occur twice
DIGITS = 8  # digits of a digest
SAME = 0.01  # tolerance of log-odds: logits from two devices differ in the last digits, and by more in half precision

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HandedOut:
    """The name of an exported set, and the image at each position. An image may occur twice.

    `id_of(name, place)` returns the id of a position. By default, it is an image id.
    """

    name: str
    order: NDArray[np.int64]
    id_of: Callable[[str, int], str] = image_of

    @property
    def ids(self) -> list[str]:
        """The id of each image's first position."""
        return [self.id_of(self.name, position) for position in self._first]

    @property
    def repeats(self) -> dict[int, str]:
        """The id of each repeated image's second position."""
        first = set(self._first)
        result = {}
        for position, image in enumerate(self.order):
            if position not in first:
                result[int(image)] = self.id_of(self.name, position)
        return result

    @property
    def _first(self) -> list[int]:
        """The first position of each image."""
        return [int(position) for position in np.unique(self.order, return_index=True)[1]]


def blind_images(
    content: Any, count: int, seed: int, prefix: str = TOGETHER, id_of: Callable[[str, int], str] = image_of
) -> HandedOut:
    """Order `count` images by a seed, a tenth of them twice. `content`, which must be JSON, identifies the images.

    The name of the set begins with `prefix`.
    """
    name = f"{prefix}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]}"
    chance = seeds.generator(seed, "handed out")
    twice = chance.permutation(count)[: max(1, round(REPEATED * count))]
    return HandedOut(name, chance.permutation(np.concatenate([np.arange(count), twice])), id_of)


def withheld(secret: str) -> str:
    """Return the text that replaces a secret in reports."""
    return f"secret of {len(secret)} characters"


def different(first: tuple[Floats, Floats], second: tuple[Floats, Floats], printed: float) -> NDArray[np.bool_]:
    """Return which pairs of answers differ, given as (probabilities, log-odds) of equal shape.

    Two answers to the same image differ if their probabilities differ by more than the last printed decimal place and
    their log-odds by more than SAME.
    """
    exceeds_rounding = np.abs(first[0] - second[0]) > printed * (1 + 1e-6)
    result: NDArray[np.bool_] = exceeds_rounding & (np.abs(first[1] - second[1]) > SAME)
    return result


SPLIT_SCHEMA = pa.schema(
    [
        ("set", pa.string()),  # query or control
        ("data", pa.string()),  # name of the data set
        ("row", pa.int64()),  # of the training split
        ("file", pa.string()),  # image file; null if images have none
        ("image", pa.string()),  # exported id
        ("again", pa.string()),  # exported id of the repeat; null if there is none
    ]
)


KEY = pa.schema([("image", pa.string()), ("set", pa.string())])


@dataclass(frozen=True, eq=False)
class Split:
    """The identity of each image (KEY), its source (SPLIT_SCHEMA), and a warning.

    The key of questions has different columns. `table` is None if the auditor does not need the sources, and `warning`
    is empty if there is none.
    """

    key: pa.Table
    table: pa.Table | None = None
    warning: str = ""

    @property
    def commitment(self) -> str:
        """The SHA-256 of the key file, as 64 hexadecimal digits."""
        return hashlib.sha256(csv_of(self.key)).hexdigest()

    def files_beside(self, folder: Path) -> dict[Path, bytes]:
        """Return the auditor's files next to an image folder, with their content, the key first.

        They are not inside the folder because it is shared. Raises DatasetError if different files already exist.
        """
        contents = {folder.with_name(f"{folder.name}-key.csv"): csv_of(self.key)}
        if self.table is not None:
            contents[folder.with_name(f"{folder.name}-split.csv")] = csv_of(self.table)
        for path, content in contents.items():
            if path.exists() and (not path.is_file() or path.read_bytes() != content):
                raise DatasetError(f"{path} exists with different content; choose a new folder")
        return contents


def key_of(rows: Iterable[tuple[str, str]]) -> pa.Table:
    """Return the key (KEY) of these images and sets, ordered by image."""
    return table_of_rows(KEY, sorted(rows))


def csv_of(table: pa.Table) -> bytes:
    from pyarrow import csv

    out = pa.BufferOutputStream()
    csv.write_csv(table, out, csv.WriteOptions(quoting_style="needed"))
    content: bytes = out.getvalue().to_pybytes()
    return content


def write_private(contents: dict[Path, bytes]) -> None:
    """Write the files so that only their owner can read them."""
    for path, content in contents.items():
        write_whole(path, content)
        path.chmod(0o600)
