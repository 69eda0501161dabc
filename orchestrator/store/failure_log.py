"""What a store keeps of a job that failed: its traceback, and after it a line on where it ran and what it printed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

MARK = '{"failure_log": '  # begins the last line; an error's own text has no such line
PRINTED_BYTES = 64 * 1024  # of each stream that are kept: its end


@dataclass(frozen=True)
class FailureLog:
    """A failed job: the traceback; the end of what its call printed; the process (`host:pid`), time and device."""

    traceback: str
    stdout: str = ""
    stderr: str = ""
    worker: str = ""
    time: str = ""  # UTC, ISO 8601
    device: str = ""
    together: int = 1  # jobs of the call, which may have printed what is kept

    def to_text(self) -> str:
        """The text that a store keeps."""
        rest = {name: value for name, value in asdict(self).items() if name != "traceback"}
        return f"{self.traceback.rstrip()}\n{MARK}{json.dumps(rest)}}}\n"

    @classmethod
    def from_text(cls, text: str) -> FailureLog:
        """What `to_text` wrote; of any other text all is the traceback."""
        traceback, mark, line = text.rpartition(f"\n{MARK}")
        try:
            rest: dict[str, Any] = json.loads(mark[1:] + line)["failure_log"] if mark else {}
            return cls(traceback + "\n", **rest) if mark else cls(text)
        except (ValueError, TypeError, KeyError, RecursionError):
            return cls(text)
