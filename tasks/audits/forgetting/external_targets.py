"""External targets: their files, or tables of their outputs on the query set."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tasks.audits.forgetting.probe_set import ProbeSet, handout_order, load_probes
from tasks.external.blinding import HandedOut
from tasks.external.confidences import Confidences, Floats, read
from tasks.external.model_file import Interface, ModelFile
from tasks.files import File, FileError

if TYPE_CHECKING:
    from tasks.datasets.images import Labels


@dataclass(frozen=True)
class ExternalTargets:
    """Whom the audit asks where it trains no target. Each is a target of its own."""

    models: tuple[ModelFile, ...] = ()
    """Files of models, which are asked here about the probes."""
    outputs: tuple[File, ...] = ()
    """Tables of what models said of the probes, one for each model."""
    interface: Interface = Interface()
    """Inputs and outputs of the models."""
    columns: tuple[str, ...] = ()
    """Names of the tables' columns of numbers, where they have names of their own."""

    def __post_init__(self) -> None:
        if self.columns and not self.outputs:
            raise ValueError(f"columns is {', '.join(self.columns)}; there are no outputs with such columns: give them")
        if self.interface != Interface() and not self.is_given:
            raise ValueError("interface says how to ask a model, and there is none; give models or outputs")

    @property
    def is_given(self) -> bool:
        """Whether models that are trained elsewhere are audited."""
        return bool(self.models or self.outputs)


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


def check_tables(external: ExternalTargets, probes: ProbeSet) -> None:
    """ValueError where a table of outputs cannot be used: before anything is trained to be compared with it.

    One that has gone since it was pinned passes, since what is stored of the run can still be looked at.
    """
    if not external.outputs:
        return
    labels, handed = load_probes(probes).labels, handout_order(probes)
    for outputs in external.outputs:
        with suppress(FileError):
            table_answers(outputs, labels, handed, external.columns, external.interface)
