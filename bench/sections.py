"""The sections of a long bench, one after another, within the time there is.

What has been measured is written after every row, so that a run which is killed leaves what it had. A section that
fails leaves a row that says so, and the others go on.
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
    """Rows of one subject. They are measured as they are asked for, one after another."""

    name: str
    rows: Callable[[], Iterator[Row]]
    seconds: float = 0.0  # that it may take on the machine it is for: where less is left, it is left out


@dataclass
class Sitting:
    """One run of several sections, `seconds` long at most, as far as a section ends when it says it does."""

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
    def left(self) -> float:
        return self.seconds - self.elapsed

    def hold(self, sections: Sequence[Section]) -> list[Row]:
        """Measure all sections and print the whole table."""
        for section in sections:
            if self.left < section.seconds:
                what = f"left out: it may take {section.seconds:.0f} s, and {max(self.left, 0):.0f} s were left"
                self._add(Row(section.name, what))
                continue
            self.say(f"{section.name} ...")
            self._hear(section)
            release()
        self.say("done")
        print(markdown(self.title, self.setting, self.rows), end="", flush=True)
        return self.rows

    def say(self, text: str) -> None:
        print(f"[{self.elapsed:6.1f} s] {text}", file=sys.stderr, flush=True)

    def _hear(self, section: Section) -> None:
        try:
            for row in section.rows():
                self._add(row)
                if self.left <= 0:
                    self._add(Row(section.name, f"the rest left out: {self.seconds:.0f} s were over"))
                    return
        except Exception as error:
            traceback.print_exc()
            self._add(Row(section.name, f"failed: {first_line(error)}"))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.setting["took"] = f"{self.elapsed:.0f} s"
        write(self.title, self.setting, self.rows, self.out)
        beside = f" beside {row.rival}" if row.rival else ""
        self.say(f"{row.what}: {row.ours}{beside}")


def first_line(error: BaseException) -> str:
    """Its type and the first line of its text, as a table can hold it."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}".rstrip(": ").replace("|", "/")[:200]


def release() -> None:
    """Give a GPU's memory back, so that sections do not take each other's."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        try:
            torch.cuda.empty_cache()
        except RuntimeError:  # after an error that only a new process gets over: the next section says so itself
            return
