"""Measure the sections of a long benchmark in sequence, within a time limit.

The result is written after every row, so an interrupted run keeps its rows, and a later sitting can take them over. A
section that fails adds a row with the error, and the other sections continue.
"""

from __future__ import annotations

import gc
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from bench.measuring import Row, markdown, read_report, write

LEFT_OUT = "left out: "
CUT_SHORT = "the rest left out: "
FAILED = "failed: "
IN_PROGRESS = "in progress"  # the fact that names the section being measured
TOOK = "took"
# Facts that two sittings must share for the second to take over the rows of the first. Others, such as the load, vary.
SAME = ("device", "processor", "versions", "products", "data", "size", "code")


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
    interrupted: str = ""  # the section that was being measured when an earlier sitting was killed
    earlier_seconds: float = 0.0  # that earlier sittings took

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float:
        return self.seconds - self.elapsed

    def take_over(self) -> None:
        """Take over the rows in `out` if they were measured by this code on this hardware.

        A section that failed or was left out is measured again, and one that was interrupted last.
        """
        if self.out is None or not self.out.exists():
            return
        setting, rows = read_report(self.out)
        different = [name for name in SAME if setting.get(name) != self.setting.get(name)]
        if different:
            self.print_progress(f"{self.out} has another {' and '.join(different)}; it will be replaced")
            return
        self.interrupted = setting.pop(IN_PROGRESS, "")
        incomplete = {self.interrupted, *(row.section for row in rows if is_incomplete(row))}
        self.rows = [row for row in rows if row.section not in incomplete]
        self.earlier_seconds = float(setting.get(TOOK, "0").partition(" ")[0])
        self.setting = {**setting, "continued": self.setting["date"]}

    def measure(self, sections: Sequence[Section]) -> list[Row]:
        """Measure all sections that have no rows yet, and print the whole table."""
        measured = {row.section for row in self.rows}
        for section in sorted(sections, key=lambda section: section.name == self.interrupted):
            if section.name in measured:
                self.print_progress(f"{section.name}: measured earlier")
                continue
            if self.remaining < section.seconds:
                note = f"it may take {section.seconds:.0f} s, and {max(self.remaining, 0):.0f} s were left"
                self._add(Row(section.name, LEFT_OUT + note, section=section.name))
                continue
            self.print_progress(f"{section.name} ...")
            self.setting[IN_PROGRESS] = section.name
            self._write()
            self._measure_section(section)
            del self.setting[IN_PROGRESS]
            self._write()
            release_gpu_memory()
        self.print_progress("done")
        print(markdown(self.title, self.setting, self.rows), end="", flush=True)
        return self.rows

    def print_progress(self, text: str) -> None:
        print(f"[{self.elapsed:6.1f} s] {text}", file=sys.stderr, flush=True)

    def _measure_section(self, section: Section) -> None:
        try:
            for row in section.rows():
                self._add(replace(row, section=section.name))
                if self.remaining <= 0:
                    note = f"{CUT_SHORT}{self.seconds:.0f} s were over"
                    self._add(Row(section.name, note, section=section.name))
                    return
        except Exception as error:
            traceback.print_exc()
            self._add(Row(section.name, FAILED + first_line(error), section=section.name))

    def _write(self) -> None:
        self.setting[TOOK] = f"{self.earlier_seconds + self.elapsed:.0f} s"
        write(self.title, self.setting, self.rows, self.out)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._write()
        comparison = f" compared with {row.rival}" if row.rival else ""
        self.print_progress(f"{row.subject}: {row.engram}{comparison}")


def is_incomplete(row: Row) -> bool:
    """Whether the row states that its section, or the rest of it, was not measured."""
    return row.engram.startswith((LEFT_OUT, CUT_SHORT, FAILED))


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
