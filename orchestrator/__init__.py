"""Decides whether, when and where jobs run. Knows no audit by name.

import orchestrator
run = orchestrator.run("unique_feature", preset="smoke", canaries=4)
run.table("summary").to_pandas()
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.runs.report import Report


def run(
    audit: str,
    *,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    address: str | None = None,
    together: int | None = None,
    way: str | None = None,
    tolerate: int = 0,
    fail_fast: bool = False,
    stop_after: str | float | None = None,
    timeout: str | float | None = None,
    keep: str | None = None,
    again: bool = False,
    mlflow: str | None = None,
    experiment: str | None = None,
    report: bool = True,
    show_images: bool = False,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    **fields: Any,
) -> Report:
    """Run an audit (or a YAML file) to its end and return its report; `report.table("summary")` has its numbers.

    Stored results are not computed again. Fields of the config are given by name, nested ones as
    `**{"training.rate": 1e-3}`. The other arguments are those of `engram run`. A sweep, also one from a preset of
    several cells, has the reports of its cells in `report.cells`.
    """
    from orchestrator.runs.lifecycle import start
    from orchestrator.spec import resolve, specification
    from orchestrator.store import DEFAULT_STORE, open_store

    execution: dict[str, Any] = {"tolerate": tolerate, "fail_fast": fail_fast, "again": again}
    execution |= {"report": report, "show_images": show_images}
    given = {
        "address": address or os.environ.get("RAY_ADDRESS"),
        "together": together,
        "way": way,
        "keep": keep,
        "stop_after": stop_after,
        "mlflow": mlflow or os.environ.get("MLFLOW_TRACKING_URI"),
        "experiment": experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME"),
    }
    execution |= {name: value for name, value in given.items() if value is not None}
    for name, value in {"stop_after": stop_after, "timeout": timeout}.items():
        if value is not None:
            execution[name] = specification.duration(value)
    location = os.fspath(store) if store is not None else os.environ.get("ENGRAM_STORE")
    asked = resolve.specified(audit, specification.Spec(audit, preset, fields, sweep or {}, execution, location))
    cells = resolve.wanted(asked)
    opened = open_store(asked.store or DEFAULT_STORE)
    return start(resolve.pinned(cells, opened.digests()), opened, specification.execution(asked), observe)


def _own_tasks() -> None:
    """Import our `tasks`, even if a `tasks.py` in the user's working directory comes first on the path."""
    own = Path(__file__).resolve().parent.parent / "tasks" / "__init__.py"
    loaded = sys.modules.get("tasks")
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "").resolve() == own:
        return
    spec = importlib.util.spec_from_file_location("tasks", own, submodule_search_locations=[str(own.parent)])
    assert spec is not None
    assert spec.loader is not None
    for name in [name for name in sys.modules if name == "tasks" or name.startswith("tasks.")]:
        del sys.modules[name]
    package = importlib.util.module_from_spec(spec)
    sys.modules["tasks"] = package
    spec.loader.exec_module(package)


_own_tasks()
