"""What an answer depends on besides the run's configuration and summary, as recorded in the run's folder."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.contract.commitment import Binding
from tasks.contract.looks import FIRST, Look


@dataclass(frozen=True)
class Circumstances:
    """What the run's commitment covers, and which look at the question the run is."""

    binding: Binding = ""
    look: Look = FIRST


USUAL = Circumstances()
