"""Read third-party files in a child process with limited memory.

The header of a file may be wrong, by accident or as an attack: 58 kB of Parquet can contain 8 GB. The child's memory
limit is set by ENGRAM_FOREIGN_MEMORY, for example `4GB`; the default is half of the machine's memory. If the child
exceeds the limit or dies, the caller receives TooLarge, with a message that begins with "it". Results are returned in a
file as an Arrow stream, whose size is limited too.

Functions that run in the child are named `module:function`, take JSON, and return a table.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import resource
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.worker.files import FileError
from tasks.worker.reader_process import ReaderProcess, ask_reader

if TYPE_CHECKING:
    import pyarrow as pa

VARIABLE = "ENGRAM_FOREIGN_MEMORY"
UNITS = {"": 1, "MB": 10**6, "GB": 10**9}
SHARE = 2  # half of the machine's memory
LEAST = 10**9  # bytes: the libraries themselves, plus enough to read a small file
# The child reserves no more address space than it uses: one arena, the system's allocator, one thread.
QUIET = {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from {} import {}; {}()"


class TooLarge(ValueError):
    """A file needs more memory than is allowed. The message begins with "it"."""


def megabytes(number: int) -> str:
    return f"{number / 1e6:,.{0 if number >= 1e6 else 3}f} MB"


def memory_limit() -> int:
    """Return the memory limit for reading third-party files, in bytes. Raises ValueError if the variable is invalid."""
    setting = os.environ.get(VARIABLE, "").strip()
    if not setting:
        return max(LEAST, total_memory() // SHARE)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(MB|GB|)", setting, re.IGNORECASE)
    limit = int(float(match[1]) * UNITS[match[2].upper()]) if match else 0
    if limit < LEAST:
        raise ValueError(f"{VARIABLE} is {setting!r}; it must be a size of at least {megabytes(LEAST)}, such as 4GB")
    return limit


def total_memory() -> int:
    """Return the memory of this machine, or of the container of this process, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total


def check_file_size(size: int, times: int = 1) -> None:
    """Raise TooLarge if a file of this size would exceed the limit when it takes `times` its size in memory."""
    if size * times > memory_limit():
        memory_note = ""
        if times > 1:
            memory_note = f", which take {times} times that in memory"
        raise TooLarge(f"it has {megabytes(size)}{memory_note}; {describe_limit()}")


def describe_limit() -> str:
    """Describe the memory limit for third-party files, and how to raise it."""
    return (
        f"a file may take {megabytes(memory_limit())} (half of this machine's memory, unless {VARIABLE} says another "
        "size, such as 8GB)"
    )


def read_table(function: str, **request: Any) -> pa.Table:
    """Run a function in a child and return its table.

    Raises TooLarge if the child exceeds the memory limit or dies. Errors of the function are raised as ArrowException,
    OSError, FileError or another ValueError.
    """
    import pyarrow as pa

    with tempfile.TemporaryDirectory(prefix="engram-read-") as folder:
        out = Path(folder) / "table.arrows"
        reply = Path(folder) / "reply.json"
        instructions = {
            "server": "tasks.worker.confined:serve_table",
            "function": function,
            "request": request,
            "limit": memory_limit(),
            "out": str(out),
            "reply": str(reply),
        }
        code = ask_reader(instructions, _start_reader)
        answer = _parse_object(reply) if code == 0 else None
        if answer is None:
            raise TooLarge(f"it cannot be read within the memory that it may take: {describe_limit()}")
        if answer["error"]:
            raise _error(answer["error"], answer["message"])
        with pa.memory_map(str(out)) as mapped, pa.ipc.open_stream(mapped) as stream:
            return stream.read_all()


def _start_reader() -> ReaderProcess:
    return ReaderProcess(command("tasks.worker.reader_process:serve_requests"), environment())


def command(target: str) -> list[str]:
    """Return the command for a child that runs `module:function` with the import paths of this process."""
    module, _, function = target.partition(":")
    return [sys.executable, "-c", START.format(module, function, function), json.dumps(sys.path)]


def environment() -> dict[str, str]:
    return {**os.environ, **QUIET}


def _parse_object(file: Path) -> dict[str, Any] | None:
    try:
        parsed = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _error(kind: str, message: str) -> Exception:
    import pyarrow as pa

    kinds: dict[str, type[Exception]] = {
        "TooLarge": TooLarge,
        "FileError": FileError,
        "ArrowException": pa.ArrowInvalid,
        "OSError": OSError,
    }
    return kinds.get(kind, ValueError)(message)


def limit_memory(limit: int) -> None:
    """Limit the address space of this process, and the size of files that it writes."""
    for kind, maximum in ((resource.RLIMIT_AS, limit), (resource.RLIMIT_FSIZE, limit), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY:
            lowest = maximum
        else:
            lowest = min(maximum, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
            resource.setrlimit(kind, (lowest, lowest))


def serve_table(instructions: Mapping[str, Any]) -> None:
    """Run the requested function in the child, and write its table or, as JSON, its error."""
    import pyarrow as pa

    limit_memory(instructions["limit"])
    module, _, name = instructions["function"].partition(":")
    try:
        table = getattr(importlib.import_module(module), name)(**instructions["request"])
        with pa.OSFile(instructions["out"], "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        answer = {"error": ""}
    except (MemoryError, pa.ArrowMemoryError):
        answer = {"error": "TooLarge", "message": f"it takes more memory than it may: {describe_limit()}"}
    except Exception as error:
        answer = {"error": _kind(error), "message": str(error)}
    Path(instructions["reply"]).write_text(json.dumps(answer))


def _kind(error: Exception) -> str:
    import pyarrow as pa

    for kind, name in (
        (TooLarge, "TooLarge"),
        (FileError, "FileError"),
        (OSError, "OSError"),
        (pa.ArrowException, "ArrowException"),
    ):
        if isinstance(error, kind):
            return name
    return "ValueError"
