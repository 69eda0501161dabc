"""The inputs of an answer other than a run's configuration and summary, as the run's folder records them."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.contract.commitment import Binding
from tasks.contract.looks import FIRST, Look


@dataclass(frozen=True)
class Circumstances:
    """The content of the run's commitment, and the run's look at its question."""

    binding: Binding = ""
    look: Look = FIRST


USUAL = Circumstances()
