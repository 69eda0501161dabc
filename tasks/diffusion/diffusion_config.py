"""The configs of a diffusion model: its network and its training. They import no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.training.recipe import Count, Rate, Recipe

ScheduleName = Literal["linear", "cosine"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class UNet(Ranged):
    """A U-Net for square images, conditioned on a time and a vector by conditional batch norm.

    The defaults are those for 128 x 128 of Dhariwal & Nichol 2021, "Diffusion models beat GANs on image synthesis",
    appendix I, whose network is the one of Bordes et al. 2022, "High fidelity visualization of what your
    self-supervised representation knows about".
    """

    widths: tuple[int, ...] = (256, 256, 512, 768, 1024)
    """Channels at the images' resolution, at half of it, and so on."""
    blocks: Annotated[int, AtLeast(1)] = 2
    """Residual blocks at each resolution on the way down; one more on the way up."""
    attention: tuple[int, ...] = (32, 16, 8)
    """Resolutions with attention; there is some between the two ways, too."""
    heads: Annotated[int, AtLeast(1)] = 4
    """Heads of attention."""

    def conflicts(self) -> Iterator[str]:
        if not self.widths or any(width < 1 or width % self.heads for width in self.widths):
            yield (
                f"widths is {self.widths}; it must be at least one number of channels, each a multiple of heads, "
                f"which is {self.heads}"
            )
        if self.widths[0] % 2:
            yield f"widths begins with {self.widths[0]}; the first must be even: half are sines of the time"

    def check(self, resolution: int) -> None:
        """ValueError, in one line, unless the network fits images of this resolution."""
        halved = 2 ** (len(self.widths) - 1)
        if resolution < halved or resolution % halved:
            raise ValueError(f"resolution is {resolution}; with {len(self.widths)} widths it must divide by {halved}")
        known = [resolution // 2**level for level in range(len(self.widths))]
        if any(each not in known for each in self.attention):
            names = ", ".join(map(str, known))
            raise ValueError(f"attention is {self.attention}; it must be some of the network's resolutions, {names}")


SMALL = UNet((32, 64, 64), 1, (8,), 2)  # for 32 x 32


@dataclass(frozen=True)
class DiffusionSettings(Ranged):
    """A conditional diffusion model of square colour images and its training: it predicts the noise in a noised image.

    Ho et al. 2020, "Denoising diffusion probabilistic models", section 4: 1000 steps, a linear schedule, average
    0.9999; learning rate and minibatch as in the released code of Bordes et al. 2022 (32 GPUs with 8 images each). How
    long they train is unpublished: of 500,000 images 150 epochs are 290,000 steps.
    """

    resolution: int = 128
    """Side of the images, in pixels."""
    unet: UNet = UNet()
    """The network."""
    steps: Annotated[int, AtLeast(1)] = 1000
    """Steps in which noise is added."""
    schedule: ScheduleName = "linear"
    """How the variances of the noise grow over the steps."""
    epochs: Count = 150
    """Epochs of training."""
    batch: Count = 256
    """Images a step."""
    accumulate: Count = 1
    """Equal parts in which a minibatch is computed, each of which is a minibatch to batch norm."""
    learning_rate: Rate = 1e-4
    """The learning rate of Adam."""
    average: Annotated[float, Share(one=False)] = 0.9999
    """Momentum of the moving average of the weights, which is drawn from; early steps cut it down."""
    held_out: Annotated[int, AtLeast(0)] = 512
    """Images that are only used for the validation loss; an eighth of all at most."""
    precision: Precision = "float32"
    """Number format of the computation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unet.check(self.resolution)
        _ = self.recipe  # its ranges are checked on construction

    @property
    def recipe(self) -> Recipe:
        """How it is trained: Adam at torch's defaults. ValueError where that is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate, epsilon=1e-8, accumulate=self.accumulate)


@dataclass(frozen=True)
class Diffusion(DiffusionSettings):
    """A diffusion model and its training, by its own seed."""

    seed: Annotated[int, AtLeast(0)] = 0
    """The source of chance of the training."""


def diffusion_config(settings: DiffusionSettings, seed: int) -> Diffusion:
    """The diffusion model of these settings that is trained with this seed."""
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(DiffusionSettings)}
    return Diffusion(**fields, seed=seed)
