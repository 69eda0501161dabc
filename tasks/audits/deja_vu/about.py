"""The config of the summary: what it needs besides the tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run.

    The score that decides is that of the `confident` percent most confident pictures, at `layer`, of `k` neighbours,
    after `epoch`. `cell` is what of the paper the run repeats; empty for nothing. `given` says
    whether somebody else's encoder is audited.
    """

    confident: int
    layer: int
    k: int
    epoch: int
    cell: str = ""
    given: bool = False
