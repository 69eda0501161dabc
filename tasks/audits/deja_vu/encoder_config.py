"""Configuration of the audited encoders: two that are trained here, or a third-party encoder and its references."""

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

TrainingSets = Literal["own", "other"]
PARTS: dict[TrainingSets, tuple[PartName, PartName]] = {"own": ("A", "B"), "other": ("other A", "other B")}


@dataclass(frozen=True)
class Drawing(Ranged):
    """The reconstructed images, and the classifier that names the object in a reconstruction.

    Meehan et al. 2023, appendix A.2.4, use 5 neighbours. The released code of Bordes et al. 2022 uses 100 steps.
    """

    images: Annotated[int, AtLeast(0)] = 500
    """Number of images per set to reconstruct, drawn at random from those with a crop; 0: all."""
    neighbours: Annotated[int, AtLeast(1)] = 5
    """Number of public images nearest to the crop; a reconstruction is drawn from their mean backbone embedding."""
    steps: Annotated[int, AtLeast(1)] = 100
    """Sampling steps of a reconstruction."""
    link: Annotated[int, AtLeast(0)] = 10
    """Epochs per link of the diffusion model's training; 0: one job."""
    classifier: PixelClassifier = PixelClassifier()
    """Classifier that names the object in a reconstruction."""

    def tiny(self) -> Drawing:
        return Drawing(4, 2, 3, 1 if self.link else 0, PixelClassifier(epochs=1, batch=32))


@dataclass(frozen=True)
class Reconstruction(Ranged):
    """Images that a diffusion model draws from embeddings."""

    diffusion: DiffusionSettings = DiffusionSettings()
    """Diffusion model that draws reconstructions, and its training."""
    drawing: Drawing = Drawing()
    """Reconstructed images, and their sampling."""

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

    training_sets: TrainingSets = "own"
    """Ours: own: A and B; other: two further sets drawn in the same way. Such a run is a control, since neither encoder
    has seen A or B."""
    checkpoints: tuple[int, ...] = ()
    """Epochs after which labels are inferred, in addition to the last."""
    probe: bool = True
    """Whether to measure, with linear probes, how well embeddings separate classes."""
    reconstruction: Reconstruction | None = None
    """Reconstruction of images from embeddings; none: omitted."""

    def snapshots(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs after which weights are kept, in ascending order. Empty if only the last epoch is kept."""
        if self.checkpoints:
            return tuple(sorted({*self.checkpoints, epochs}))
        return ()

    def tiny(self, epochs: int) -> Trained:
        """Return the same encoders with snapshots that fit a training of one or two epochs."""
        first = tuple(range(1, epochs + 1))
        if self.checkpoints:
            checkpoints = first[-len(self.checkpoints) :]
        else:
            checkpoints = ()
        if self.reconstruction is None:
            reconstruction = None
        else:
            reconstruction = self.reconstruction.tiny()
        return replace(self, checkpoints=checkpoints, reconstruction=reconstruction)


@dataclass(frozen=True)
class EncoderFile(Ranged):
    """An encoder file, whose embeddings are computed here."""

    tag: ClassVar[str] = "file"

    model: ModelFile
    """Encoder file."""
    interface: EncoderInterface = EncoderInterface()
    """Inputs and outputs of the encoder."""

    def conflicts(self) -> Iterator[str]:
        yield from _encoder_file_conflicts("model", self.model)


@dataclass(frozen=True)
class EncoderTable(Ranged):
    """Embeddings that the encoder's owner computed for the exported images."""

    tag: ClassVar[str] = "table"

    embeddings: File | None = None
    """Table of embeddings (Parquet: image, embedding); none until the owner returns it."""
    repeated_images: Annotated[int, AtLeast(0)] = 0
    """Number of public images that are repeated, uncropped, among the crops, where their embeddings must be equal; a
    table without them can show memorisation but not exclude it."""


@dataclass(frozen=True)
class TrainedReferences(Ranged):
    """References that are trained here on images outside A and B, with the settings of `training`."""

    tag: ClassVar[str] = "trained"

    references: Annotated[int, AtLeast(1)] = 1
    """Number of references, each with its own seed, trained alternately on two disjoint sets; with 2 or more, the
    encoder is ranked among them."""


@dataclass(frozen=True)
class ReferenceFile(Ranged):
    """The file of an encoder that was trained on neither A nor B."""

    tag: ClassVar[str] = "file"

    reference: ModelFile
    """Reference file."""
    interface: EncoderInterface = EncoderInterface()
    """Inputs and outputs of the reference."""

    def conflicts(self) -> Iterator[str]:
        yield from _encoder_file_conflicts("reference", self.reference)


@dataclass(frozen=True)
class ReferenceTable(Ranged):
    """Embeddings of the exported images by an encoder that was trained on neither A nor B."""

    tag: ClassVar[str] = "table"

    reference_embeddings: File
    """Table of the reference's embeddings."""


@dataclass(frozen=True)
class Given(Ranged):
    """A third-party encoder that was trained on A and not on B, and its references."""

    tag: ClassVar[str] = "given"

    encoder: EncoderFile | EncoderTable = EncoderTable()
    """The encoder's file, or a table of its embeddings."""
    comparison: TrainedReferences | ReferenceFile | ReferenceTable = TrainedReferences()
    """References trained here, or a reference that is also given."""

    @property
    def repeated_images(self) -> int:
        """Number of public images that are exported twice."""
        if isinstance(self.encoder, EncoderTable):
            return self.encoder.repeated_images
        return 0

    @property
    def tables(self) -> Iterator[File]:
        """Embedding tables that were provided."""
        if isinstance(self.encoder, EncoderTable) and self.encoder.embeddings is not None:
            yield self.encoder.embeddings
        if isinstance(self.comparison, ReferenceTable):
            yield self.comparison.reference_embeddings


def _encoder_file_conflicts(name: str, model: ModelFile) -> Iterator[str]:
    """Yield the conflicts of a model file that must compute embeddings."""
    if model.is_folder:
        yield (
            f"{name} is {model.name}, an image classifier without embeddings; export its encoder to a file "
            "with torch.export.save"
        )
