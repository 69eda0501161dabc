"""The privacy of a training, as a configuration field with one type per case.

A private training is a single job, because its noise is drawn for all epochs together. Only other trainings have a
setting for the length of links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.contract.ranges import AtLeast, Ranged
from tasks.training.recipe import Privacy


@dataclass(frozen=True)
class WithoutPrivacy(Ranged):
    """Training without differential privacy."""

    tag: ClassVar[str] = "none"


@dataclass(frozen=True)
class LinkedTraining(WithoutPrivacy):
    """Training without differential privacy, which can be divided into links."""

    link: Annotated[int, AtLeast(0)] = 0
    """Ours: epochs per link of a training's chain of jobs; an interrupted training continues from the last link. 0
    plans a single job."""


@dataclass(frozen=True)
class DifferentialPrivacy(Privacy):
    """Training with differential privacy (DP-SGD)."""

    tag: ClassVar[str] = "dp"


def guarantee_of(privacy: WithoutPrivacy | DifferentialPrivacy) -> Privacy | None:
    """Return the privacy guarantee that a training's job uses, or None without one."""
    if isinstance(privacy, WithoutPrivacy):
        return None
    return Privacy(privacy.epsilon, privacy.delta, privacy.clip)


def link_of(privacy: WithoutPrivacy | DifferentialPrivacy) -> int:
    """Return the number of epochs per link of a training, or 0 if it is a single job."""
    return privacy.link if isinstance(privacy, LinkedTraining) else 0
