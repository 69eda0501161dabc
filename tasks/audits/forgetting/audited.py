"""Audited models: trained here on known shares of the data, or given as files or tables of outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import ClassVar

from tasks.audits.forgetting.target import NamedTarget, Target
from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import Ranged
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.external.model_file import Interface, ModelFile
from tasks.worker.files import File

# Columns of the paper's tables: the query set (D*), shares of the calibration set, and all of the calibration set with
# shares of the query set.
SHARES = (0.1, 0.5, 1.0)
PUBLISHED = (
    Target(query=1.0),
    *(Target(calibration=share) for share in (0.5, 0.75, 1.0)),
    *(Target(query=share, calibration=1.0) for share in SHARES),
)


@dataclass(frozen=True)
class Trained(Ranged):
    """Models trained here on known shares of the data, some of which are then made to forget D_Q."""

    tag: ClassVar[str] = "trained"

    targets: tuple[Target, ...] = (*PUBLISHED, Target(outside=1.0))
    """Training data of each target, and the method that makes it forget D_Q, if any."""
    outside: Part | None = Part(Dataset("cifar10#28x28#grey"))
    """Data of another domain; none if no target is trained on them."""

    def conflicts(self) -> Iterator[str]:
        yield from _repeated_values("targets", self.targets)
        if not self.targets:
            yield "targets is empty; there must be at least one, or a given model or table of outputs"
        if self.outside is None and self._has_outside_targets:
            yield "outside is none; it must be a data set for targets that are trained on it"

    @property
    def _has_outside_targets(self) -> bool:
        return any(target.outside for target in self.targets)

    @property
    def outside_part(self) -> Part | None:
        """The data of another domain, or None if no target is trained on them."""
        return self.outside if self._has_outside_targets else None


@dataclass(frozen=True)
class ReturnedTables(Ranged):
    """Tables of model outputs on the images that `engram probes` wrote."""

    outputs: tuple[File, ...] = field(metadata={OUTSIDE_COMMITMENT: True})
    """The tables, one for each model."""
    columns: tuple[str, ...] = ()
    """Names of the numeric columns in the tables, if they differ from the usual ones."""
    bound_by: str = field(default="", metadata={OUTSIDE_COMMITMENT: True, ANSWER_ONLY: True})
    """Evidence that the tables come from the model in use, such as the SHA-256 of its file before the images were sent,
    and spot checks; the verdict reports it. Without it, a table clears a model only if the audit would detect an owner
    who recognises the images."""


@dataclass(frozen=True)
class Given(Ranged):
    """Third-party models, each a target: files that are evaluated here, and tables of outputs."""

    tag: ClassVar[str] = "given"

    models: tuple[ModelFile, ...] = field(default=(), metadata={OUTSIDE_COMMITMENT: True})
    """Model files."""
    tables: ReturnedTables | None = None
    """Tables of outputs; none: no model is known only by its outputs."""
    interface: Interface = Interface()
    """Inputs and outputs of the models."""

    @property
    def outputs(self) -> tuple[File, ...]:
        """The tables of outputs."""
        return () if self.tables is None else self.tables.outputs

    @property
    def bound_by(self) -> str:
        """Evidence that binds the tables to the model in use. Empty if there is none."""
        return "" if self.tables is None else self.tables.bound_by


Audited = Trained | Given


def count_targets(audited: Audited) -> int:
    """Count the models that are judged together, at least 1."""
    match audited:
        case Trained():
            return len(audited.targets)
        case Given():
            return max(1, len(audited.models) + len(audited.outputs))


def named_targets(audited: Audited) -> tuple[NamedTarget, ...]:
    """Name the targets in their order: targets trained here by their data, given ones by their files without folders.

    Names identify targets in tables, so they are unique: repeated names are numbered from the second on.
    """
    by_name: dict[str, NamedTarget] = {}
    for target in _unnumbered_targets(audited):
        names = itertools.chain((target.name,), (f"{target.name} ({number})" for number in itertools.count(2)))
        name = next(name for name in names if name not in by_name)
        by_name[name] = replace(target, name=name)
    return tuple(by_name.values())


def _unnumbered_targets(audited: Audited) -> Iterator[NamedTarget]:
    match audited:
        case Trained():
            for target in audited.targets:
                shares = target.query, target.calibration, target.outside
                yield NamedTarget(str(target), "training", *shares, target.unlearning_name)
        case Given():
            for model in audited.models:
                yield NamedTarget(PurePath(model.path).name, "model")
            for table in audited.outputs:
                yield NamedTarget(PurePath(table.path).name, "outputs")


def _repeated_values(name: str, values: tuple[object, ...]) -> Iterator[str]:
    """Yield a conflict if the field contains a value twice."""
    for value in values:
        if values.count(value) > 1:
            yield f"{name} has {value} twice; each must be there once"
            return
