"""The log of a failed job: its traceback, followed by a line with the place, time and output."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

MARK = '{"failure_log": '  # begins the last line; no error text contains such a line
PRINTED_BYTES = 64 * 1024  # kept from the end of each stream


@dataclass(frozen=True)
class FailureLog:
    """A failed job: its traceback, the last output of its call, and the process (`host:pid`), time and device."""

    traceback: str
    stdout: str = ""
    stderr: str = ""
    worker: str = ""
    time: str = ""  # UTC, ISO 8601
    device: str = ""
    together: int = 1  # number of jobs in the call; any of them may have produced the output

    def to_text(self) -> str:
        """Return the text to store."""
        other_fields = {}
        for name, value in asdict(self).items():
            if name != "traceback":
                other_fields[name] = value
        return f"{self.traceback.rstrip()}\n{MARK}{json.dumps(other_fields)}}}\n"

    @classmethod
    def from_text(cls, text: str) -> FailureLog:
        """Parse text written by `to_text`. Any other text is read as a traceback."""
        traceback, mark, line = text.rpartition(f"\n{MARK}")
        try:
            other_fields: dict[str, Any] = json.loads(mark[1:] + line)["failure_log"] if mark else {}
            if mark:
                return cls(traceback + "\n", **other_fields)
            return cls(text)
        except (ValueError, TypeError, KeyError, RecursionError):
            return cls(text)
