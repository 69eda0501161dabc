"""Targets: what an audited model is trained on, how it is named, and what a table of outputs says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from tasks.audits.forgetting.query_set import ProbeSet, handout_order, load_probes
from tasks.contract.ranges import Ranged, Share
from tasks.external.blinding import HandedOut
from tasks.external.confidences import Confidences, Floats, read
from tasks.external.model_file import Interface
from tasks.training.unlearning_config import UNLEARNING, Method, Retraining, UnlearningName
from tasks.worker.files import File, FileError

if TYPE_CHECKING:
    from tasks.datasets.images import Labels


Source = Literal["training", "model", "outputs"]

SETS = {"calibration": "D_C", "query": "D_Q", "outside": "out of domain"}  # field -> as it is told and may be written
UNLEARNT = re.compile(rf"(?P<shares>.*?)\s*-\s*(?P<unlearning>{'|'.join(UNLEARNING)})\s*", re.IGNORECASE)
SHARE = re.compile(r"(?P<share>\d*\.?\d+(?:e-?\d+)?)?\s*\*?\s*(?P<name>[a-z_][a-z_ ]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Target(Ranged):
    """What an audited model is trained on, and how it is made to forget, if it is.

    Written `D_C`, `D_C+0.1D_Q`, `D_C+D_Q-fine-tuning`, or with the fields' names `calibration+0.1query`. As a mapping,
    `{query: 1, calibration: 1, unlearning: {type: fine-tuning, epochs: 5}}`, it has settings of the method, too.
    """

    query: Annotated[float, Share()] = 0.0
    """Share of D_Q that it is trained on."""
    calibration: Annotated[float, Share()] = 0.0
    """Share of D_C that it is trained on."""
    outside: Annotated[float, Share()] = 0.0
    """Share of the data of another domain that it is trained on."""
    unlearning: Retraining | Method | None = None
    """The method by which it is made to forget its share of D_Q; retraining trains on the rest alone, from scratch."""

    def conflicts(self) -> Iterator[str]:
        if self.unlearning is not None and not (self.query and (self.calibration or self.outside)):
            yield (
                f"unlearning is {self.unlearning.tag}; it forgets a share of D_Q and keeps one of D_C or outside: give "
                f"both, as D_C+D_Q-{self.unlearning.tag}"
            )
        if not (self.query or self.calibration or self.outside):
            yield "a target is trained on nothing; one of query, calibration and outside must be above 0"

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
        methods = [UNLEARNING[name]() for name in UNLEARNING if unlearnt and name == unlearnt["unlearning"].lower()]
        return cls(**shares, unlearning=methods[0] if methods else None)

    def __str__(self) -> str:
        shares = ((name, getattr(self, field)) for field, name in SETS.items())
        sets = " + ".join(f"{share:.4g} {name}" if share < 1 else name for name, share in shares if share)
        return f"{sets} - {self.unlearning.tag}" if self.unlearning else sets

    def describe(self) -> str:
        """Its training data and unlearning without symbols, as a short name for page one of the certificate."""
        parts = [f"{_describe_share(self.query)} of the data"]
        if self.calibration < 1:
            parts.append(f"{_describe_share(self.calibration)} of the comparison data")
        if self.outside:
            parts.append("data of another domain")
        name = ", ".join(parts)
        return f"{name}, then {self.unlearning.tag}" if self.unlearning else name

    @property
    def unlearning_name(self) -> UnlearningName | None:
        """The name of the method by which it is made to forget; None without one."""
        return self.unlearning.tag if self.unlearning else None

    @property
    def remembers(self) -> bool | None:
        """Whether the query set, or some of it, is trained on: what the audit is to find.

        None after unlearning other than retraining: whether it is remembered is what is asked.
        """
        return _remembers_query(self.query, self.unlearning_name)


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
        return None if self.query is None else _remembers_query(self.query, self.unlearning)

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


def _describe_share(share: float) -> str:
    if share == 0:
        return "none"
    return "all" if share == 1 else f"{100 * share:.4g} %"


def _remembers_query(query: float, unlearning: UnlearningName | None) -> bool | None:
    """Whether a model holds some of the query set, of which it trained on this share; None where that is open."""
    if unlearning is None or not query:
        return query > 0
    return False if unlearning == "retraining" else None


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says of each image: its confidences and, where it says that, whether it names the true class.

    `again` is the confidence in the same picture handed out a second time, NaN where it was not, or need not be.
    """

    confidences: Confidences
    again: Floats


def table_answers(
    outputs: File, labels: Labels, handed: HandedOut, columns: tuple[str, ...], interface: Interface
) -> Answers:
    """The answers in a table of outputs; ValueError where it does not give them for every picture."""
    repeats = handed.repeats
    twice = list(repeats)
    said = read(
        outputs, [*handed.ids, *repeats.values()], np.concatenate([labels, labels[twice]]), columns, interface.gives
    )
    again = np.full(len(labels), np.nan)
    again[twice] = said.values[len(labels) :]
    right = None if said.right is None else said.right[: len(labels)]
    return Answers(Confidences(said.values[: len(labels)], said.resolution, right), again)


def check_tables(outputs: tuple[File, ...], columns: tuple[str, ...], interface: Interface, probes: ProbeSet) -> None:
    """Raise ValueError if a table of outputs cannot be used, before anything is trained to be compared with it.

    One that is missing since it was pinned passes, since what is stored of the run can still be looked at.
    """
    labels, handed = load_probes(probes).labels, handout_order(probes)
    for table in outputs:
        with suppress(FileError):
            table_answers(table, labels, handed, columns, interface)
