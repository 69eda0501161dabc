"""Images of files that can only be read from the beginning, such as compressed arrays and volumes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tasks.datasets.images import Indices, Labels, Pixels
from tasks.datasets.source import Hashes

Blocks = Iterator[Pixels]


@dataclass(eq=False)
class _Position:
    """The blocks that follow, the last block that was read, and the row of its first image."""

    blocks: Blocks
    block: Pixels
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.block)


@dataclass(frozen=True, eq=False)
class SequentialRows:
    """Images that are decoded in order, a block at a time.

    `open_blocks` yields all images in row order, (n, h, w, c) at a time, and checks that they are unchanged. Rows that
    precede the last block are read from the beginning again, so callers request rows in ascending order.
    """

    hashes: Hashes
    labels: Labels
    shape: tuple[int, int, int]
    open_blocks: Callable[[], Blocks]
    _positions: list[_Position] = field(default_factory=list)  # at most one
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, rows: Indices) -> Pixels:
        rows = np.asarray(rows, np.int64)
        out = np.empty((len(rows), *self.shape), np.uint8)
        if not len(rows):
            return out
        with self._lock:
            position = self._go_to(int(rows.min()))
            while True:
                is_here = (rows >= position.start) & (rows < position.end)
                out[is_here] = position.block[rows[is_here] - position.start]
                if position.end > int(rows.max()):
                    return out
                self._advance(position)

    def _go_to(self, row: int) -> _Position:
        if not self._positions or self._positions[0].start > row:
            self._positions[:] = [_Position(self.open_blocks(), np.empty((0, *self.shape), np.uint8))]
        position = self._positions[0]
        while position.end <= row:
            self._advance(position)
        return position

    def _advance(self, position: _Position) -> None:
        try:
            position.start, position.block = position.end, next(position.blocks)
        except BaseException:
            self._positions.clear()  # the next call begins again
            raise
