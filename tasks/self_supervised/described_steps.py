"""Training steps and evaluations of encoders, described without torch.

`tasks.counting.traced_steps` counts their operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tasks.self_supervised.pretraining_config import Criterion, EncoderConfig


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
