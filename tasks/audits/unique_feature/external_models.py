"""External models: their files, or tables of their outputs."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.external.model_file import Interface, ModelFile
from tasks.files import File
from tasks.ranges import at_least


@dataclass(frozen=True)
class ExternalModels:
    """Whom the audit asks where it trains nothing.

    Several models of one owner are one panel: their scores are averaged.
    """

    models: tuple[ModelFile, ...] = ()
    """Files of models, which are asked here."""
    outputs: tuple[File, ...] = ()
    """Tables of what models said of the probe images that were written for their owner, one for each model."""
    interface: Interface = Interface()
    """Inputs and outputs of the models."""
    shape: tuple[int, int, int] | None = None
    """Height, width and channels of the images that the models take."""
    classes: int | None = None
    """How many classes there are; a factory has to know."""
    columns: tuple[str, ...] = ()
    """Names of the tables' columns of numbers, where they have names of their own."""
    label: int | None = None
    """Class of the training image that carried the feature, where it is known."""

    def __post_init__(self) -> None:
        if self.there and self.shape is None:
            raise ValueError("shape is none; it must be height, width and channels of the images that the models take")
        if self.shape is not None and (min(self.shape[:2]) < 1 or self.shape[2] not in (1, 3)):
            raise ValueError(f"shape is {self.shape}; it must be height, width and 1 or 3 channels")
        if self.label is not None:
            at_least(self, {"label": 0})
        if self.models and self.outputs:
            raise ValueError("models and outputs are both given; they must be audited apart, as one owner's panel each")

    @property
    def there(self) -> bool:
        """Whether models that are trained elsewhere are asked; with a shape alone it is to be written for them."""
        return bool(self.models or self.outputs or self.shape)
