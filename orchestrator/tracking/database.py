"""MLflow's SQLite file: it is created atomically, and an unusable one is set aside.

MLflow creates the file in hundreds of steps and never completes a partial one. Therefore it is created in a separate
folder and then linked to its path; a writer that dies midway leaves only that folder.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import mkdtemp

from orchestrator.store import atomic_write
from orchestrator.store.durability import sync

DRAFT_PREFIX = ".making-"  # prefix of the folders in which a database is created
OWED_FILE = "owed.json"  # next to it: names of runs in the database that was set aside
TIMEOUT = 20.0  # seconds to wait for another writer


def problem(path: Path) -> str | None:
    """The reason why MLflow cannot use the database; None if it can, or if this cannot be checked.

    Raises OSError if it does not exist. Reads the whole file.
    """
    if path.stat().st_size == 0:
        return "it is empty"
    try:
        with closing(_connect(path)) as database:
            (outcome,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if outcome != "ok":
                return str(outcome)
            # The first experiment is the last that MLflow makes.
            is_complete = database.execute("SELECT 1 FROM experiments LIMIT 1").fetchone()
            if is_complete:
                return None
            return "it was never completed"
    except sqlite3.Error as error:
        return _fault(error)


def holds(path: Path, run_id: str) -> bool:
    """Whether the database has the run; True if another process keeps the database locked."""
    try:
        if path.stat().st_size == 0:
            return False
        with closing(_connect(path)) as database:
            return bool(database.execute("SELECT 1 FROM runs WHERE run_uuid = ?", (run_id,)).fetchone())
    except sqlite3.Error as error:
        return _fault(error) is None
    except OSError:
        return False


def make(path: Path, fill: Callable[[Path], None]) -> None:
    """Create the database atomically with `fill(path)`, unless there is one by then.

    The caller must hold the lock. Raises OSError if it cannot be written, and the errors of `fill`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned_folder in path.parent.glob(f"{DRAFT_PREFIX}*"):  # by a process that was killed
        shutil.rmtree(abandoned_folder, ignore_errors=True)
    folder = Path(mkdtemp(prefix=DRAFT_PREFIX, dir=path.parent))
    try:
        draft = folder / path.name
        fill(draft)
        if defect := problem(draft):
            raise OSError(f"the database created for {path} cannot be used: {defect}")
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
        sync(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def set_aside(path: Path, runs: Iterable[str]) -> Path:
    """Move the database away with its journals, record that these runs were in it, and return its new path.

    The caller must hold the lock.
    """
    record_owed_runs(
        path, sorted({*owed_runs(path), *runs})
    )  # first, so that after a kill only the rest has to be repeated
    count = 1
    while (new_path := path.with_name(f"{path.name}.unusable-{count}")).exists():
        count += 1
    for suffix in ("-journal", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{new_path}{suffix}")
    os.rename(path, new_path)
    sync(path.parent)
    return new_path


def owed_runs(path: Path) -> list[str]:
    """The runs of a database set aside that still have to be delivered again."""
    try:
        names = json.loads((path.parent / OWED_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    if isinstance(names, list):
        return [name for name in names if isinstance(name, str)]
    return []


def record_owed_runs(path: Path, runs: Sequence[str]) -> None:
    """Record that exactly these runs still have to be delivered."""
    if runs:
        atomic_write.replace(path.parent, path.parent / OWED_FILE, (json.dumps(list(runs), indent=1) + "\n").encode())
    else:
        (path.parent / OWED_FILE).unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=TIMEOUT)


def _fault(error: sqlite3.Error) -> str | None:
    """The defect of the database that an error shows; None if it is only unreadable at present."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return str(error)
    if "no such table" in str(error):
        return "it was never completed"
    return None
