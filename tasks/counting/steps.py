"""Training steps and evaluations of built-in and users' networks, described without torch.

`tasks.counting.traced_steps` counts their operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tasks.counting.updates import PRIVATE
from tasks.models.catalog import PLAIN, Regularisers, Shape

if TYPE_CHECKING:
    from tasks.diffusion.diffusion_config import UNet
    from tasks.self_supervised.pretraining_config import Criterion, EncoderConfig


@dataclass(frozen=True)
class ClassifierStep:
    """A training step of an image classifier. A unit of work has one image or `images`."""

    is_stacked: ClassVar[bool] = True

    network: str
    shape: Shape
    classes: int
    regularisers: Regularisers = PLAIN
    width: float = 1.0
    batch: int = 128
    optimiser: str = "adam"
    augmentation: bool = False
    is_private: bool = False
    images: float = 1.0  # images in a unit of work
    precision: str = "float32"

    @property
    def share(self) -> float:
        """The part of the traced step that one unit of work takes."""
        return self.images * (PRIVATE if self.is_private else 1.0) / self.batch


@dataclass(frozen=True)
class DensityStep:
    """A training step of a density model. The unit of work is an image."""

    is_stacked: ClassVar[bool] = True

    model: str
    shape: Shape
    width: float = 1.0
    batch: int = 64
    is_private: bool = False
    images: float = 1.0  # images in a unit of work
    precision: str = "float32"

    @property
    def share(self) -> float:
        """The part of the traced step that one unit of work takes."""
        return self.images * (PRIVATE if self.is_private else 1.0) / self.batch


@dataclass(frozen=True)
class CodesStep:
    """The likelihood of an image given one code, as in an estimate of log p. The unit of work is a code."""

    is_stacked: ClassVar[bool] = True

    model: str
    shape: Shape
    width: float = 1.0
    codes: float = 1.0  # codes in a unit of work

    @property
    def share(self) -> float:
        """The part of the traced step that one unit of work takes."""
        return self.codes


@dataclass(frozen=True)
class EncoderStep:
    """A training step of an encoder by a self-supervised or supervised criterion. The unit of work is an image.

    The step computes `batch` images in `accumulate` parts, each of which has one or two views of its images.
    """

    is_stacked: ClassVar[bool] = False

    criterion: Criterion
    encoder: EncoderConfig
    classes: int
    batch: int
    accumulate: int
    optimiser: str
    precision: str
    is_tuning: bool = False


@dataclass(frozen=True)
class EmbeddingStep:
    """An encoder's embeddings of an image at every layer. The unit of work is an image."""

    is_stacked: ClassVar[bool] = False

    encoder: EncoderConfig
    classes: int = 0


@dataclass(frozen=True)
class DenoisingStep:
    """A training step of a conditional diffusion model, or one sampling step. The unit of work is an image."""

    is_stacked: ClassVar[bool] = False

    unet: UNet
    resolution: int
    features: int
    batch: int
    precision: str = "float32"
    is_sampling: bool = False
