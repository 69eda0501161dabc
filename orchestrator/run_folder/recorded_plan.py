"""A run's plan as recorded in its folder, which is valid while the inputs to planning are unchanged.

Planning 100,000 jobs takes 3 s, but a finished run needs only the keys in its plan. Whenever a run is planned, its
folder therefore stores a digest of the inputs to planning: the configuration, the source of every loaded module outside
installed packages, and the installed packages with their versions. While the digest is unchanged, planning would give
the recorded keys. The jobs themselves are planned only when one of them is needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import EngramError
from orchestrator.planning.identity import KEY_FORMAT
from orchestrator.planning.plan import Plan
from orchestrator.run_folder import run_files
from orchestrator.run_folder.journal import Journal, reopen_run
from orchestrator.store import atomic_write
from orchestrator.store.regular_file import regular_bytes
from tasks.contract.job import Job

FILE = "derivation.json"
INSTALLED = ("site-packages", "dist-packages")  # folder names of installed packages
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
LOADED = time.time()  # a module whose file is newer may differ from the one loaded in this process
V = TypeVar("V")


class Deferred(Mapping[str, V]):
    """A mapping with known keys whose values are all created on first access."""

    def __init__(self, keys: Mapping[str, Any], make: Callable[[], Mapping[str, V]]) -> None:
        self._keys = keys
        self._make = make

    @cached_property
    def _values(self) -> Mapping[str, V]:
        return self._make()

    def __getitem__(self, key: str) -> V:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


@dataclass(frozen=True)
class RecordedPlan(Plan):
    """A plan whose jobs are planned on first access."""

    recorded_tasks: Mapping[str, str] = field(default_factory=dict)
    recorded_trains: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> Mapping[str, str]:
        return self.recorded_tasks

    @cached_property
    def trains(self) -> Mapping[str, int]:
        return self.recorded_trains


def open_plan(journal: Journal) -> Plan:
    """Return the plan of a run from its folder. Raises EngramError if the current code plans different jobs."""
    derivation = _read(journal)
    if derivation is None or derivation["digest"] != _digest(journal, derivation["modules"]):
        plan = reopen_run(journal)[1]
        record(journal, plan)
        return plan

    plans: list[Plan] = []

    def whole() -> Plan:
        plans.extend([] if plans else [reopen_run(journal)[1]])
        return plans[0]

    tasks = journal.tasks()
    jobs: Mapping[str, Job] = Deferred(tasks, lambda: whole().jobs)
    inputs: Mapping[str, tuple[str, ...]] = Deferred(tasks, lambda: whole().inputs)
    return RecordedPlan(jobs, inputs, journal.roots(), journal.after(), tasks, derivation["trains"])


def record(journal: Journal, plan: Plan) -> None:
    """Store the digest of a plan's inputs in the run's folder. It only saves time, so errors are ignored."""
    with suppress(OSError, EngramError, ValueError, ImportError):
        modules = sorted(name for name, module in [*sys.modules.items()] if name != "__main__" and _is_own(module))
        if any(_source(name).stat().st_mtime >= LOADED for name in modules):
            return
        content = {"digest": _digest(journal, modules), "modules": modules, "trains": dict(plan.trains)}
        with atomic_write.put_in_place(journal.folder / FILE) as draft:
            draft.write_bytes(run_files.seal(content))


def _read(journal: Journal) -> Any:
    """Return the record of how a plan was derived. Returns None if it is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        return run_files.unseal(regular_bytes(journal.folder / FILE), must_be_sealed=True)
    return None


def _digest(journal: Journal, modules: Iterable[str]) -> str | None:
    """Return the digest of a plan and its inputs. Returns None if a module is not found."""
    about = journal.about()
    digest = hashlib.sha256()
    with suppress(OSError, ValueError, ImportError):
        packages = sorted(package for folder in sys.path for package in _installed(Path(folder)))
        digest.update(json.dumps([KEY_FORMAT, about["audit"], about.get("config"), sys.version, packages]).encode())
        digest.update(hashlib.sha256(regular_bytes(journal.folder / "plan.json")).digest())
        for name in modules:
            digest.update(name.encode() + hashlib.sha256(_source(name).read_bytes()).digest())
        return digest.hexdigest()
    return None


def _installed(folder: Path) -> Iterator[str]:
    """Yield the name and version of each package installed in a folder, taken from the names of the metadata."""
    if folder.name in INSTALLED and folder.is_dir():
        yield from (path.name for path in folder.iterdir() if path.suffix in (".dist-info", ".egg-info"))


def _is_own(module: Any) -> bool:
    """Whether a module has a file that belongs neither to Python nor to an installed package."""
    spec = getattr(module, "__spec__", None)
    return spec is not None and spec.has_location and bool(spec.origin) and _is_own_file(spec.origin)


@cache  # called for thousands of modules each time a run is planned
def _is_own_file(path: str) -> bool:
    return not (path.startswith(STANDARD_LIBRARY) or set(INSTALLED) & set(Path(path).parts))


def _source(name: str) -> Path:
    """Return the file of a module. Raises ImportError or ValueError if it is not found."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(name)
    return Path(spec.origin)
