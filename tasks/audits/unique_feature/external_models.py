"""Models that somebody else trained, which the audit asks instead of training any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated

from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.job import CLASS_NUMBER
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.external.blinding import withheld
from tasks.external.bound_draw import OTHER_PARTY, check_secret
from tasks.external.model_file import Interface, ModelFile
from tasks.worker.files import WITHHELD, File, shorten_names

LEAST_REFERENCES = 2
NAMED = 4  # models that are called by name


@dataclass(frozen=True)
class ExternalModels(Ranged):
    """Whom the audit asks where it trains nothing.

    Several models of one owner are one panel: their scores are averaged.
    """

    models: tuple[ModelFile, ...] = field(default=(), metadata={OUTSIDE_COMMITMENT: True})
    """Files of models, which are asked here."""
    outputs: tuple[File, ...] = field(default=(), metadata={OUTSIDE_COMMITMENT: True})
    """Tables of what models said of the probe images that were written for their owner, one for each model."""
    interface: Interface = Interface()
    """Inputs and outputs of the models."""
    shape: tuple[int, int, int] | None = None
    """Height, width and channels of the images that the models take."""
    classes: int | None = None
    """How many classes there are; a factory has to know."""
    columns: tuple[str, ...] = ()
    """Names of the tables' columns of numbers, where they have names of their own."""
    label: Annotated[int, AtLeast(0)] | None = field(default=None, metadata={CLASS_NUMBER: True})
    """Class of the training image that carried the feature, where it is known."""
    references: tuple[ModelFile, ...] = ()
    """Files of at least two models of the same kind that never saw the feature. Beside them the models' slopes are
    ranked, on images of `label` in the probe set."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Text that nobody can guess. With the run's seed it says in which order an owner gets the pictures; without it the
    seed alone does."""
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Text that the other party named once it had the commitment (`engram probes --commit`): the order, the family and
    a random glyph of seed 0 follow from it, too, so that neither party chooses them."""
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True})
    """Who named the nonce: the model's owner, or a public beacon of a time after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """The commitment that the nonce was named after. It holds the whole configuration except the nonce, the secret and
    what the other party returns; a run with another configuration is refused."""
    labelled: Dataset | None = None
    """Data set of which 100 test images, drawn at random, are mixed in among the pictures for an owner; its classes are
    numbered as the model's."""
    accuracy: Annotated[float, Share()] | None = field(default=None, metadata={OUTSIDE_COMMITMENT: True})
    """Accuracy that the owner states on images like those of `labelled`; a table that names fewer labels is not
    judged."""

    def conflicts(self) -> Iterator[str]:
        if self.there and self.shape is None:
            yield "shape is none; it must be height, width and channels of the images that the models take"
        if self.shape is not None and (min(self.shape[:2]) < 1 or self.shape[2] not in (1, 3)):
            yield f"shape is {self.shape}; it must be height, width and 1 or 3 channels"
        built = next((model for model in (*self.models, *self.references) if model.is_weights), None)
        if built is not None and self.classes is None:
            yield f"classes is none; it must be the number of classes, which {built.name} is built with"
        if self.models and self.outputs:
            yield "models and outputs are both given; they must be audited apart, as one owner's panel each"
        check_secret(self.secret, self.nonce, self.nonce_by)
        if self.models and ((self.secret and not self.nonce) or self.labelled is not None):
            name = "labelled" if self.labelled is not None else "secret"
            yield f"{name} is given with models; it must be left out, since these are handed no pictures"
        if self.accuracy is not None and self.labelled is None:
            yield "accuracy is given; labelled must name a data set on which it can be checked"
        if self.references:
            yield from self._reference_conflicts()

    def _reference_conflicts(self) -> Iterator[str]:
        if not self.there:
            yield "references are given, but no models; models, outputs or a shape must be given, too"
        if len(self.references) < LEAST_REFERENCES:
            yield (
                f"references has {len(self.references)} model; it must have at least {LEAST_REFERENCES}, of which one "
                "alone would pass its own chance on to the model asked"
            )
        twice = next((one for one in self.references if (*self.models, *self.references).count(one) > 1), None)
        if twice is not None:
            yield f"references has {twice.name}, which is given twice; each must be a model of its own"
        if self.label is None:
            yield "references are given and label is none; it must be the class of the image that carried the feature"

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
