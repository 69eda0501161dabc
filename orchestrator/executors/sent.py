"""Calls sent to a cluster, and which of them run, inferred from their order: a cluster does not say."""

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
    begun: bool = False  # it has, as is known
    ending: float | None = None  # when it was first asked to end
    why: str = ""  # it is ended


def placed(sent: Iterable[Sent], slots: int, gpus: float, now: float) -> list[tuple[Call, float]]:
    """The calls that slots exist for, in the order they were sent, each with the seconds that it has had its slot.

    Where others use the cluster too, a call may begin later than that.
    """
    found = []
    for each in sent:
        if each.call.gpus and gpus > 1e-9:
            gpus -= each.call.gpus
        elif not each.call.gpus and slots:
            slots -= 1
        else:
            continue
        each.since = now if each.since is None else each.since
        found.append((each.call, now - each.since))
    return found
