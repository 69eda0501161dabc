"""An empty MLflow database in the cache folder, from which new databases are copied.

To create a database, MLflow runs all migrations in its history, which takes about a second of processor time. The
copies differ from what MLflow creates only in the creation time of the default experiment, which is that of the copy.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from orchestrator.store import atomic_write
from tasks.datasets.cache_folder import cache_folder

DIGEST = 32  # bytes of the SHA-256 digest in front of the database in the file
CLEARED_FOLDER = ""  # the working directory in the template, which contains no path of the machine
LOCATION = "{folder}/mlruns/0"  # MLflow's folder for the artifacts of the default experiment


def template_path(version: str, migrations: Path) -> Path:
    """Return the path of the template for this version of MLflow and the files in its folder of migrations."""
    names = sorted(path.name for path in migrations.glob("*.py"))
    digest = hashlib.sha256("\n".join([version, *names]).encode()).hexdigest()
    return cache_folder() / f"mlflow-{digest[:16]}.db"


def copy_template(template: Path, draft: Path) -> bool:
    """Create the database `draft` from the template. Returns whether there is a sound template."""
    try:
        content = template.read_bytes()
    except OSError:
        return False
    digest, database = content[:DIGEST], content[DIGEST:]
    if hashlib.sha256(database).digest() != digest:
        return False
    draft.write_bytes(database)
    _move_default_experiment(draft, CLEARED_FOLDER, os.getcwd(), int(time.time() * 1000))
    return True


def keep_template(template: Path, draft: Path, folder: str) -> None:
    """Keep a copy of the database that MLflow has just created in this working directory.

    Nothing is kept if the cache folder cannot be written, or if MLflow uses another folder for the artifacts.
    """
    copy = draft.with_name(f"{draft.name}.template")
    with suppress(OSError, sqlite3.Error):
        copy.write_bytes(draft.read_bytes())
        if _move_default_experiment(copy, folder, CLEARED_FOLDER, 0):
            database = copy.read_bytes()
            template.parent.mkdir(parents=True, exist_ok=True)
            atomic_write.replace(template.parent, template, hashlib.sha256(database).digest() + database)


def _move_default_experiment(path: Path, from_folder: str, to_folder: str, created: int) -> bool:
    """Change the working directory in the default experiment. Returns False if the database has other contents."""
    with closing(sqlite3.connect(path)) as database:
        with database:
            locations = [LOCATION.format(folder=folder.rstrip("/")) for folder in (to_folder, from_folder)]
            changed = database.execute(
                "UPDATE experiments SET artifact_location = ?, creation_time = ?, last_update_time = ? "
                "WHERE artifact_location = ?",
                (locations[0], created, created, locations[1]),
            ).rowcount
        database.execute("VACUUM")  # removes the earlier path from free space in the file
    return changed == 1
