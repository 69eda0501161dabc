"""The config of a self-supervised training: pictures, network, criterion, views, optimiser, and when weights are kept.

Light enough for plans: it imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasks.datasets.boxed.partition import TrainingImages
from tasks.extras import Extra
from tasks.ranges import above_zero, check_minimums, one_of, share
from tasks.self_supervised import backbone
from tasks.self_supervised.backbone import check
from tasks.self_supervised.criterion import BYOL, Criterion, VICReg
from tasks.self_supervised.warmup_cosine import WarmupCosine
from tasks.training.chains import check_recorded

OptimiserName = Literal["lars", "sgd", "adamw"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Augmentation:
    """How a view of a picture is drawn: a window of it, brought to a square, and its colours changed.

    The window's ratio of width to height is from 3/4 to 4/3, uniform in its logarithm. Small windows have more detail
    from squares of a longer `side`.
    """

    resolution: int = 224
    """Side of a view, in pixels."""
    least: float = 0.08
    """Smallest share of the picture's area that a view's window has."""
    flip: float = 0.5
    """Chance that a view is mirrored."""
    jitter: float = 1.0
    """Strength of the change of colours: 1 changes brightness and contrast by up to 0.4, saturation by up to 0.2,
    hue by up to 0.1 of the circle, in 80 % of the views."""
    grey: float = 0.2
    """Chance that a view is grey."""
    blur: float = 1.0
    """Chance that the first view is blurred (Gaussian, sigma from 0.1 to 2 pixels of 224)."""
    solarise: float = 0.2
    """Chance that the second view is solarised."""
    side: int = 0
    """Side of the squares in which whole pictures are held; 0: twice the resolution, or the pictures' longest side
    if that is shorter."""

    def __post_init__(self) -> None:
        check_minimums(self, {"resolution": 8, "jitter": 0, "side": 0})
        share(self, "least", zero=False)
        share(self, "flip", "grey", "blur", "solarise")
        if self.jitter > 2.5:  # a brightness below 0
            raise ValueError(f"jitter is {self.jitter}; it must be at most 2.5")


@dataclass(frozen=True)
class Pretraining:
    """One self-supervised training, and the epochs after which its weights are kept.

    The learning rate is `base_learning_rate` times the pictures of a step / 256. It rises over `warmup` epochs and
    falls by half a cosine to 0.001 of that at the end of `schedule` epochs; a link of a chain has fewer `epochs` and
    the same schedule. A step has `batch` pictures, or all of them if there are fewer; what is left of an epoch is left
    out. With `accumulate` above 1 it computes them in so many parts and takes the memory of a part: the loss and its
    gradient are those of the whole minibatch, but batch norm sees each part as a minibatch of its own.

    `projector` has the widths of the projector's layers. Weights are kept after the epochs `recorded` (0: before
    training); empty stands for the last, and None for no epoch.
    """

    images: TrainingImages
    criterion: Criterion = VICReg()
    backbone: str = "resnet101"
    projector: tuple[int, ...] = (8192, 8192, 8192)
    augmentation: Augmentation = Augmentation()
    epochs: int = 1000
    schedule: int = 1000
    batch: int = 1024
    accumulate: int = 1
    optimiser: OptimiserName = "lars"
    base_learning_rate: float = 0.2
    warmup: int = 10
    weight_decay: float = 1e-6
    precision: Precision = "float32"
    recorded: tuple[int, ...] | None = ()
    seed: int = 0

    def __post_init__(self) -> None:
        one_of(self, "optimiser", OptimiserName)
        one_of(self, "precision", Precision)
        check(self.backbone, self.augmentation.resolution)
        check_projector(self.projector)
        check_minimums(self, LEAST)
        above_zero(self, "base_learning_rate")
        _ = self.rates  # its ranges are checked on construction
        if self.epochs > self.schedule:
            raise ValueError(f"epochs is {self.epochs}; it must be at most schedule, which is {self.schedule}")
        check_parts(self.batch, self.accumulate)
        check_recorded(self.recorded, self.epochs)
        if isinstance(self.criterion, BYOL) and self.criterion.predictor[-1:] not in ((), self.projector[-1:]):
            width = self.projector[-1]
            raise ValueError(
                f"predictor is {self.criterion.predictor}; its last width must be the projector's, {width}"
            )

    def extras(self) -> tuple[Extra, ...]:
        return backbone.extras(self.backbone)

    @property
    def asked(self) -> tuple[int, ...]:
        """The epochs after which weights are kept, ascending."""
        return (self.epochs,) if self.recorded == () else self.recorded or ()

    @property
    def rates(self) -> WarmupCosine:
        """The schedule of the learning rate. ValueError where the warm-up is as long as the schedule."""
        if self.warmup >= self.schedule:
            raise ValueError(f"warmup is {self.warmup}; it must be below schedule, which is {self.schedule}")
        return WarmupCosine(self.schedule, self.warmup, FINAL)


FINAL = 0.001  # the last learning rate, as a share of the highest
LEAST = {
    **dict.fromkeys(("epochs", "accumulate"), 1),
    "batch": 2,  # what batch norm needs
    **dict.fromkeys(("warmup", "weight_decay", "seed"), 0),
}


def check_projector(widths: tuple[int, ...]) -> None:
    if not widths or any(width < 1 for width in widths):
        raise ValueError(f"projector is {widths}; it must be one width or more, each at least 1")


def check_parts(batch: int, accumulate: int) -> None:
    if batch % accumulate:
        raise ValueError(f"accumulate is {accumulate}; it must divide batch, which is {batch}")
    if batch // accumulate < 2:
        raise ValueError(f"accumulate is {accumulate}; batch norm needs two pictures in a part, and batch is {batch}")
