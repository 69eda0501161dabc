"""Durations of jobs in the runs of a store."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.planning.plan import Plan, group_of
from orchestrator.run_folder import shapes

RUNS = 20  # the newest runs that are read
SAMPLES = 200  # of one group in one run


def write(folder: Path, seconds: Mapping[str, Iterable[float]]) -> None:
    """Write a run's timings by group into its folder, over those of the same groups of an earlier start.

    Errors are ignored: a full disk is no reason to stop.
    """
    fresh = {group: [round(duration, 6) for duration in list(taken)[-SAMPLES:]] for group, taken in seconds.items()}
    if not any(fresh.values()):
        return
    try:
        rows = _read(folder / "timings.json") | fresh
        aside = folder / ".timings.json"
        aside.write_text(json.dumps(rows))
        aside.replace(folder / "timings.json")
    except OSError:
        return


def mean_seconds(runs: Path) -> dict[str, float]:
    """Mean seconds of a job by group, over the newest runs that left timings."""
    files = sorted(runs.glob("*/timings.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    taken: dict[str, list[float]] = defaultdict(list)
    for path in files[:RUNS]:
        for group, seconds in _read(path).items():
            taken[group].extend(seconds)
    return {group: sum(seconds) / len(seconds) for group, seconds in taken.items() if seconds}


def _read(path: Path) -> dict[str, list[float]]:
    """A run's timings by group; none where they cannot be read: then only the expected time is unknown."""
    try:
        return dict(shapes.timings(json.loads(path.read_text())))
    except (OSError, ValueError, RecursionError):
        return {}


def kinds(plan: Plan, missing: Iterable[str], seconds: Mapping[str, float]) -> dict[str, tuple[int, float | None]]:
    """The missing jobs by group: how many there are, and the expected seconds of one; None if none was ever timed."""
    counts = Counter(group_of(plan.jobs[key]) for key in missing)
    return {group: (count, seconds.get(group)) for group, count in counts.items()}


def mean_seconds_by_task(seconds: Mapping[str, float]) -> dict[str, float]:
    """Mean seconds of a job by task: the mean over its groups."""
    taken: dict[str, list[float]] = defaultdict(list)
    for group, duration in seconds.items():
        taken[group.partition("/")[0]].append(duration)
    return {task: sum(durations) / len(durations) for task, durations in taken.items()}


def startup_group(address: str | None) -> str:
    """The group under which the seconds to start and end an executor are stored."""
    return f"around, {address if address in ('none', 'local') else 'local' if address is None else 'cluster'}"
