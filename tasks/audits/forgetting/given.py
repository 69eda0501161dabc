"""Models that somebody else trained, and are to have forgotten: their files, or the tables of what they said."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.files import File
from tasks.models.given import Interface, ModelFile


@dataclass(frozen=True)
class Given:
    """Whom the audit asks where it trains no target. Each is a target of its own.

    `models` are asked here about the query set; `outputs` hold what models said of it, one table for each model, whose
    columns of numbers are called `columns` where they have names of their own.
    """

    models: tuple[ModelFile, ...] = ()
    outputs: tuple[File, ...] = ()
    interface: Interface = Interface()
    columns: tuple[str, ...] = ()

    @property
    def there(self) -> bool:
        """Whether models that are trained elsewhere are audited."""
        return bool(self.models or self.outputs)
