"""The MLflow tracking store of runs, the experiment, and links to MLflow's pages."""

from __future__ import annotations

import base64
import json
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from orchestrator.errors import EngramError
from orchestrator.spec.specification import absolute_uri
from orchestrator.sqlite_uri import sqlite_path, sqlite_uri
from orchestrator.store import Store
from tasks.contract.extras import MLFLOW, install_command, missing

VIEW_KEY = "engram-answers"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
VIEW_PARAMETER = f"viewStateShareKey={VIEW_KEY}"  # query parameter of a link
# Widths in pixels. Answers are shown as tags because MLflow prints metrics with all digits.
COLUMNS = {"tags.`engram.estimate`": 250, "tags.`engram.answer`": 120, "tags.`engram.measured`": 240}
OTHER_COLUMNS = {"attributes.`Run Name`": 280, "runDateAndNestInfo": 140, "duration": 90}
FOLDER = "mlflow"  # in a local store
DATABASE = "mlflow.db"
ARTIFACTS = "artifacts"
LOCK = "lock"
EXPERIMENT = "engram"
OFF = "off"
# MLflow 3 opens its view for language models, which shows no runs, unless a link selects another view.
VIEW = "?workflowType=machine_learning"


def view_state() -> str:
    """Return the tag value that describes the view."""
    name, *rest = OTHER_COLUMNS
    state = {
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": list(COLUMNS),
        "columnOrder": [name, *COLUMNS, *rest],
        "columnWidths": OTHER_COLUMNS | COLUMNS,
    }
    packed = zlib.compress(json.dumps(state).encode(), level=9)
    return f"deflate;{base64.b64encode(packed).decode()}"


class Untracked(EngramError):
    """Runs are not tracked, for the reason given in the message."""


@dataclass(frozen=True)
class Target:
    """A tracking store, given by its URI, and the experiment in it.

    `jobs`: whether each training that logs metrics becomes a nested run.
    """

    uri: str
    experiment: str = EXPERIMENT
    jobs: bool = False

    @property
    def remote(self) -> bool:
        return self.uri.startswith(("http://", "https://"))

    @property
    def database(self) -> Path | None:
        """The SQLite file, or None if the tracking store is not one."""
        return sqlite_path(self.uri)

    @property
    def public_uri(self) -> str:
        """The URI without user name and password."""
        parts = urlsplit(self.uri)
        if parts.username is None and parts.password is None:
            return self.uri
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def address(self, experiment_id: str, run_id: str) -> str:
        """Return the address of the run to show to the user: its page on a server, or else the tracking store."""
        if not self.remote:
            return self.public_uri
        return f"{self.public_uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}{VIEW}"


def run_list(url: str, experiment_id: str, with_answers: bool = False) -> str:
    """Return the URL of an experiment's run list on this server. `with_answers` selects Engram's view of the list."""
    shared = ""
    if with_answers:
        shared = f"&{VIEW_PARAMETER}"
    return f"{url.rstrip('/')}/#/experiments/{experiment_id}/runs{VIEW}{shared}"


def comparison(experiment_id: str, run_ids: Sequence[str]) -> str:
    """Return the link, relative to MLflow's pages, that compares these runs of an experiment."""
    runs, experiments = (quote(json.dumps(ids, separators=(",", ":"))) for ids in (list(run_ids), [experiment_id]))
    return f"#/compare-runs?runs={runs}&experiments={experiments}"


def target(store: Store, uri: str | None, experiment: str | None) -> Target | None:
    """Return the tracking store for the runs in this store, or None if tracking is turned off.

    The default is a database inside a local store. Raises Untracked if the store cannot contain one, or if MLflow is
    missing.
    """
    if uri == OFF:
        return None
    if uri is None:
        location = None
    else:
        location = absolute_uri(uri)
    if missing([MLFLOW]):
        raise Untracked(f"tracking is off: mlflow is not installed ({install_command([MLFLOW])})")
    return Target(location or default_uri(store), experiment or EXPERIMENT)


def default_uri(store: Store) -> str:
    """Return the URI of the database inside a local store."""
    if store.mirror is not None:
        raise Untracked(
            f"tracking is off: {store.location} is not a folder; "
            "give a tracking store by --mlflow or MLFLOW_TRACKING_URI"
        )
    try:
        return sqlite_uri(store.folder(FOLDER) / DATABASE)
    except EngramError as error:
        raise Untracked(f"tracking is off: {error}") from None


def rehome(store: Store) -> None:
    """Update the artifact paths in the database of a store that was moved or copied.

    MLflow stores absolute paths. The caller must hold the lock.
    """
    database = store.folder(FOLDER) / DATABASE
    artifact_uri = (store.folder(FOLDER) / ARTIFACTS).as_uri()
    if not database.exists():
        return
    with closing(sqlite3.connect(database, timeout=20)) as connection, suppress(sqlite3.Error), connection:
        query = "SELECT DISTINCT artifact_location FROM experiments WHERE artifact_location LIKE ?"
        for (old_uri,) in connection.execute(query, (f"file:///%/{FOLDER}/{ARTIFACTS}",)).fetchall():
            if old_uri != artifact_uri:
                assignment = "SET artifact_location = ? WHERE artifact_location = ?"
                connection.execute(f"UPDATE experiments {assignment}", (artifact_uri, old_uri))
                assignment = "SET artifact_uri = ? || substr(artifact_uri, ?) WHERE substr(artifact_uri, 1, ?) = ?"
                connection.execute(
                    f"UPDATE runs {assignment}", (artifact_uri, len(old_uri) + 1, len(old_uri) + 1, f"{old_uri}/")
                )
