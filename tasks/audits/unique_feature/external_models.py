"""External models: their files, or tables of their outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tasks.datasets.dataset import Dataset
from tasks.external.blinding import check_secret, withheld
from tasks.external.model_file import Interface, ModelFile
from tasks.files import WITHHELD, File
from tasks.ranges import at_least, share


@dataclass(frozen=True)
class ExternalModels:
    """Whom the audit asks where it trains nothing.

    `models` are asked here; `outputs` hold what models said of the probe images that were written for their owner, one
    table for each model, whose columns of numbers are called `columns` where they have names of their own. Images have
    `shape` (height, width, channels). `classes` is how many there are (a factory has to know). `label` is the class of
    the training image that carried the feature, where it is known. Several models of one owner are one panel: their
    scores are averaged.

    The pictures for an owner are in an order that `secret`, text that nobody can guess, and the run's seed say
    together; the seed alone where there is none. The first 100 test images of `labelled`, whose classes are numbered as
    the model's, are mixed in, and `accuracy` is what the owner states of such images: a table that names fewer of their
    labels is not judged.
    """

    models: tuple[ModelFile, ...] = ()
    outputs: tuple[File, ...] = ()
    interface: Interface = Interface()
    shape: tuple[int, int, int] | None = None
    classes: int | None = None
    columns: tuple[str, ...] = ()
    label: int | None = None
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld})
    labelled: Dataset | None = None
    accuracy: float | None = None

    def __post_init__(self) -> None:
        if self.there and self.shape is None:
            raise ValueError("shape is none; it must be height, width and channels of the images that the models take")
        if self.shape is not None and (min(self.shape[:2]) < 1 or self.shape[2] not in (1, 3)):
            raise ValueError(f"shape is {self.shape}; it must be height, width and 1 or 3 channels")
        if self.label is not None:
            at_least(self, {"label": 0})
        if self.models and self.outputs:
            raise ValueError("models and outputs are both given; they must be audited apart, as one owner's panel each")
        check_secret(self.secret)
        if self.models and (self.secret or self.labelled is not None):
            name = "secret" if self.secret else "labelled"
            raise ValueError(f"{name} is given with models; it must be left out, since these are handed no pictures")
        if self.accuracy is not None:
            share(self, "accuracy")
            if self.labelled is None:
                raise ValueError("accuracy is given; labelled must name a data set on which it can be checked")

    @property
    def there(self) -> bool:
        """Whether models that are trained elsewhere are asked; with a shape alone it is to be written for them."""
        return bool(self.models or self.outputs or self.shape)

    @property
    def hands_out(self) -> bool:
        """Whether an owner keeps the model, and gets pictures."""
        return self.there and not self.models
