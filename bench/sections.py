"""Measure the sections of a long benchmark in sequence, within a time limit.

The result is written after every row, so an interrupted run keeps its rows. A section that fails adds a row with the
error, and the other sections continue.
"""

from __future__ import annotations

import gc
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from bench.measuring import Row, markdown, write


@dataclass(frozen=True)
class Section:
    """The rows for one subject, measured lazily."""

    name: str
    rows: Callable[[], Iterator[Row]]
    seconds: float = 0.0  # upper bound on its duration; the section is skipped if less time remains


@dataclass
class Sitting:
    """One run of several sections. It takes at most `seconds` if each section keeps to its duration."""

    title: str
    setting: dict[str, str]
    out: Path | None = None
    seconds: float = math.inf
    rows: list[Row] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float:
        return self.seconds - self.elapsed

    def measure(self, sections: Sequence[Section]) -> list[Row]:
        """Measure all sections and print the whole table."""
        for section in sections:
            if self.remaining < section.seconds:
                note = f"left out: it may take {section.seconds:.0f} s, and {max(self.remaining, 0):.0f} s were left"
                self._add(Row(section.name, note))
                continue
            self.print_progress(f"{section.name} ...")
            self._measure_section(section)
            release_gpu_memory()
        self.print_progress("done")
        print(markdown(self.title, self.setting, self.rows), end="", flush=True)
        return self.rows

    def print_progress(self, text: str) -> None:
        print(f"[{self.elapsed:6.1f} s] {text}", file=sys.stderr, flush=True)

    def _measure_section(self, section: Section) -> None:
        try:
            for row in section.rows():
                self._add(row)
                if self.remaining <= 0:
                    self._add(Row(section.name, f"the rest left out: {self.seconds:.0f} s were over"))
                    return
        except Exception as error:
            traceback.print_exc()
            self._add(Row(section.name, f"failed: {first_line(error)}"))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.setting["took"] = f"{self.elapsed:.0f} s"
        write(self.title, self.setting, self.rows, self.out)
        comparison = f" compared with {row.rival}" if row.rival else ""
        self.print_progress(f"{row.subject}: {row.engram}{comparison}")


def first_line(error: BaseException) -> str:
    """Return the error type and the first line of its message, without `|`."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}".rstrip(": ").replace("|", "/")[:200]


def release_gpu_memory() -> None:
    """Release cached GPU memory for the next section."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        try:
            torch.cuda.empty_cache()
        except RuntimeError:  # after some errors the device is unusable, and the next section fails with its own row
            return
