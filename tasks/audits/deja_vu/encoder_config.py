"""Which encoders are audited: two that are trained here, or one of another owner, and what it is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.boxed.partition import PartName
from tasks.diffusion.diffusion_config import DiffusionSettings, UNet
from tasks.diffusion.pixel_classifier import PixelClassifier
from tasks.external.model_file import EncoderInterface, ModelFile
from tasks.worker.files import File

TrainedOn = Literal["own", "other"]
PARTS: dict[TrainedOn, tuple[PartName, PartName]] = {"own": ("A", "B"), "other": ("other A", "other B")}


@dataclass(frozen=True)
class Drawing(Ranged):
    """Which images are reconstructed, and which classifier names the object in a drawing.

    Meehan et al. 2023, appendix A.2.4: 5 neighbours; 100 steps are those of the released code of Bordes et al. 2022.
    """

    pictures: Annotated[int, AtLeast(0)] = 500
    """Images of each set that are reconstructed, drawn by chance among those with a crop; 0: all."""
    neighbours: Annotated[int, AtLeast(1)] = 5
    """Public images nearest to the crop whose mean backbone embedding is drawn."""
    steps: Annotated[int, AtLeast(1)] = 100
    """Steps of a drawing."""
    link: Annotated[int, AtLeast(0)] = 10
    """Epochs per link of the diffusion model's training; 0: one job."""
    classifier: PixelClassifier = PixelClassifier()
    """The classifier that names the object in a drawing."""

    def tiny(self) -> Drawing:
        return Drawing(4, 2, 3, 1 if self.link else 0, PixelClassifier(epochs=1, batch=32))


@dataclass(frozen=True)
class Reconstruction(Ranged):
    """Images that a diffusion model draws from embeddings."""

    diffusion: DiffusionSettings = DiffusionSettings()
    """The diffusion model that draws reconstructions, and its training."""
    drawing: Drawing = Drawing()
    """Which images are reconstructed, and how."""

    def conflicts(self) -> Iterator[str]:
        if self.drawing.steps > self.diffusion.steps:
            yield f"drawing.steps is {self.drawing.steps}; it must be at most diffusion.steps, {self.diffusion.steps}"

    def tiny(self) -> Reconstruction:
        diffusion = replace(
            self.diffusion, resolution=8, unet=UNet((4, 8), 1, (4,), 2), epochs=2, batch=32, accumulate=1
        )
        return Reconstruction(diffusion, self.drawing.tiny())


@dataclass(frozen=True)
class Trained(Ranged):
    """Two encoders that are trained here, one on A and one on B."""

    tag: ClassVar[str] = "trained"

    trained: TrainedOn = "own"
    """Ours: own trains on A and B; other on two further sets drawn alike, so that neither encoder has seen A or B: the
    null."""
    recorded: tuple[int, ...] = ()
    """Epochs after which labels are inferred; always after the last, too."""
    probe: bool = True
    """Whether linear probes measure how well embeddings tell classes apart."""
    reconstruction: Reconstruction | None = None
    """Draw images from embeddings; none: without."""

    def snapshots(self, epochs: int) -> tuple[int, ...]:
        """The epochs of a training after which weights are kept, ascending; empty: after the last alone."""
        return tuple(sorted({*self.recorded, epochs})) if self.recorded else ()

    def tiny(self, epochs: int) -> Trained:
        """The same with as many snapshots as a training of one or two epochs has."""
        first = tuple(range(1, epochs + 1))
        recorded = first[-len(self.recorded) :] if self.recorded else ()
        reconstruction = None if self.reconstruction is None else self.reconstruction.tiny()
        return replace(self, recorded=recorded, reconstruction=reconstruction)


@dataclass(frozen=True)
class EncoderFile(Ranged):
    """The file of an encoder, which computes embeddings here."""

    tag: ClassVar[str] = "file"

    model: ModelFile
    """The encoder's file."""
    interface: EncoderInterface = EncoderInterface()
    """Inputs and outputs of the encoder."""

    def conflicts(self) -> Iterator[str]:
        yield from _encoder_file_conflicts("model", self.model)


@dataclass(frozen=True)
class EncoderTable(Ranged):
    """Embeddings that the encoder's owner computed for the images that were handed out."""

    tag: ClassVar[str] = "table"

    embeddings: File | None = None
    """A table of embeddings (Parquet: image, embedding); none until the owner has returned it."""
    repeated: Annotated[int, AtLeast(0)] = 0
    """Public images that are handed out once more, whole among the crops, where their embeddings must be the same; a
    table without them can accuse and not clear."""


@dataclass(frozen=True)
class TrainedReferences(Ranged):
    """References that are trained here on images that are in neither A nor B, with the settings of `training`."""

    tag: ClassVar[str] = "trained"

    references: Annotated[int, AtLeast(1)] = 1
    """Number of references. The first, third, ... are trained on one set, the second, fourth, ... on another one, each
    from its own seed; with 2 or more the encoder is ranked among them."""


@dataclass(frozen=True)
class ReferenceFile(Ranged):
    """The file of an encoder that was trained on neither A nor B."""

    tag: ClassVar[str] = "file"

    reference: ModelFile
    """The reference's file."""
    interface: EncoderInterface = EncoderInterface()
    """Inputs and outputs of the reference."""

    def conflicts(self) -> Iterator[str]:
        yield from _encoder_file_conflicts("reference", self.reference)


@dataclass(frozen=True)
class ReferenceTable(Ranged):
    """Embeddings of the images that were handed out, by an encoder that was trained on neither A nor B."""

    tag: ClassVar[str] = "table"

    reference_embeddings: File
    """The table of the reference's embeddings."""


@dataclass(frozen=True)
class Given(Ranged):
    """An encoder of another owner, which was trained on A and on nothing of B, and what it is compared with."""

    tag: ClassVar[str] = "given"

    encoder: EncoderFile | EncoderTable = EncoderTable()
    """The encoder: its file, or a table of its embeddings."""
    comparison: TrainedReferences | ReferenceFile | ReferenceTable = TrainedReferences()
    """What the encoder is compared with: references that are trained here, or one that is given, too."""

    @property
    def repeated(self) -> int:
        """The number of public images that are handed out twice."""
        return self.encoder.repeated if isinstance(self.encoder, EncoderTable) else 0

    @property
    def tables(self) -> Iterator[File]:
        """The tables of embeddings that are given."""
        if isinstance(self.encoder, EncoderTable) and self.encoder.embeddings is not None:
            yield self.encoder.embeddings
        if isinstance(self.comparison, ReferenceTable):
            yield self.comparison.reference_embeddings


def _encoder_file_conflicts(name: str, model: ModelFile) -> Iterator[str]:
    """What is wrong with a model file that is to compute embeddings."""
    if model.is_folder:
        yield (
            f"{name} is {model.name}, an image classifier, which gives no embeddings; export its encoder to a file "
            "with torch.export.save"
        )
