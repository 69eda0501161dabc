"""Counts the operations of steps in a separate process, because planning does not import torch.

The counts are kept in a file of the store, so that each kind of step is counted once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.executors.environment import ONE_THREAD
from orchestrator.store import atomic_write
from tasks.contract.operations import CountedStep, Step

COUNTED = 2  # raised if the same step is counted differently
FILE_NAME = "operations.json"
HANGING = 300.0  # seconds


_counted: dict[Step, CountedStep | None] = {}  # independent of the store


def count_steps(steps: Collection[Step], folder: Path | None) -> Mapping[Step, CountedStep | None]:
    """Return the operations and the memory of each step. None if it cannot be counted, as a user's broken network.

    Counts are read from `folder` and stored there, if it is given.
    """
    missing = [step for step in dict.fromkeys(steps) if step not in _counted]
    file = None if folder is None else folder / FILE_NAME
    stored = {} if file is None or not missing else _read(file)
    for step in missing:
        if _key(step) in stored:
            _counted[step] = stored[_key(step)]
    missing = [step for step in missing if step not in _counted]
    if missing:
        _counted.update(zip(missing, _count_apart(missing), strict=True))
        if file is not None:
            new = {_key(step): asdict(counted) for step in missing if (counted := _counted[step])}
            with suppress(OSError), atomic_write.put_in_place(file) as draft:
                draft.write_text(json.dumps({**{key: asdict(counted) for key, counted in stored.items()}, **new}))
    return {step: _counted[step] for step in steps}


def _key(step: Step) -> str:
    return hashlib.sha256(f"{COUNTED} {step!r}".encode()).hexdigest()[:32]


def _read(file: Path) -> dict[str, CountedStep]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    counts = {}
    if isinstance(content, dict):
        for key, value in content.items():
            if (counted := _counted_step(value)) is not None:
                counts[key] = counted
    return counts


def _counted_step(value: Any) -> CountedStep | None:
    """Return the counts that a value states, or None if it is something else."""
    if not isinstance(value, dict) or not isinstance(value.get("operations"), dict):
        return None
    for amount in (*value["operations"].values(), value.get("device_bytes")):
        if not (isinstance(amount, int | float) and 0 <= amount < math.inf):
            return None
    return CountedStep(value["operations"], value["device_bytes"])


def _count_apart(steps: Collection[Step]) -> list[CountedStep | None]:
    """Count the steps in a separate process. None for all of them if it fails."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "orchestrator.pricing.counting"],
            input=pickle.dumps(list(steps)),
            capture_output=True,
            timeout=HANGING,
            env={**os.environ, **ONE_THREAD},
            check=True,
        )
        counts = [_counted_step(value) for value in json.loads(process.stdout.splitlines()[-1])]
        if len(counts) == len(steps):
            return counts
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        pass
    return [None] * len(steps)


def _count_here() -> None:
    """Read steps from standard input and write their counts to standard output."""
    from tasks.counting.traced_steps import trace

    counts: list[dict[str, Any] | None] = []
    for step in pickle.load(sys.stdin.buffer):
        try:
            counts.append(asdict(trace(step)))
        except Exception:
            counts.append(None)
    print(json.dumps(counts))  # noqa: T201


if __name__ == "__main__":
    _count_here()
