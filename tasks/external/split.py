"""Which of the pictures or questions that an owner gets are which: for the auditor alone, who keeps it.

Beside the folder PROBES that goes to the owner lie two files, which do not:

PROBES-key.csv      image, set: what each picture is; of questions id, set, question. The SHA-256 of this file stands
                    in the owner's README.txt. Once the owner has sent the table, the key can be given, too, and
                    `sha256sum` shows that it is the one that was promised.
PROBES-split.csv    where each picture comes from, where the auditor has to know that before any is given
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.external.handout import put

SCHEMA = pa.schema(
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
    return pa.Table.from_pylist([{"image": image, "set": of} for image, of in sorted(rows)], KEY)


def csv_of(table: pa.Table) -> bytes:
    """The bytes of a table as CSV."""
    from pyarrow import csv

    out = pa.BufferOutputStream()
    csv.write_csv(table, out, csv.WriteOptions(quoting_style="needed"))
    content: bytes = out.getvalue().to_pybytes()
    return content


def write(held: dict[Path, bytes]) -> None:
    """Write the files, which nobody else on this machine may read."""
    for path, content in held.items():
        put(path, content)
        path.chmod(0o600)
