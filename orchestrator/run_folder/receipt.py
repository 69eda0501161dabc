"""The receipt of a run, in its folder: where it is tracked, and how much of it was delivered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from orchestrator.store import atomic_write

FILE = "mlflow.json"


@dataclass(frozen=True)
class Receipt:
    """Delivery of a run. `position`, `state` and `fingerprint` identify what was delivered; empty until all of it was.

    position: of the log, in bytes. fingerprint: of the files. artifacts: their digests by path.
    """

    uri: str
    experiment: str
    experiment_id: str
    run_id: str
    address: str
    position: int = 0
    state: str = ""
    fingerprint: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)


def read(folder: Path) -> Receipt | None:
    """The receipt of the run in this folder; None if it is absent or unreadable: then all is delivered again."""
    with suppress(OSError, ValueError, TypeError):
        return Receipt(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    return None


def write(folder: Path, receipt: Receipt) -> None:
    atomic_write.replace(folder, folder / FILE, (json.dumps(asdict(receipt), indent=1) + "\n").encode())
