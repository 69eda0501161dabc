"""The configuration of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tasks.audits.deja_vu.encoder_config import Given, Reconstruction, Trained
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Between, Ranged, Share
from tasks.datasets.boxed.crops import CORNER_SHARE
from tasks.datasets.boxed.partition import Partition, PartName, TrainingImages
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.numerics import seeds
from tasks.self_supervised.encoder_training import EncoderTraining
from tasks.self_supervised.pretraining_config import Pretraining

SMALLEST = 100  # pixels


@dataclass(frozen=True)
class Periphery(Ranged):
    """The largest rectangle of an image without an object."""

    tag: ClassVar[str] = "periphery"

    smallest: Annotated[int, AtLeast(1)] = SMALLEST
    """Rectangles whose shorter side has fewer pixels are left out."""


@dataclass(frozen=True)
class Strips(Ranged):
    """The largest of the strips between the boxes of an image."""

    tag: ClassVar[str] = "strips"

    smallest: Annotated[int, AtLeast(1)] = SMALLEST
    """Rectangles whose shorter side has fewer pixels are left out."""


@dataclass(frozen=True)
class Corner(Ranged):
    """The lower left corner of an image."""

    tag: ClassVar[str] = "corner"

    corner_share: Annotated[float, Share(zero=False)] = CORNER_SHARE
    """Share of the width and of the height that the crop shows, in (0, 1]."""


@dataclass(frozen=True)
class Retrieval(Ranged):
    """A table of the public images that are nearest to crops."""

    shown: Annotated[int, AtLeast(0)] = 10
    """Ours: images of each kind in the report."""


@dataclass(frozen=True)
class DejaVu(Ranged):
    """Which images two encoders are trained on, how, and what is inferred of them from their backgrounds.

    The defaults are the published setting. The data are divided by `seed` into A, B and public images X; one encoder is
    trained on A, one on B. The first of `layers` and of `k` and the last epoch decide.

    If an encoder is `given`, it was trained on A. References alone are trained here then, on sets disjoint from A and
    B, and asked after their last epoch, at the first of `layers`. If the data says what each image was to that encoder,
    the parts follow from it. The probe and reconstructions, which need weights, are left out, as are the shares of
    memorised images, which need two encoders that differ in nothing else.
    """

    data: Dataset = Dataset("imagenet")
    """Images with boxes around their objects."""
    correlation: Annotated[float, Share()] = 0.0
    """Ours: how often the digits of digits-on-photos are told by their backgrounds."""
    encoders: Trained | Given = Trained()
    """Ours: which encoders are audited: two that are trained here, or one of another owner."""
    training: EncoderTraining = EncoderTraining()
    """How the encoders are trained, or the references that a given encoder is compared with."""
    per_class: Annotated[int, AtLeast(1)] = 300
    """Images of each class in A, and in B."""
    public: Annotated[int, AtLeast(0)] = 500_000
    """Images X with known labels; 0: all others."""
    largest: Annotated[int, AtLeast(0)] = 500
    """Images of each class for which X leaves room in every training set, so that X is the same for smaller sets."""
    attacked: Annotated[int, AtLeast(0)] = 0
    """Images of A and of B that are cropped, at most; 0: all with boxes."""
    validation: Annotated[int, AtLeast(0)] = 0
    """Images for the linear probe; 0: those that come with the data, else what is left."""
    crop: Periphery | Strips | Corner = Periphery()
    """What is shown of an image: its largest rectangle without an object, the largest of the strips between boxes, or
    its lower left corner."""
    layers: tuple[int, ...] = ()
    """Layers that are asked, from the backbone, 0, to the projector's output; the first decides; empty: the last
    alone."""
    k: tuple[int, ...] = (100,)
    """Numbers of neighbours that vote; the first decides."""
    confident: Annotated[int, Between(1, 100, "a percentage")] = 20
    """Percentage of images, the most confident ones, that the score is computed from."""
    retrieval: Retrieval | None = Retrieval()
    """Retrieve the public images that are nearest to crops; none: without."""
    negligible: Annotated[float, Share(zero=False, one=False)] = field(default=0.02, metadata={ANSWER_ONLY: True})
    """Ours: score below which the answer is not detected."""
    partings: Annotated[int, AtLeast(199)] = 1999  # fewer than 199 could not tell enough
    """Ours: redrawn partings of the images, for p."""
    resamples: Annotated[int, AtLeast(1)] = 1000
    """Ours: bootstraps over images, for intervals."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pretraining("A", self.recorded)  # which checks that the training can record these epochs

    def conflicts(self) -> Iterator[str]:
        if not self.k or min(self.k) < 1:
            yield f"k is {self.k}; it must be numbers of neighbours of at least 1"
        top = self.training.top
        if any(not 0 <= layer <= top for layer in self.layers):
            yield f"layers is {self.layers}; it must be layers from 0, the backbone, to {top}"
        reconstruction = self.reconstruction
        if reconstruction is not None and reconstruction.drawing.neighbours > max(self.k):
            neighbours = reconstruction.drawing.neighbours
            yield f"drawing.neighbours is {neighbours}; it must be at most the largest k, {max(self.k)}"

    @property
    def partition(self) -> Partition:
        return Partition(
            per_class=self.per_class,
            public=self.public,
            attacked=self.attacked,
            validation=self.validation,
            largest=self.largest,
            seed=seeds.derive(self.seed, "parts"),
        )

    @property
    def is_null(self) -> bool:
        """Whether encoders are asked about images that neither was trained on."""
        return isinstance(self.encoders, Trained) and self.encoders.trained == "other"

    @property
    def reconstruction(self) -> Reconstruction | None:
        """The drawings of encoders that are trained here; None without."""
        return self.encoders.reconstruction if isinstance(self.encoders, Trained) else None

    @property
    def recorded(self) -> tuple[int, ...]:
        """The epochs after which the weights of a training are kept; empty: after the last alone."""
        return self.encoders.snapshots(self.training.epochs) if isinstance(self.encoders, Trained) else ()

    @property
    def asked_layers(self) -> tuple[int, ...]:
        """The layers whose embeddings are asked, each once, the decisive one first."""
        return tuple(dict.fromkeys(self.layers)) or (self.training.top,)

    @property
    def neighbour_counts(self) -> tuple[int, ...]:
        """The numbers of neighbours that vote, each once, the decisive one first."""
        return tuple(dict.fromkeys(self.k))

    def pretraining(self, part: PartName, recorded: tuple[int, ...]) -> Pretraining:
        """The training on this part, up to its last epoch."""
        images = TrainingImages(self.data, self.correlation, self.partition, part)
        return self.training.pretraining(images, recorded, seeds.derive(self.seed, "training", part))


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run.

    The score that decides is that of the `confident` percent most confident images, at `layer`, of `k` neighbours,
    after `epoch`. `cell` is what of the paper the run repeats; empty for nothing. `given` says whether a third-party
    encoder is audited. `copies` are the exact copies among the images.
    """

    confident: int
    layer: int
    k: int
    epoch: int
    cell: str = ""
    given: bool = False
    copies: CopyCount = CopyCount()
