"""Third-party models: their files, or the tables of outputs that their owner returned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, ClassVar

from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.job import CLASS_NUMBER
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily
from tasks.external.blinding import withheld
from tasks.external.bound_draw import OTHER_PARTY, check_secret
from tasks.external.image_shape import channels_last
from tasks.external.model_file import Interface, ModelFile
from tasks.worker.files import WITHHELD, File, shorten_names

CHANNELS = (1, 3)  # of images that features are burnt into
LEAST_REFERENCES = 2
NAMED = 4  # number of models named in a description


# The rank by which single models are judged


@dataclass(frozen=True)
class AnswerRank(Ranged):
    """The rank of the feature in its family, by the models' outputs on images with each member."""

    tag: ClassVar[str] = "answers"
    label: Annotated[int, AtLeast(0)] | None = field(default=None, metadata={CLASS_NUMBER: True})
    """Class of the training image with the feature, if it is known."""


@dataclass(frozen=True)
class FirstLayerRank(Ranged):
    """Ours: the rank of the feature by the weights of the models' dense first layer.

    It uses images of `label` in the probe set.
    """

    tag: ClassVar[str] = "first_layer"
    label: Annotated[int, AtLeast(0)] = field(metadata={CLASS_NUMBER: True})
    """Class of the training image with the feature."""


@dataclass(frozen=True)
class ReferenceRank(Ranged):
    """The rank of the feature by the models' slopes, compared with reference models.

    The slopes are measured on images of `label` in the probe set.
    """

    tag: ClassVar[str] = "references"
    references: tuple[ModelFile, ...]
    """Files of at least two reference models: models of the same kind, trained without the feature."""
    label: Annotated[int, AtLeast(0)] = field(metadata={CLASS_NUMBER: True})
    """Class of the training image with the feature."""

    def conflicts(self) -> Iterator[str]:
        if len(self.references) < LEAST_REFERENCES:
            yield (
                f"references has {len(self.references)} model; it must have at least {LEAST_REFERENCES}, since the "
                "chance variation of a single reference would count as memory of the model"
            )
        yield from describe_repeats(self.references, ())


JudgedBy = AnswerRank | FirstLayerRank | ReferenceRank


def describe_repeats(references: tuple[ModelFile, ...], models: tuple[ModelFile, ...]) -> Iterator[str]:
    """Yield a message for each reference that is given twice or is one of the models."""
    for reference in references:
        if (*models, *references).count(reference) > 1:
            yield f"references has {reference.name}, which is given twice; all models must differ"


# The audited models


@dataclass(frozen=True)
class ModelFiles(Ranged):
    """Models as files. Several models of one owner form one panel: their scores are averaged."""

    tag: ClassVar[str] = "files"
    models: tuple[ModelFile, ...] = field(metadata={OUTSIDE_COMMITMENT: True})
    """Model files."""
    judged_by: AnswerRank | FirstLayerRank | ReferenceRank = AnswerRank()
    """Deciding rank: by the models' outputs, by the weights of their first layer, or compared with references."""

    def conflicts(self) -> Iterator[str]:
        if not self.models:
            yield "models is empty; it must name at least one file"
        if isinstance(self.judged_by, ReferenceRank):
            yield from describe_repeats(self.judged_by.references, self.models)


@dataclass(frozen=True)
class LabelledImages(Ranged):
    """Images with known labels, which check the outputs returned by an owner."""

    data: Dataset
    """Data set that provides 100 random test images; its classes are numbered as in the model."""
    accuracy: Annotated[float, Share()] | None = field(default=None, metadata={OUTSIDE_COMMITMENT: True})
    """Accuracy that the owner states for such images; a table that is significantly less accurate is not assessable."""


@dataclass(frozen=True)
class ReturnedOutputs(Ranged):
    """Models that stay with their owner, who returns their outputs for the probe images. Several form one panel."""

    tag: ClassVar[str] = "returned"
    outputs: tuple[File, ...] = field(default=(), metadata={OUTSIDE_COMMITMENT: True})
    """Tables of outputs for the probe images, one per model; none until the owner has returned them."""
    columns: tuple[str, ...] = ()
    """Names of the output columns in the tables, if they are not the standard ones."""
    labelled: LabelledImages | None = None
    """Images with known labels, mixed into the images for the owner; none: the accuracy is not checked."""
    judged_by: AnswerRank | ReferenceRank = AnswerRank()
    """Deciding rank: by the models' outputs, or compared with references."""


@dataclass(frozen=True)
class Given(Ranged):
    """Do third-party models know the feature? Nothing is trained."""

    tag: ClassVar[str] = "given"
    shape: tuple[int, int, int]
    """Height, width and channels of the models' input images; or channels, height and width."""
    source: ModelFiles | ReturnedOutputs = ReturnedOutputs()
    """Source of the models' outputs: files, or tables that their owner returned."""
    interface: Interface = Interface()
    """Inputs and outputs of the models."""
    classes: int | None = None
    """Number of classes; required for a factory."""
    family: AskedFamily = AskedFamily()
    """Ours: other features among which the feature is ranked."""
    probes: Annotated[int, AtLeast(0)] = 1000
    """Ours: number of probe images, counted from the first; 0: all."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Unguessable text that, together with the seed, determines the order of the images for an owner; empty: the seed
    alone determines it.
    """
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Text chosen by the other party after receiving the commitment (`engram probes --commit`). It helps to determine
    the order, the family and a random glyph of seed 0, so that neither party chooses them alone.
    """
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True})
    """Source of the nonce: the model's owner, or a public beacon after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Commitment made before the nonce was chosen. It covers the configuration except the nonce, the secret and the
    returned outputs; a run with another configuration is refused.
    """

    def __post_init__(self) -> None:
        # One order only, so that both ways to write a shape have the same keys.
        object.__setattr__(self, "shape", channels_last(self.shape, CHANNELS))
        super().__post_init__()

    def conflicts(self) -> Iterator[str]:
        if min(self.shape[:2]) < 1 or self.shape[2] not in CHANNELS:
            yield f"shape is {self.shape}; it must be height, width and 1 or 3 channels, or 1 or 3 channels first"
        built = next((model for model in (*self.models, *self.references) if model.is_weights), None)
        if built is not None and self.classes is None:
            yield f"classes is none; it must be the number of classes that {built.name} is built with"
        check_secret(self.secret, self.nonce, self.nonce_by)
        if self.models and self.secret and not self.nonce:
            yield "secret is given with models; it must be left out, since no images are handed out for model files"

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The model files. Empty if an owner returns outputs."""
        if isinstance(self.source, ModelFiles):
            return self.source.models
        return ()

    @property
    def outputs(self) -> tuple[File, ...]:
        """The tables that an owner returned."""
        if isinstance(self.source, ReturnedOutputs):
            return self.source.outputs
        return ()

    @property
    def judged_by(self) -> JudgedBy:
        return self.source.judged_by

    @property
    def references(self) -> tuple[ModelFile, ...]:
        if isinstance(self.judged_by, ReferenceRank):
            return self.judged_by.references
        return ()

    @property
    def describe(self) -> str:
        """The names of the first model files, and the number of further ones."""
        paths = *(model.path for model in self.models), *(table.path for table in self.outputs)
        names = shorten_names([PurePath(path).name for path in paths])
        more = len(names) - NAMED
        if more > 0:
            return f"{', '.join(names[:NAMED])} and {more} more"
        return ", ".join(names)

    @property
    def hands_out(self) -> bool:
        """Whether the model stays with its owner, who receives images."""
        return isinstance(self.source, ReturnedOutputs)
