"""The receipt for a run: where tracking has it, and how much of it was delivered. It lies in the run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from orchestrator import artifacts
from orchestrator.course import is_end, is_news
from orchestrator.journal import Journal
from orchestrator.store import Store, aside
from orchestrator.target import Target

FILE = "mlflow.json"


@dataclass(frozen=True)
class Receipt:
    """`position`, `state` and `fingerprint` say what of the run's folder was delivered; empty until all of it was.

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
    """The receipt of the run in this folder, if there is one that can be read: without it all is delivered again."""
    with suppress(OSError, ValueError, TypeError):
        return Receipt(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    return None


def write(folder: Path, receipt: Receipt) -> None:
    aside.replace(folder, folder / FILE, (json.dumps(asdict(receipt), indent=1) + "\n").encode())


def delivered(journal: Journal, store: Store, target: Target) -> bool:
    """Whether this target has all that the run's folder says: nothing was done since, and no file has changed."""
    receipt = read(journal.folder)
    if (
        receipt is None
        or not receipt.state
        or (target.public_uri, target.experiment) != (receipt.uri, receipt.experiment)
    ):
        return False
    if target.uri.startswith("sqlite:///") and not Path(target.uri.removeprefix("sqlite:///")).exists():
        return False
    events, position = journal.events_from(receipt.position)
    ends = [event["event"] for event in events if is_end(event)]
    if any(map(is_news, events)) or (ends and ends[-1] != receipt.state):
        return False
    if receipt.fingerprint != artifacts.fingerprint(journal, store):
        return False
    with suppress(OSError):
        write(journal.folder, replace(receipt, position=position))  # what was read need not be read next time
    return True
