"""Training steps and evaluations of classifiers and density models, described without torch.

`tasks.counting.traced_steps` counts their operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tasks.models.catalog import PLAIN, Regularisers, Shape
from tasks.training.update_costs import PRIVATE


class _TrainingStep:
    """A training step whose unit of work has `images` of the step's `batch`."""

    images: float
    batch: int
    is_private: bool

    @property
    def share(self) -> float:
        """The part of the traced step that one unit of work takes."""
        return self.images * (PRIVATE if self.is_private else 1.0) / self.batch


@dataclass(frozen=True)
class ClassifierStep(_TrainingStep):
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


@dataclass(frozen=True)
class DensityStep(_TrainingStep):
    """A training step of a density model. The unit of work is an image."""

    is_stacked: ClassVar[bool] = True

    model: str
    shape: Shape
    width: float = 1.0
    batch: int = 64
    is_private: bool = False
    images: float = 1.0  # images in a unit of work
    precision: str = "float32"


@dataclass(frozen=True)
class CodesStep:
    """The likelihood of an image given one code, as in an estimate of log p. The unit of work is a code."""

    is_stacked: ClassVar[bool] = True

    model: str
    shape: Shape
    width: float = 1.0
    codes: float = 1.0  # codes in a unit of work
