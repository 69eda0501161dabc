"""Synthetic support tickets, each with a random UUID: embedded texts that contain random identifiers."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images
from tasks.datasets.source import Source, digest_of

RULE = "tickets 1"
COUNT = 300
SEED = 20261126
THINGS = ("printer", "scanner", "screen", "keyboard", "router", "phone", "camera", "badge reader")
FAULTS = ("does not start", "is slow", "shows an error", "lost its settings", "cannot be reached", "makes a noise")
PLACES = ("the office", "room 12", "the hall", "the archive", "the laboratory", "reception")


@dataclass(frozen=True)
class Tickets:
    """The ticket texts, which are the same in every run."""

    def digest(self) -> str:
        return digest_of(RULE, [text.encode() for text in self.texts()])

    def images(self) -> Images:
        raise DatasetError("data set 'tickets' contains texts, not images")

    def texts(self) -> tuple[str, ...]:
        # Python's generator yields the same numbers in every version (docs of `random`, Reproducibility).
        chance = random.Random(SEED)
        return tuple(
            f"The {chance.choice(THINGS)} in {chance.choice(PLACES)} {chance.choice(FAULTS)}. "
            f"Ticket {uuid.UUID(int=chance.getrandbits(128), version=4)}."
            for _ in range(COUNT)
        )


def source() -> Source:
    return Source(RULE, (), Tickets)
