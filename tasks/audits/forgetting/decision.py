"""Whether a target has forgotten the query set, from the interval of its rho.

Forgotten where the interval lies above 1 - margin, not forgotten where it lies below, else undecided. The published
rule, rho >= 1, is a coin flip for a model that never saw the query set: rho centres on 1 then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Forgot = Literal["forgotten", "not forgotten", "undecided"]
Right = Literal["right", "undecided", "wrong"]


@dataclass(frozen=True)
class Decision:
    """The answer, and in one clause why it is undecided; None where it is not."""

    answer: Forgot
    reason: str | None = None


def decided(
    rho: float | None, low: float | None, high: float | None, separation: float | None, margin: float
) -> Decision:
    """The decision on a target from its rho, None where undefined, and the interval, None where there is none.

    `separation` is the smallest KS between a query and a calibration model less the largest between two query models;
    None where there are no such pairs. Unless it is above 0, D_C's models say of D_Q what its own models say, and no
    target can be told to have forgotten it.
    """
    if rho is None:
        return Decision("undecided", "no calibration model says anything else of the query set than query models do")
    if separation is not None and separation <= 0:
        return Decision(
            "undecided",
            f"a calibration model lies closer to a query model than query models may lie to one another (by KS "
            f"{-separation:.3g}), so that the audit has no power",
        )
    if low is None or high is None:
        return Decision("undecided", "too few models, or images, to see how they vary")
    if low > 1 - margin:
        return Decision("forgotten")
    if high < 1 - margin:
        return Decision("not forgotten")
    return Decision("undecided", f"the interval includes {1 - margin:.4g}")


def right(answer: Forgot, remembers: bool | None) -> Right | None:
    """Whether the answer is right of a target that was trained on the query set or not; None where not known."""
    if remembers is None:
        return None
    if answer == "undecided":
        return "undecided"
    return "right" if (answer == "not forgotten") == remembers else "wrong"
