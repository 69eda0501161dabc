"""Configuration of a diffusion model: its network and its training. This module does not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.numerics.precision import Precision
from tasks.training.recipe import Count, Rate, Recipe

ScheduleName = Literal["linear", "cosine"]


@dataclass(frozen=True)
class UNet(Ranged):
    """A U-Net for square images, conditioned on time and a vector by conditional batch norm.

    The defaults are from Dhariwal & Nichol 2021, "Diffusion models beat GANs on image synthesis", appendix I, for 128 x
    128. Bordes et al. 2022, "High fidelity visualization of what your self-supervised representation knows about", use
    the same network.
    """

    widths: tuple[int, ...] = (256, 256, 512, 768, 1024)
    """Channels at full resolution, half resolution, and so on."""
    blocks: Annotated[int, AtLeast(1)] = 2
    """Residual blocks per resolution on the way down; one more on the way up."""
    attention: tuple[int, ...] = (32, 16, 8)
    """Resolutions with attention, in addition to the lowest."""
    heads: Annotated[int, AtLeast(1)] = 4
    """Attention heads."""

    def conflicts(self) -> Iterator[str]:
        if not self.widths or any(width < 1 or width % self.heads for width in self.widths):
            yield (
                f"widths is {self.widths}; it must be at least one number of channels, each a multiple of heads, "
                f"which is {self.heads}"
            )
        if self.widths[0] % 2:
            yield f"widths begins with {self.widths[0]}; the first must be even, because half of it are sines of time"

    def check(self, resolution: int) -> None:
        """Raise ValueError unless the network fits images of this resolution."""
        halved = 2 ** (len(self.widths) - 1)
        if resolution < halved or resolution % halved:
            raise ValueError(f"resolution is {resolution}; with {len(self.widths)} widths it must divide by {halved}")
        resolutions = [resolution // 2**level for level in range(len(self.widths))]
        if any(size not in resolutions for size in self.attention):
            names = ", ".join(map(str, resolutions))
            raise ValueError(f"attention is {self.attention}; choose from the resolutions {names}")


SMALL = UNet((32, 64, 64), 1, (8,), 2)  # for 32 x 32 images


@dataclass(frozen=True)
class DiffusionSettings(Ranged):
    """A conditional diffusion model of square colour images, trained to predict the noise in a noised image.

    Ho et al. 2020, "Denoising diffusion probabilistic models", section 4: 1000 steps, a linear schedule, average
    0.9999; learning rate and minibatch as in the released code of Bordes et al. 2022 (32 GPUs with 8 images each). The
    length of training is unpublished: for 500,000 images, 150 epochs are 290,000 steps.
    """

    resolution: int = 128
    """Side of an image, in pixels."""
    unet: UNet = UNet()
    """Network."""
    steps: Annotated[int, AtLeast(1)] = 1000
    """Diffusion steps."""
    schedule: ScheduleName = "linear"
    """Schedule of the noise variances."""
    epochs: Count = 150
    """Epochs of training."""
    batch: Count = 256
    """Images per step."""
    accumulate: Count = 1
    """Number of equal parts of a minibatch that are computed one after another; batch norm sees each part
    separately."""
    learning_rate: Rate = 1e-4
    """Learning rate of Adam."""
    ema_decay: Annotated[float, Share(one=False)] = 0.9999
    """Decay of the exponential moving average of the weights, which sampling uses; smaller in early steps."""
    validation_images: Annotated[int, AtLeast(0)] = 512
    """Number of images for the validation loss, at most an eighth of all."""
    precision: Precision = "float32"
    """Number format of the products in training; weights are always float32."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unet.check(self.resolution)
        _ = self.recipe  # construction checks its ranges

    @property
    def recipe(self) -> Recipe:
        """The training recipe: Adam with torch's defaults. Raises ValueError for invalid settings."""
        return Recipe(self.epochs, self.batch, self.learning_rate, epsilon=1e-8, accumulate=self.accumulate)


@dataclass(frozen=True)
class Diffusion(DiffusionSettings):
    """A diffusion model, its training and its seed."""

    seed: Annotated[int, AtLeast(0)] = 0
    """Seed of the training."""


def diffusion_config(settings: DiffusionSettings, seed: int) -> Diffusion:
    """Return the diffusion model with these settings and this seed."""
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(DiffusionSettings)}
    return Diffusion(**fields, seed=seed)
