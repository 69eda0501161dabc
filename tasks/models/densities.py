"""Models of the density of images by name. Planning a training imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.models import widths
from tasks.models.custom import Factory, Named, is_own

DESCRIPTIONS: Mapping[str, str] = {
    "vae": "fully connected 512-256-16 and its mirror, of binary pixels in a frame of two; width",
    "conv-vae": "convolutional, 64 codes, for 32x32 images; normal pixels whose variances the decoder gives",
    "conv-vae-one-scale": "convolutional, 32 codes, for 32x32 images; normal pixels of one learned variance",
    "PACKAGE.MODULE:FACTORY": "your own: factory(shape) makes a torch.nn.Module with log_prob(images)",
}
WIDE = ("vae",)  # those whose hidden layers come in any width
SIZES: Mapping[str, tuple[int, int]] = {"conv-vae": (32, 32), "conv-vae-one-scale": (32, 32)}  # the only ones


@dataclass(frozen=True)
class DensityModel(Named):
    """A density model by name: `vae`, `package.module:factory` or `package.module:factory@digest`."""

    def check(self, width: float = 1.0) -> None:
        """ValueError, in one line, unless there is such a model, in this width."""
        if is_own(self.name):
            Factory.parse(str(self), "model")
        elif self.name not in DESCRIPTIONS:
            raise ValueError(f"model is {self.name!r}; it must be one of {', '.join(DESCRIPTIONS)}")
        widths.check("model", self.name, width, WIDE)

    def check_size(self, height: int, width: int) -> None:
        """ValueError, in one line, where the model is not for images of this size."""
        expected = SIZES.get(self.name, (height, width))
        if (height, width) != expected:
            raise ValueError(
                f"model is {self.name}, for images of {expected[0]} x {expected[1]}; the data's are {height} x {width} "
                f"(add #{expected[0]}x{expected[1]} to their name to have them resized)"
            )
