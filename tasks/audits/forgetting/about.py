"""The config of the summary: what it needs besides the tables."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.audits.forgetting.target import NamedTarget


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run: which targets there should be, and the paper's table that it repeats."""

    targets: tuple[NamedTarget, ...]
    published: str = ""
