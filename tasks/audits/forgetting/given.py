"""Models that somebody else trained, and are to have forgotten: their files, or the tables of what they said."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.external.model_file import Interface, ModelFile
from tasks.files import File


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

    def __post_init__(self) -> None:
        if self.columns and not self.outputs:
            raise ValueError(f"columns is {', '.join(self.columns)}; there are no outputs with such columns: give them")
        if self.interface != Interface() and not self.there:
            raise ValueError("interface says how to ask a model, and there is none; give models or outputs")

    @property
    def there(self) -> bool:
        """Whether models that are trained elsewhere are audited."""
        return bool(self.models or self.outputs)
