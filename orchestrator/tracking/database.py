"""MLflow's SQLite file: created atomically, and set aside if it is unusable.

MLflow creates the file in hundreds of steps and never completes a partial one. The file is therefore created in a
separate folder and then linked to its path. A writer that dies halfway leaves only that folder behind.
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

DRAFT_PREFIX = ".making-"  # prefix of the folders in which databases are created
OWED_FILE = "owed.json"  # in the same folder: names of the runs in the database that was set aside
TIMEOUT = 20.0  # seconds to wait for another writer


def problem(path: Path) -> str | None:
    """Return the reason why MLflow cannot use the database, or None if it can or if this cannot be checked.

    Raises OSError if the file does not exist. Reads the whole file.
    """
    if path.stat().st_size == 0:
        return "it is empty"
    try:
        with closing(_connect(path)) as database:
            (outcome,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if outcome != "ok":
                return str(outcome)
            # MLflow creates the first experiment last.
            is_complete = database.execute("SELECT 1 FROM experiments LIMIT 1").fetchone()
            if is_complete:
                return None
            return "it was never completed"
    except sqlite3.Error as error:
        return _fault(error)


def holds(path: Path, run_id: str) -> bool:
    """Return whether the database contains the run. True if another process keeps the database locked."""
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
    """Create the database atomically with `fill(path)`, unless it exists by then.

    The caller must hold the lock. Raises OSError if the file cannot be written, and any error raised by `fill`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned_folder in path.parent.glob(f"{DRAFT_PREFIX}*"):  # left by a process that was killed
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
    """Rename the database and its journals, record which runs it contained, and return the new path.

    The caller must hold the lock.
    """
    record_owed_runs(
        path, sorted({*owed_runs(path), *runs})
    )  # recorded first, so that after a kill only the remaining steps are repeated
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
    """Return the runs from a database set aside that have not been delivered again yet."""
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
    """Return the database defect that an error reveals, or None if the database is only temporarily unreadable."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return str(error)
    if "no such table" in str(error):
        return "it was never completed"
    return None
