"""External models: their files, or tables of their outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath

from tasks.datasets.dataset import Dataset
from tasks.external.blinding import check_secret, withheld
from tasks.external.model_file import Interface, ModelFile
from tasks.files import WITHHELD, File, shorten_names
from tasks.ranges import check_minimums, share

LEAST_REFERENCES = 2
NAMED = 4  # models that are called by name


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
    references: tuple[ModelFile, ...] = ()
    """Files of at least two models of the same kind that never saw the feature. Beside them the models' slopes are
    ranked, on images of `label` in the probe set."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld})
    """Text that nobody can guess. With the run's seed it says in which order an owner gets the pictures; without it the
    seed alone does."""
    labelled: Dataset | None = None
    """Data set of which 100 test images, drawn at random, are mixed in among the pictures for an owner; its classes are
    numbered as the model's."""
    accuracy: float | None = None
    """Accuracy that the owner states on images like those of `labelled`; a table that names fewer labels is not
    judged."""

    def __post_init__(self) -> None:
        if self.there and self.shape is None:
            raise ValueError("shape is none; it must be height, width and channels of the images that the models take")
        if self.shape is not None and (min(self.shape[:2]) < 1 or self.shape[2] not in (1, 3)):
            raise ValueError(f"shape is {self.shape}; it must be height, width and 1 or 3 channels")
        if self.label is not None:
            check_minimums(self, {"label": 0})
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
        if self.references:
            self._check_references()

    def _check_references(self) -> None:
        if not self.there:
            raise ValueError("references are given, but no models; models, outputs or a shape must be given, too")
        if len(self.references) < LEAST_REFERENCES:
            raise ValueError(
                f"references has {len(self.references)} model; it must have at least {LEAST_REFERENCES}, of which one "
                "alone would pass its own chance on to the model asked"
            )
        twice = next((one for one in self.references if (*self.models, *self.references).count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"references has {twice.name}, which is given twice; each must be a model of its own")
        if self.label is None:
            raise ValueError(
                "references are given and label is none; it must be the class of the image that carried the feature"
            )

    @property
    def describe(self) -> str:
        """What the models are called, by their files: the first of them, and how many more."""
        paths = *(model.path for model in self.models), *(table.path for table in self.outputs)
        names = shorten_names([PurePath(path).name for path in paths])
        more = len(names) - NAMED
        return f"{', '.join(names[:NAMED])} and {more} more" if more > 0 else ", ".join(names)

    @property
    def there(self) -> bool:
        """Whether models that are trained elsewhere are asked; with a shape alone it is to be written for them."""
        return bool(self.models or self.outputs or self.shape)

    @property
    def hands_out(self) -> bool:
        """Whether an owner keeps the model, and gets pictures."""
        return self.there and not self.models
