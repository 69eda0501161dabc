"""What jobs took tells what others of their kind will take."""

from __future__ import annotations

from pathlib import Path

import toys

from orchestrator.run_folder import other_runs
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import open_store


def test_a_runs_timings_are_known_to_the_next(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    start(
        [Cell("toys", toys.Config(parts=5, seconds=0.1))], store, Execution(address="none", mlflow="off", report=False)
    )
    known = other_runs.mean_seconds(store.folder("runs"))
    (part,) = (seconds for group, seconds in known.items() if group.startswith("toys.part"))
    assert 0.09 < part
