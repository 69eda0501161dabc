"""What was verified when a run finished: its results and its tables' parts, by the stamps of their files.

A start verifies every planned result before it says that the run is finished. To read 100,000 files takes seconds, in a
bucket an hour, so the run's folder keeps the stamp of each result that was verified, and a later start reads those
again that have another. `engram verify` reads every byte, and so does whoever uses a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from orchestrator.run_folder import run_files
from orchestrator.run_folder.journal import Journal
from orchestrator.store import atomic_write

FILE = "verified.stamps"  # no .json, which other machines fetch to list the runs


@dataclass(frozen=True)
class Verified:
    """The stamps of what was verified, "" where there was none yet: of results by key, of parts by table and name."""

    results: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_verified(journal: Journal) -> Verified:
    """What was verified when the run last finished; nothing where its folder keeps nothing, or that is damaged."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        content = run_files.unseal((journal.folder / FILE).read_bytes(), sealed=True)
        return Verified(content["results"], content["tables"])
    return Verified()


def record_verified(journal: Journal, verified: Verified) -> None:
    """Keep this for later starts. It only saves time, so errors pass."""
    with suppress(OSError), atomic_write.put_in_place(journal.folder / FILE) as draft:
        draft.write_bytes(run_files.seal(asdict(verified)))
