"""Targets: models trained on given shares of the data, or external ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tasks.ranges import share

Source = Literal["training", "model", "outputs"]

SETS = {"calibration": "D_C", "query": "D_Q", "outside": "out of domain"}  # field -> as it is told and may be written
SHARE = re.compile(r"(?P<share>\d*\.?\d+(?:e-?\d+)?)?\s*\*?\s*(?P<name>[a-z_][a-z_ ]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """What an audited model is trained on: shares of the query set, of the calibration set and of one out of domain.

    Written `D_C`, `D_C+0.1D_Q`, or with the fields' names `calibration+0.1query`.
    """

    query: float = 0.0
    calibration: float = 0.0
    outside: float = 0.0

    def __post_init__(self) -> None:
        share(self, "query", "calibration", "outside")
        if not (self.query or self.calibration or self.outside):
            raise ValueError("a target is trained on nothing; one of query, calibration and outside must be above 0")

    @classmethod
    def parse(cls, text: str) -> Target:
        shares: dict[str, float] = {}
        fields = {name.lower(): field for field, written in SETS.items() for name in (field, written)}
        for term in text.split("+"):
            match = SHARE.fullmatch(term.strip())
            field = fields.get(match["name"].strip().lower()) if match else None
            if match is None or field is None:
                raise ValueError(
                    f"{term.strip()!r} is no share of a set; write D_Q, D_C or outside, or 0.1D_Q for a tenth, with + "
                    "between them, as D_C+0.1D_Q"
                )
            if field in shares:
                raise ValueError(f"{SETS[field]} is there twice; give its share once")
            shares[field] = float(match["share"] or 1)
        return cls(**shares)

    def __str__(self) -> str:
        shares = ((name, getattr(self, field)) for field, name in SETS.items())
        return " + ".join(f"{share:.4g} {name}" if share < 1 else name for name, share in shares if share)

    @property
    def remembers(self) -> bool:
        """Whether the query set, or some of it, is trained on: what the audit is to find."""
        return self.query > 0


@dataclass(frozen=True)
class NamedTarget:
    """A target by its name: trained here on these shares of the sets, or given as a model or as a table of outputs."""

    name: str
    source: Source
    query: float | None = None
    calibration: float | None = None
    outside: float | None = None

    @property
    def remembers(self) -> bool | None:
        """Whether any of the query set was trained on; None where the training is not known."""
        return None if self.query is None else self.query > 0

    @property
    def is_beside_all(self) -> bool:
        """Whether it was trained on all of the calibration set and a known share of the query set, and nothing else."""
        return self.calibration == 1 and self.query is not None and not self.outside
