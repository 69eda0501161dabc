"""Targets: models trained on given shares of the data, or external ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tasks.ranges import one_of, share
from tasks.training.unlearning import UNLEARNING, UnlearningName

Source = Literal["training", "model", "outputs"]

SETS = {"calibration": "D_C", "query": "D_Q", "outside": "out of domain"}  # field -> as it is told and may be written
UNLEARNT = re.compile(rf"(?P<shares>.*?)\s*-\s*(?P<unlearning>{'|'.join(UNLEARNING)})\s*", re.IGNORECASE)
SHARE = re.compile(r"(?P<share>\d*\.?\d+(?:e-?\d+)?)?\s*\*?\s*(?P<name>[a-z_][a-z_ ]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """What an audited model is trained on, and how it is made to forget, if it is.

    Written `D_C`, `D_C+0.1D_Q`, `D_C+D_Q-fine-tuning`, or with the fields' names `calibration+0.1query`.
    """

    query: float = 0.0
    """Share of D_Q that it is trained on."""
    calibration: float = 0.0
    """Share of D_C that it is trained on."""
    outside: float = 0.0
    """Share of the data of another domain that it is trained on."""
    unlearning: UnlearningName | None = None
    """The method by which it is made to forget its share of D_Q; retraining trains on the rest alone, from scratch."""

    def __post_init__(self) -> None:
        share(self, "query", "calibration", "outside")
        if self.unlearning is not None:
            one_of(self, "unlearning", UnlearningName)
            if not self.query or not (self.calibration or self.outside):
                raise ValueError(
                    f"unlearning is {self.unlearning}; it forgets a share of D_Q and keeps one of D_C or outside: give "
                    "both, as D_C+D_Q-" + self.unlearning
                )
        if not (self.query or self.calibration or self.outside):
            raise ValueError("a target is trained on nothing; one of query, calibration and outside must be above 0")

    @classmethod
    def parse(cls, text: str) -> Target:
        shares: dict[str, float] = {}
        fields = {name.lower(): field for field, written in SETS.items() for name in (field, written)}
        unlearnt = UNLEARNT.fullmatch(text)
        written = unlearnt["shares"] if unlearnt else text
        for term in written.split("+"):
            match = SHARE.fullmatch(term.strip())
            field = fields.get(match["name"].strip().lower()) if match else None
            if match is None or field is None:
                raise ValueError(
                    f"{term.strip()!r} is no share of a set; write D_Q, D_C or outside, or 0.1D_Q for a tenth, with + "
                    "between them, as D_C+0.1D_Q, and a method of unlearning after them, as D_C+D_Q-fine-tuning "
                    f"({', '.join(UNLEARNING)})"
                )
            if field in shares:
                raise ValueError(f"{SETS[field]} is there twice; give its share once")
            shares[field] = float(match["share"] or 1)
        method = next((name for name in UNLEARNING if unlearnt and name == unlearnt["unlearning"].lower()), None)
        return cls(**shares, unlearning=method)

    def __str__(self) -> str:
        shares = ((name, getattr(self, field)) for field, name in SETS.items())
        sets = " + ".join(f"{share:.4g} {name}" if share < 1 else name for name, share in shares if share)
        return f"{sets} - {self.unlearning}" if self.unlearning else sets

    def explain(self) -> str:
        """What it was trained on, in words."""
        words = {
            "calibration": "the calibration set",
            "query": "the data set in question",
            "outside": "the data of another domain",
        }
        shares = {what: getattr(self, name) for name, what in words.items() if getattr(self, name)}
        parts = [
            f"on {'the whole of ' if share == 1 else f'{100 * share:.4g} % of '}{what}"
            for what, share in shares.items()
        ]
        trained = f"trained {' and '.join(parts)}"
        if not self.query:
            return f"{trained}; it never saw the data set in question"
        return f"{trained}, then made to forget the latter by {self.unlearning}" if self.unlearning else trained

    @property
    def remembers(self) -> bool | None:
        """Whether the query set, or some of it, is trained on: what the audit is to find.

        None after unlearning other than retraining: whether it is remembered is what is asked.
        """
        return remembers_query(self.query, self.unlearning)


@dataclass(frozen=True)
class NamedTarget:
    """A target by its name: trained here on these shares of the sets, or given as a model or as a table of outputs."""

    name: str
    source: Source
    query: float | None = None
    calibration: float | None = None
    outside: float | None = None
    unlearning: UnlearningName | None = None

    @property
    def remembers(self) -> bool | None:
        """Whether any of the query set was trained on; None where the training is not known, or was to be undone."""
        return None if self.query is None else remembers_query(self.query, self.unlearning)

    @property
    def held(self) -> float | None:
        """The share of the query set that it holds; None where that is not known or open."""
        return None if self.remembers is None else self.query if self.remembers else 0.0

    @property
    def is_beside_all(self) -> bool:
        """Whether it was trained on all of the calibration set and a known share of the query set, and nothing else.

        And was not made to forget any of it.
        """
        return self.calibration == 1 and self.query is not None and not self.outside and self.unlearning is None


def remembers_query(query: float, unlearning: UnlearningName | None) -> bool | None:
    """Whether a model holds some of the query set, of which it trained on this share; None where that is open."""
    if unlearning is None or not query:
        return query > 0
    return False if unlearning == "retraining" else None
