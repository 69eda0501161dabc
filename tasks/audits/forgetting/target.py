"""Targets: their training, their names, and their answers in tables of outputs."""

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

SETS = {"calibration": "D_C", "query": "D_Q", "outside": "out of domain"}  # field -> name that is printed and accepted
UNLEARNT = re.compile(rf"(?P<shares>.*?)\s*-\s*(?P<unlearning>{'|'.join(UNLEARNING)})\s*", re.IGNORECASE)
SHARE = re.compile(r"(?P<share>\d*\.?\d+(?:e-?\d+)?)?\s*\*?\s*(?P<name>[a-z_][a-z_ ]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Target(Ranged):
    """The training of an audited model, and the method by which it is made to forget, if any.

    Written `D_C`, `D_C+0.1D_Q`, `D_C+D_Q-fine-tuning`, or with the field names, `calibration+0.1query`. The mapping
    form, `{query: 1, calibration: 1, unlearning: {type: fine-tuning, epochs: 5}}`, also accepts settings of the method.
    """

    query: Annotated[float, Share()] = 0.0
    """Share of D_Q in its training data."""
    calibration: Annotated[float, Share()] = 0.0
    """Share of D_C in its training data."""
    outside: Annotated[float, Share()] = 0.0
    """Share of the data of another domain in its training data."""
    unlearning: Retraining | Method | None = None
    """Method that makes it forget its share of D_Q; retraining trains from scratch on the rest alone."""

    def conflicts(self) -> Iterator[str]:
        if self.unlearning is not None and not (self.query and (self.calibration or self.outside)):
            yield (
                f"unlearning is {self.unlearning.tag}; it needs a share of D_Q to forget and a share of D_C or outside "
                f"to keep: give both, such as D_C+D_Q-{self.unlearning.tag}"
            )
        if not (self.query or self.calibration or self.outside):
            yield "a target is trained on nothing; one of query, calibration and outside must be above 0"

    @classmethod
    def parse(cls, text: str) -> Target:
        shares: dict[str, float] = {}
        fields = {name.lower(): field for field, shares_text in SETS.items() for name in (field, shares_text)}
        unlearnt = UNLEARNT.fullmatch(text)
        shares_text = unlearnt["shares"] if unlearnt else text
        for term in shares_text.split("+"):
            match = SHARE.fullmatch(term.strip())
            field = fields.get(match["name"].strip().lower()) if match else None
            if match is None or field is None:
                raise ValueError(
                    f"{term.strip()!r} is no share of a set; write D_Q, D_C or outside, or 0.1D_Q for a tenth, joined "
                    "by +, such as D_C+0.1D_Q, and an unlearning method at the end, such as D_C+D_Q-fine-tuning "
                    f"({', '.join(UNLEARNING)})"
                )
            if field in shares:
                raise ValueError(f"{SETS[field]} occurs twice; give its share once")
            shares[field] = float(match["share"] or 1)
        methods = []
        for name in UNLEARNING:
            if unlearnt and name == unlearnt["unlearning"].lower():
                methods.append(UNLEARNING[name]())
        return cls(**shares, unlearning=methods[0] if methods else None)

    def __str__(self) -> str:
        shares = ((name, getattr(self, field)) for field, name in SETS.items())
        sets = " + ".join(f"{share:.4g} {name}" if share < 1 else name for name, share in shares if share)
        return f"{sets} - {self.unlearning.tag}" if self.unlearning else sets

    def describe(self) -> str:
        """Describe training data and unlearning without symbols, as a short name for page one of the certificate."""
        parts = [f"{_describe_share(self.query)} of the data"]
        if self.calibration < 1:
            parts.append(f"{_describe_share(self.calibration)} of the comparison data")
        if self.outside:
            parts.append("data of another domain")
        name = ", ".join(parts)
        if self.unlearning:
            return f"{name}, then {self.unlearning.tag}"
        return name

    @property
    def unlearning_name(self) -> UnlearningName | None:
        """Name of the unlearning method, or None if there is none."""
        return self.unlearning.tag if self.unlearning else None

    @property
    def remembers(self) -> bool | None:
        """Whether the target was trained on any of the query set, which the audit should detect.

        None after unlearning other than retraining, since this is the open question.
        """
        return _remembers_query(self.query, self.unlearning_name)


@dataclass(frozen=True)
class NamedTarget:
    """A target with its name: trained here on these shares of the sets, or given as a model or a table of outputs."""

    name: str
    source: Source
    query: float | None = None
    calibration: float | None = None
    outside: float | None = None
    unlearning: UnlearningName | None = None

    @property
    def remembers(self) -> bool | None:
        """Whether the target was trained on any of the query set. None if unknown, or after unlearning."""
        if self.query is None:
            return None
        return _remembers_query(self.query, self.unlearning)

    @property
    def held(self) -> float | None:
        """Share of the query set that the target holds. None if unknown, or after unlearning."""
        if self.remembers is None:
            return None
        if self.remembers:
            return self.query
        return 0.0

    @property
    def is_beside_all(self) -> bool:
        """Whether the target was trained on exactly all of the calibration set and a known share of the query set.

        False after unlearning.
        """
        return self.calibration == 1 and self.query is not None and not self.outside and self.unlearning is None


def _describe_share(share: float) -> str:
    if share == 0:
        return "none"
    return "all" if share == 1 else f"{100 * share:.4g} %"


def _remembers_query(query: float, unlearning: UnlearningName | None) -> bool | None:
    """Return whether a model trained on this share of the query set holds any of it. None if this is open."""
    if unlearning is None or not query:
        return query > 0
    return False if unlearning == "retraining" else None


@dataclass(frozen=True, eq=False)
class Answers:
    """A model's answers on each image: confidences and, if known, whether the true class is the most probable.

    `repeat_confidences` is the confidence on the second copy of an image, or NaN if there is none.
    """

    confidences: Confidences
    repeat_confidences: Floats


def table_answers(
    outputs: File, labels: Labels, order: HandedOut, columns: tuple[str, ...], interface: Interface
) -> Answers:
    """Read the answers in a table of outputs. Raises ValueError if an image has no answer."""
    repeats = order.repeats
    twice = list(repeats)
    confidences = read(
        outputs, [*order.ids, *repeats.values()], np.concatenate([labels, labels[twice]]), columns, interface.gives
    )
    repeat_confidences = np.full(len(labels), np.nan)
    repeat_confidences[twice] = confidences.values[len(labels) :]
    if confidences.right is None:
        right = None
    else:
        right = confidences.right[: len(labels)]
    return Answers(Confidences(confidences.values[: len(labels)], confidences.resolution, right), repeat_confidences)


def check_tables(outputs: tuple[File, ...], columns: tuple[str, ...], interface: Interface, probes: ProbeSet) -> None:
    """Raise ValueError if a table of outputs is unusable, before anything is trained.

    A table that has disappeared since it was pinned passes, since stored results can still be read.
    """
    labels = load_probes(probes).labels
    order = handout_order(probes)
    for table in outputs:
        with suppress(FileError):
            table_answers(table, labels, order, columns, interface)
