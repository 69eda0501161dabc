"""Durations of jobs in the runs of a store."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.run_folder import shapes

RUNS = 20  # the newest runs that are read
SAMPLES = 200  # of one group in one run


def write(folder: Path, seconds: Mapping[str, Iterable[float]]) -> None:
    """Write a run's timings by group into its folder. Errors are ignored: a full disk is no reason to stop."""
    try:
        rows = {group: [round(duration, 6) for duration in list(taken)[-SAMPLES:]] for group, taken in seconds.items()}
        aside = folder / ".timings.json"
        aside.write_text(json.dumps(rows))
        aside.replace(folder / "timings.json")
    except OSError:
        return


def known(runs: Path) -> dict[str, float]:
    """Mean seconds of a job by group, over the newest runs that left timings."""
    files = sorted(runs.glob("*/timings.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    taken: dict[str, list[float]] = defaultdict(list)
    for path in files[:RUNS]:
        try:
            rows = shapes.timings(json.loads(path.read_text()))
        except (OSError, ValueError, RecursionError):  # without timings only the expected time is unknown
            continue
        for group, seconds in rows.items():
            taken[group].extend(seconds)
    return {group: sum(seconds) / len(seconds) for group, seconds in taken.items() if seconds}


def around(address: str | None) -> str:
    """The group under which the seconds to start and end an executor are stored."""
    return f"around, {address if address in ('none', 'local') else 'local' if address is None else 'cluster'}"
