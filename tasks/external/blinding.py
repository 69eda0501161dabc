"""Pictures or questions handed out in an order that says nothing, some of them twice; and the auditor's record of it.

An owner gets all of them in one set under opaque names, so that nothing in a name says which it is. The set's name
ends in a digest of what is in it: a table that was made for other settings has no row for these.

Beside the folder PROBES that goes to the owner lie two files, which do not:

PROBES-key.csv      image, set: what each picture is; of questions id, set, question. The SHA-256 of this file stands
                    in the owner's README.txt. Once the owner has sent the table, the key can be given, too, and
                    `sha256sum` shows that it is the one that was promised.
PROBES-split.csv    where each picture comes from, where the auditor has to know that before any is given
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

TOGETHER = "pictures"  # the set's name
REPEATED = 0.1  # of what is handed out is there twice
DIGITS = 8  # of a digest
SAME = 0.01  # of the log-odds: in single precision devices differ in the last digits of a logit, in half by more

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HandedOut:
    """A name for the set, and the image at each place of it; an image may be there twice.

    `id_of(name, place)` is the id of what is at a place, that of pictures unless it says otherwise.
    """

    name: str
    order: NDArray[np.int64]
    id_of: Callable[[str, int], str] = image_of

    @property
    def ids(self) -> list[str]:
        """The id of each image's first place, by image."""
        return [self.id_of(self.name, place) for place in self._first]

    @property
    def repeats(self) -> dict[int, str]:
        """The id of the second place of each image that has two."""
        first = set(self._first)
        return {
            int(image): self.id_of(self.name, place) for place, image in enumerate(self.order) if place not in first
        }

    @property
    def _first(self) -> list[int]:
        """The first place of each image, by image."""
        return [int(place) for place in np.unique(self.order, return_index=True)[1]]


def blind_images(
    content: Any, count: int, seed: int, what: str = TOGETHER, id_of: Callable[[str, int], str] = image_of
) -> HandedOut:
    """So many images in an order that the seed says, a tenth of them twice; `content` (JSON) says what they are.

    The set is named after `what` they are.
    """
    name = f"{what}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]}"
    chance = seeds.generator(seed, "handed out")
    twice = chance.permutation(count)[: max(1, round(REPEATED * count))]
    return HandedOut(name, chance.permutation(np.concatenate([np.arange(count), twice])), id_of)


def withheld(secret: str) -> str:
    """What a page says of a secret."""
    return f"secret of {len(secret)} characters"


def different(first: tuple[Floats, Floats], second: tuple[Floats, Floats], printed: float) -> NDArray[np.bool_]:
    """Which answers to one picture differ, given as (probabilities, log-odds) of equal shape.

    They do where the probabilities are further apart than the last place that was printed, and the log-odds than SAME.
    """
    apart = np.abs(first[0] - second[0]) > printed * (1 + 1e-6)
    result: NDArray[np.bool_] = apart & (np.abs(first[1] - second[1]) > SAME)
    return result


SPLIT_SCHEMA = pa.schema(
    [
        ("set", pa.string()),  # query or control
        ("data", pa.string()),  # the data set's name
        ("row", pa.int64()),  # of its training split
        ("file", pa.string()),  # the picture's own; null where pictures have none
        ("image", pa.string()),  # its id among those that are handed out
        ("again", pa.string()),  # the id of its repeat; null where there is none
    ]
)


KEY = pa.schema([("image", pa.string()), ("set", pa.string())])


@dataclass(frozen=True, eq=False)
class Split:
    """Which pictures are which (KEY), where each comes from (SCHEMA), and what is to be known about it beforehand.

    The key of questions has columns of its own. No table where that need not be known, and no warning where there is
    nothing to warn of.
    """

    key: pa.Table
    table: pa.Table | None = None
    warning: str = ""

    @property
    def commitment(self) -> str:
        """The SHA-256 of the key's file, 64 hexadecimal digits."""
        return hashlib.sha256(csv_of(self.key)).hexdigest()

    def files_beside(self, folder: Path) -> dict[Path, bytes]:
        """The files beside a folder of pictures with their content, the key first; DatasetError where others lie there.

        They are not inside, since the folder is given away.
        """
        held = {folder.with_name(f"{folder.name}-key.csv"): csv_of(self.key)}
        if self.table is not None:
            held[folder.with_name(f"{folder.name}-split.csv")] = csv_of(self.table)
        for path, content in held.items():
            if path.exists() and (not path.is_file() or path.read_bytes() != content):
                raise DatasetError(f"{path} is there and is not what would be written; name a new folder")
        return held


def key_of(rows: Iterable[tuple[str, str]]) -> pa.Table:
    """The key (KEY) of these pictures and sets, in the order of the pictures."""
    return table_of_rows(KEY, sorted(rows))


def csv_of(table: pa.Table) -> bytes:
    from pyarrow import csv

    out = pa.BufferOutputStream()
    csv.write_csv(table, out, csv.WriteOptions(quoting_style="needed"))
    content: bytes = out.getvalue().to_pybytes()
    return content


def write_private(held: dict[Path, bytes]) -> None:
    """Write the files, which nobody else on this machine may read."""
    for path, content in held.items():
        write_whole(path, content)
        path.chmod(0o600)
