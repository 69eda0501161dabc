"""What the summary is told of a run, which the tables do not say."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.audits.forgetting.target import NamedTarget


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run: which targets there should be, and the paper's table that it repeats."""

    targets: tuple[NamedTarget, ...]
    published: str = ""
