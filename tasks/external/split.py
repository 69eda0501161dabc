"""Which of the pictures that an owner gets are which: for the auditor alone, who keeps it.

Beside the folder PROBES that goes to the owner lies PROBES-split.csv, which does not.
"""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False)
class Split:
    """The set of each picture (SCHEMA), and what is to be known about it beforehand; no text where there is nothing."""

    table: pa.Table
    warning: str = ""


def path_beside(folder: Path) -> Path:
    """Where the split of this folder's pictures is written: not inside, since the folder is given away."""
    return folder.with_name(f"{folder.name}-split.csv")


def content_of(split: Split, beside: Path) -> bytes:
    """The file's bytes; DatasetError where another one is there."""
    from pyarrow import csv

    out = pa.BufferOutputStream()
    csv.write_csv(split.table, out, csv.WriteOptions(quoting_style="needed"))
    content: bytes = out.getvalue().to_pybytes()
    if beside.exists() and (not beside.is_file() or beside.read_bytes() != content):
        raise DatasetError(f"{beside} is there and is not what would be written; name a new folder")
    return content


def write(content: bytes, beside: Path) -> None:
    """Write the file, which nobody else on this machine may read."""
    put(beside, content)
    beside.chmod(0o600)
