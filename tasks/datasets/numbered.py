"""Records that Engram knows only by number: `rows:50000`. They stay with the user's training program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.datasets.dataset import UnknownDataset
from tasks.datasets.images import ONE_PIXEL, Images
from tasks.datasets.source import Source, digest_of

RULE = "numbered rows 1"
MOST = 2**24  # larger numbers are not exact in float32


@dataclass(frozen=True)
class NumberedRows:
    """Records whose only feature is their row number. All are distinct, and none has a label."""

    count: int

    def digest(self) -> str:
        return digest_of(RULE, [str(self.count).encode()])

    def images(self) -> Images:
        """Return the row numbers as a table with one feature."""
        numbers = np.arange(self.count, dtype=np.float32).reshape(-1, *ONE_PIXEL, 1)
        labels = np.zeros(self.count, np.int64)
        return Images(numbers, labels, numbers[:1], labels[:1], 1, features=("row",))  # type: ignore[arg-type]


def source(count: str) -> Source:
    """Return the records of `rows:COUNT`. Raises UnknownDataset if COUNT is not a number from 1 to MOST."""
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= MOST):
        raise UnknownDataset(f"data set 'rows:{count}': write the number of records, from 1 to {MOST:,}")
    rows = NumberedRows(int(count))
    return Source(f"{RULE} {rows.count}", (), lambda: rows)
