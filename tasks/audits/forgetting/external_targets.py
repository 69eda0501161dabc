"""External targets: their files, or tables of their outputs on the query set."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.datasets.catalog import load
from tasks.datasets.mixtures import Part
from tasks.external.confidences import Confidences, read
from tasks.external.model_file import Interface, ModelFile
from tasks.files import File, FileError

if TYPE_CHECKING:
    from tasks.datasets.images import Labels

SET = "query"  # the name of the pictures that a model's owner is given


@dataclass(frozen=True)
class ExternalTargets:
    """Whom the audit asks where it trains no target. Each is a target of its own.

    `models` are asked here about the query set; `outputs` hold what models said of it, one table for each model, whose
    columns of numbers are called `columns` where they have names of their own.
    """

    models: tuple[ModelFile, ...] = ()
    outputs: tuple[File, ...] = ()
    interface: Interface = Interface()
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.columns and not self.outputs:
            raise ValueError(f"columns is {', '.join(self.columns)}; there are no outputs with such columns: give them")
        if self.interface != Interface() and not self.there:
            raise ValueError("interface says how to ask a model, and there is none; give models or outputs")

    @property
    def there(self) -> bool:
        """Whether models that are trained elsewhere are audited."""
        return bool(self.models or self.outputs)


def table_confidences(outputs: File, labels: Labels, columns: tuple[str, ...], interface: Interface) -> Confidences:
    """The confidences in a table of outputs; ValueError where it does not give them for every image."""
    from tasks.external.handout import image_of

    ids = [image_of(SET, row) for row in range(len(labels))]
    return read(outputs, ids, labels, columns, interface.gives)


def check_tables(external: ExternalTargets, query: Part) -> None:
    """ValueError where a table of outputs cannot be used: before anything is trained to be compared with it.

    One that has gone since it was pinned passes, since what is stored of the run can still be looked at.
    """
    for outputs in external.outputs:
        data = load(query.data)
        with suppress(FileError):
            table_confidences(outputs, data.train_labels[query.rows(data)], external.columns, external.interface)
