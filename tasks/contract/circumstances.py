"""What an answer depends on beside a run's configuration and summary, as the run's folder records it."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.contract.commitment import Binding
from tasks.contract.looks import FIRST, Look


@dataclass(frozen=True)
class Circumstances:
    """What the commitment of the run holds, and which look it is at its question."""

    binding: Binding = ""
    look: Look = FIRST


USUAL = Circumstances()
