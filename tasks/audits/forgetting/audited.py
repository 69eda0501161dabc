"""Whom the audit judges: a target's name, and what is known of its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["training", "model", "outputs"]


@dataclass(frozen=True)
class Audited:
    """A target: trained here on these shares of the sets, or given as a model or as a table of outputs."""

    name: str
    source: Source
    query: float | None = None
    calibration: float | None = None
    outside: float | None = None

    @property
    def remembers(self) -> bool | None:
        """Whether any of the query set was trained on; None where nobody here knows."""
        return None if self.query is None else self.query > 0
