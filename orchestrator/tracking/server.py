"""An experiment in an MLflow tracking store, and its database."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

from orchestrator.deferred_pandas import without_pandas
from orchestrator.errors import EngramError
from orchestrator.quantities import encodable
from orchestrator.run_folder import notes
from orchestrator.sqlite_uri import sqlite_uri
from orchestrator.store import Store
from orchestrator.store.atomic_write import file_lock
from orchestrator.tracking import database, tracking_store
from orchestrator.tracking.template import copy_template, keep_template, template_path
from orchestrator.tracking.tracking_store import ARTIFACTS, DATABASE, FOLDER, LOCK, Target, rehome

# The last name that Engram gave to a run in MLflow's run list.
SHOWN = "engram.name"


class Undeliverable(EngramError):
    """MLflow can be reached but rejects the run."""


class Server:
    """An experiment in a tracking store, created if needed. Without a server, its artifacts are in the Engram store.

    An unusable database inside the Engram store is set aside and replaced by a new one, and `set_aside` is the line
    that reports this. Raises Undeliverable if the experiment has been deleted, or if this process has already used that
    database (`used`), because MLflow keeps files open.
    """

    def __init__(self, target: Target, store: Store, used: bool = False) -> None:
        from mlflow import MlflowClient

        self.target = target
        self.folder = store.folder(FOLDER)
        with file_lock(self.folder / LOCK):
            self.set_aside = _ready(target, store, used)
            rehome(store)
            self.client: Any = MlflowClient(tracking_uri=target.uri)
            self.experiment = self._experiment()
            self._offer_view()

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        name = self.target.experiment
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            if self.target.remote:
                artifact_location = None
            else:
                artifact_location = (self.folder / ARTIFACTS).as_uri()
            try:
                return str(self.client.create_experiment(name, artifact_location=artifact_location))
            except MlflowException:
                experiment = self.client.get_experiment_by_name(name)  # another process has created it
                if experiment is None:
                    raise
        if experiment.lifecycle_stage != "active":
            restore_command = (
                f"MLFLOW_TRACKING_URI={self.target.public_uri} mlflow experiments restore -x {experiment.experiment_id}"
            )
            raise Undeliverable(
                f"the experiment {name!r} has been deleted in MLflow; restore it ({restore_command}), "
                "or give another name by --experiment"
            )
        return str(experiment.experiment_id)

    def _offer_view(self) -> None:
        """Store the view that links open, unless the experiment already has it."""
        existing_tags = self.client.get_experiment(self.experiment).tags
        if existing_tags.get(tracking_store.VIEW_TAG) != (value := tracking_store.view_state()):
            self.client.set_experiment_tag(self.experiment, tracking_store.VIEW_TAG, value)

    def run(
        self, name: str, store_id: str, began: float, tags: Mapping[str, str], display_name: str
    ) -> tuple[Any, bool]:
        """Return the run with this name in its store, and whether it is new.

        If there is none, create it with the name `display_name`.
        """
        run_filter = f"tags.`engram.run` = '{name}' and tags.`engram.store` = '{store_id}'"
        with file_lock(self.folder / LOCK):
            runs = self.client.search_runs([self.experiment], run_filter, max_results=100)
            if not runs:
                tags = {**tags, "engram.run": name, "engram.store": store_id, SHOWN: display_name}
                tags = {tag: encodable(value) for tag, value in tags.items()}
                new_run = self.client.create_run(
                    self.experiment, int(began * 1000), tags=tags, run_name=encodable(display_name)
                )
                return new_run, True
            first, *duplicates = sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))
            for duplicate in duplicates:  # created by a server that answered too late
                self.client.delete_run(duplicate.info.run_id)
            return first, False


def _ready(target: Target, store: Store, used: bool) -> str:
    """Create the database if it is missing or unusable.

    Returns a line about the database that was set aside, or an empty string.
    """
    path = target.database
    if path is None:
        return ""
    line = ""
    defect = None
    if path.exists() and path == store.folder(FOLDER) / DATABASE:
        defect = database.problem(path)
    if defect:
        if used:
            raise Undeliverable(f"{path} can no longer be used: {defect}")
        runs = [
            folder.parent.name
            for folder in store.folder("runs").glob(f"*/{notes.RECEIPT_FILE}")
            if (last := notes.read_receipt(folder.parent)) and last.uri == target.public_uri
        ]
        new_path = database.set_aside(path, runs)
        line = (
            f"{path} could not be used ({defect}); it was renamed {new_path.name}, and its runs go into a new database"
        )
    if not path.exists():
        database.make(path, _fill)
    return line


def _fill(draft: Path) -> None:
    """Create an empty database: a copy of the template if there is one, or else with all migrations of MLflow."""
    import mlflow
    from mlflow import MlflowClient

    template = template_path(mlflow.__version__, Path(mlflow.__file__).parent / "store" / "db_migrations" / "versions")
    if copy_template(template, draft):
        return
    # MLflow inserts the working directory as a Python literal into the SQL that creates its default experiment. SQLite
    # cannot parse this literal if the path contains both kinds of quotes.
    is_unquotable = {"'", '"'} <= set(os.getcwd())
    with chdir("/") if is_unquotable else nullcontext():
        MlflowClient(tracking_uri=sqlite_uri(draft)).search_experiments(max_results=1)
        folder = os.getcwd()
    keep_template(template, draft, folder)


def store_id(store: Store) -> str:
    """Return an identifier of this store that is the same on any machine.

    It distinguishes runs with the same name in different stores.
    """
    if store.mirror is not None:
        return hashlib.sha256(store.location.encode()).hexdigest()[:16]
    folder = store.folder(FOLDER)  # the folder may be moved, so its path does not identify it
    path = folder / "id"
    with file_lock(folder / LOCK):
        if not path.exists():
            path.write_text(os.urandom(8).hex())
        return path.read_text()


def load_without_pandas() -> None:
    """Import MLflow without pandas, which it needs for data frames and models only.

    MLflow supports this, because mlflow-skinny is the same code without pandas. pandas can be imported afterwards.
    """
    if "pandas" in sys.modules or "mlflow" in sys.modules:
        return
    try:
        with without_pandas():
            import mlflow  # noqa: F401
    except ImportError:  # a version that needs pandas is imported again
        for name in [name for name in sys.modules if name.partition(".")[0] == "mlflow"]:
            del sys.modules[name]
