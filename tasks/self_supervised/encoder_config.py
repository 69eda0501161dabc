"""What an encoder is built from, beside its weights. Light enough for plans: it imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.extras import Extra
from tasks.ranges import check_minimums
from tasks.self_supervised import backbone
from tasks.self_supervised.backbone import check
from tasks.self_supervised.pretraining_config import Pretraining, check_projector


@dataclass(frozen=True)
class EncoderConfig:
    """A backbone, a projector of these widths on top, and the resolution of the images."""

    backbone: str = "resnet101"
    projector: tuple[int, ...] = (8192, 8192, 8192)
    resolution: int = 224

    def __post_init__(self) -> None:
        check(self.backbone, self.resolution)
        check_projector(self.projector)
        check_minimums(self, {"resolution": 8})

    def extras(self) -> tuple[Extra, ...]:
        return backbone.extras(self.backbone)


def encoder_of_pretraining(config: Pretraining) -> EncoderConfig:
    """The encoder that a training trains."""
    return EncoderConfig(config.backbone, config.projector, config.augmentation.resolution)
