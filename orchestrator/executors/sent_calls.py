"""Calls sent to a cluster, and which of them run, inferred from their order, since a cluster does not report it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.executors.calls import Call


@dataclass
class Sent:
    """A submitted call that has not come back. Times are seconds of one monotonic clock."""

    call: Call
    since: float | None = None  # when there was a place for it to run in
    asked: float | None = None  # when it was asked whether it has begun
    begun: bool = False  # whether it is known to have begun
    taken: bool = False  # whether it was taken back before it began
    ending: float | None = None  # when it was first asked to end
    why: str = ""  # the reason for ending it


def calls_with_slots(sent: Iterable[Sent], slots: int, gpus: float, now: float) -> list[tuple[Call, float]]:
    """The calls that have a slot, in the order they were sent, each with the seconds since it got the slot.

    On a cluster that others use too, a call may begin later than that.
    """
    calls = []
    for entry in sent:
        if entry.call.gpus and gpus > 1e-9:
            gpus -= entry.call.gpus
        elif not entry.call.gpus and slots:
            slots -= 1
        else:
            continue
        entry.since = now if entry.since is None else entry.since
        calls.append((entry.call, now - entry.since))
    return calls
