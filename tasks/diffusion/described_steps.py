"""Training and sampling steps of diffusion models, described without torch.

`tasks.counting.traced_steps` counts their operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tasks.diffusion.diffusion_config import UNet


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
