"""Configuration of the audit."""

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
    """The largest rectangle of an image that contains no object."""

    tag: ClassVar[str] = "periphery"

    smallest: Annotated[int, AtLeast(1)] = SMALLEST
    """Minimum length of a rectangle's shorter side, in pixels."""


@dataclass(frozen=True)
class Strips(Ranged):
    """The largest strip between the boxes of an image."""

    tag: ClassVar[str] = "strips"

    smallest: Annotated[int, AtLeast(1)] = SMALLEST
    """Minimum length of a strip's shorter side, in pixels."""


@dataclass(frozen=True)
class Corner(Ranged):
    """The lower left corner of an image."""

    tag: ClassVar[str] = "corner"

    corner_share: Annotated[float, Share(zero=False)] = CORNER_SHARE
    """Size of the corner as a share of the image's width and height, in (0, 1]."""


@dataclass(frozen=True)
class Retrieval(Ranged):
    """A table of the public images that are nearest to each crop."""

    example_images: Annotated[int, AtLeast(0)] = 10
    """Ours: example images per category in the report."""


@dataclass(frozen=True)
class DejaVu(Ranged):
    """Configuration: images, encoders, training, and the inference of objects from backgrounds.

    The defaults are the published setting. The data are divided by `seed` into A, B and public images X; one encoder is
    trained on A, one on B. The first of `layers` and of `k` and the last epoch are decisive.

    If an encoder is `given`, it was trained on A. Only references are trained here, on sets disjoint from A and B. They
    are evaluated after their last epoch, at the first of `layers`. If the data state the role of each image for that
    encoder, these roles define the parts. Two groups of measures are omitted: the probe and reconstructions, which need
    weights, and the shares of memorised images, which need two identically trained encoders.
    """

    data: Dataset = Dataset("imagenet")
    """Images with boxes around their objects."""
    correlation: Annotated[float, Share()] = 0.0
    """Ours: share of the digits in digits-on-photos that can be inferred from their backgrounds."""
    encoders: Trained | Given = Trained()
    """Ours: the audited encoders: two trained here, or a third-party encoder."""
    training: EncoderTraining = EncoderTraining()
    """Training of the encoders, or of the references for a given encoder."""
    per_class: Annotated[int, AtLeast(1)] = 300
    """Images per class in A, and in B."""
    public: Annotated[int, AtLeast(0)] = 500_000
    """Number of public images X with known labels; 0: all remaining images."""
    reserved_per_class: Annotated[int, AtLeast(0)] = 500
    """Images per class that X leaves to each training set, so that X stays the same for all smaller training sets."""
    attack_images: Annotated[int, AtLeast(0)] = 0
    """Maximum number of images of A, and of B, that are cropped; 0: all images with boxes."""
    validation: Annotated[int, AtLeast(0)] = 0
    """Number of images for the linear probe; 0: the data set's validation images or, if it has none, the remaining
    images."""
    crop: Periphery | Strips | Corner = Periphery()
    """Visible part of an image: its largest rectangle without an object, the largest strip between boxes, or its
    lower left corner."""
    layers: tuple[int, ...] = ()
    """Layers to evaluate, from 0 (backbone) to the projector's output; the first is decisive; empty: only the last."""
    k: tuple[int, ...] = (100,)
    """Numbers of neighbours that vote; the first is decisive."""
    confident_percent: Annotated[int, Between(1, 100, "a percentage")] = 20
    """Percentage of most confident images that enter the score."""
    retrieval: Retrieval | None = Retrieval()
    """Table of the public images that are nearest to each crop; none: omitted."""
    negligible: Annotated[float, Share(zero=False, one=False)] = field(default=0.02, metadata={ANSWER_ONLY: True})
    """Ours: largest score that counts as negligible."""
    permutations: Annotated[int, AtLeast(199)] = 1999  # fewer cannot give a two-sided p of 0.01
    """Ours: number of random exchanges of images between A and B, for the p-value."""
    resamples: Annotated[int, AtLeast(1)] = 1000
    """Ours: number of bootstrap samples of images, for intervals."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: seed of all random numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pretraining("A", self.recorded)  # raises if the recorded epochs are invalid

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
            attacked=self.attack_images,
            validation=self.validation,
            largest=self.reserved_per_class,
            seed=seeds.derive(self.seed, "parts"),
        )

    @property
    def is_null(self) -> bool:
        """Whether the encoders are evaluated on images that neither was trained on."""
        return isinstance(self.encoders, Trained) and self.encoders.training_sets == "other"

    @property
    def reconstruction(self) -> Reconstruction | None:
        """Reconstruction settings of encoders trained here. None if there are none or the encoder is given."""
        if isinstance(self.encoders, Trained):
            return self.encoders.reconstruction
        return None

    @property
    def recorded(self) -> tuple[int, ...]:
        """Epochs after which weights are kept during training. Empty if only the last epoch is kept."""
        if isinstance(self.encoders, Trained):
            return self.encoders.snapshots(self.training.epochs)
        return ()

    @property
    def asked_layers(self) -> tuple[int, ...]:
        """Evaluated layers without duplicates, the decisive one first."""
        return tuple(dict.fromkeys(self.layers)) or (self.training.top,)

    @property
    def neighbour_counts(self) -> tuple[int, ...]:
        """Neighbour counts k without duplicates, the decisive one first."""
        return tuple(dict.fromkeys(self.k))

    def pretraining(self, part: PartName, recorded: tuple[int, ...]) -> Pretraining:
        """Return the training on this part, up to its last epoch."""
        images = TrainingImages(self.data, self.correlation, self.partition, part)
        return self.training.pretraining(images, recorded, seeds.derive(self.seed, "training", part))


@dataclass(frozen=True)
class About:
    """Facts about a run that its tables do not contain.

    The decisive score is computed from the `confident` percent most confident images, at `layer`, with `k` neighbours,
    after `epoch`. `cell` names the table cell of the paper that the run repeats, or is empty. `given` is true if a
    third-party encoder is audited. `copies` counts exact duplicates among the images.
    """

    confident: int
    layer: int
    k: int
    epoch: int
    cell: str = ""
    given: bool = False
    copies: CopyCount = CopyCount()
