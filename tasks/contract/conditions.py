"""Conditions of an answer: what must be true for the answer to hold, and whether the run shows that it is.

An audit lists its conditions (`tasks.contract.answering.Answering`); the verdict and the certificate contain those that
matter for the answer that was given. A part of a configuration may add conditions to the answers of every audit, as its
attribute `assumptions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["confirmed", "not met", "not yet confirmed", "cannot be checked"]


@dataclass(frozen=True)
class Condition:
    """A condition of an answer.

    clause: What must be true, without a capital letter and a full stop.
    status: Whether the run shows that it is true.
    remark: A sentence on how this is known, or who must confirm it.
    answers: The answers that depend on the condition. Empty if every conclusion does.
    """

    clause: str
    status: Status
    remark: str
    answers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.clause}. {self.remark}"


def require(clause: str, confirmed_by: str, *answers: str) -> Condition:
    """Return a condition that the audit cannot check, and who must confirm it."""
    return Condition(
        clause, "cannot be checked", f"The audit cannot check this; {confirmed_by} must confirm it.", answers
    )


def ensure(clause: str, *answers: str) -> Condition:
    """Return a condition that the audit's own procedure meets."""
    return Condition(clause, "confirmed", "The audit did this itself, so it holds.", answers)


def confirm(clause: str, is_met: bool | None = True, *answers: str) -> Condition:
    """Return a condition that the audit checked, and whether it is met. `is_met` is None if a result is missing."""
    if is_met is None:
        return Condition(clause, "not yet confirmed", "The audit has not checked this yet.", answers)
    if is_met:
        return Condition(clause, "confirmed", "The audit checked this: yes.", answers)
    return Condition(clause, "not met", "The audit checked this: no.", answers)


def find_assumptions(config: Any) -> Iterator[Condition]:
    """Yield the conditions that parts of a configuration add, such as those of a user's training program."""
    yield from getattr(config, "assumptions", ())
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        for field in dataclasses.fields(config):
            yield from find_assumptions(getattr(config, field.name))
