"""Configuration of self-supervised training and its encoder: backbone, criterion, views, schedule and optimiser.

This module does not import torch, so that planning stays light. `tasks.self_supervised.networks` builds backbones, and
`tasks.self_supervised.learners` computes criteria.

| backbone                                        | network                                                           |
|-------------------------------------------------|-------------------------------------------------------------------|
| `resnet18`, `resnet34`, `resnet50`, `resnet101` | torchvision's, without the last layer                             |
| `vit-ti`, `vit-s`, `vit-b`, `vit-l`             | timm's vision transformers, patches of 16, class token            |
| `small-resnet`, `small-resnet#WIDTH`            | for images of 32 x 32, of that width (32)                         |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.contract.extras import TIMM, Extra
from tasks.contract.ranges import AtLeast, Between, Finite, Matching, Ranged, Share, UpTo
from tasks.datasets.boxed.partition import TrainingImages
from tasks.training.chains import recorded_conflicts


@dataclass(frozen=True)
class VICReg(Ranged):
    """Variance, invariance and covariance of embeddings. Bardes et al. 2022, "VICReg", eq. 6."""

    tag: ClassVar[str] = "vicreg"

    invariance: Annotated[float, AtLeast(0)] = 25.0
    """Weight of the invariance term."""
    variance: Annotated[float, AtLeast(0)] = 25.0
    """Weight of the variance term."""
    covariance: Annotated[float, AtLeast(0)] = 1.0
    """Weight of the covariance term."""


@dataclass(frozen=True)
class SimCLR(Ranged):
    """Cross-entropy of identifying the other view among the views of all images. Chen et al. 2020, eq. 1."""

    tag: ClassVar[str] = "simclr"

    temperature: Annotated[float, Finite()] = 0.15
    """Temperature of the softmax over similarities."""


@dataclass(frozen=True)
class BarlowTwins(Ranged):
    """Distance of the views' cross-correlation from the identity. Zbontar et al. 2021, "Barlow Twins", eq. 1."""

    tag: ClassVar[str] = "barlow"

    redundancy: Annotated[float, AtLeast(0)] = 0.0051
    """Weight of the redundancy term."""


@dataclass(frozen=True)
class BYOL(Ranged):
    """Prediction of a teacher's output for the other view. Grill et al. 2020, "Bootstrap your own latent", eq. 2.

    The teacher is a moving average of the trained network. Over the schedule, its momentum rises from `momentum` to 1
    by half a cosine.
    """

    tag: ClassVar[str] = "byol"

    momentum: Annotated[float, Share()] = 0.996
    """Momentum of the teacher at the start of training."""
    predictor: tuple[Annotated[int, AtLeast(1)], ...] = ()
    """Widths of the predictor's layers, of which the last equals the projector's; empty for the projector's widths."""


@dataclass(frozen=True)
class DINO(Ranged):
    """Cross-entropy with a teacher's centred and sharpened output for the other view. Caron et al. 2021, eq. 1.

    The teacher is a moving average of the trained network. Its temperature rises from `initial_temperature` to
    `final_temperature` over `temperature_warmup` epochs. Its momentum rises from `momentum` to 1 over the schedule, by
    half a cosine. There are two views and no smaller crops.
    """

    tag: ClassVar[str] = "dino"

    temperature: Annotated[float, Finite()] = 0.1
    """Temperature of the trained network."""
    initial_temperature: Annotated[float, Finite()] = 0.04
    """Temperature of the teacher in the first epoch."""
    final_temperature: Annotated[float, Finite()] = 0.07
    """Temperature of the teacher after `temperature_warmup` epochs."""
    temperature_warmup: Annotated[int, AtLeast(0)] = 50
    """Epochs over which the teacher's temperature rises."""
    centre_momentum: Annotated[float, Share()] = 0.9
    """Momentum of the centre that is subtracted from the teacher's outputs."""
    momentum: Annotated[float, Share()] = 0.996
    """Momentum of the teacher at the start of training."""

    def teacher_temperature(self, epoch: int) -> float:
        """Return the teacher's temperature in an epoch, counted from 1."""
        if self.temperature_warmup <= 1:
            risen = 1.0
        else:
            risen = min(1.0, (epoch - 1) / (self.temperature_warmup - 1))
        return self.initial_temperature + (self.final_temperature - self.initial_temperature) * risen


@dataclass(frozen=True)
class Supervised(Ranged):
    """Cross-entropy of the classes, computed by batch norm, ReLU and a linear layer on top of the projector.

    One view.
    """

    tag: ClassVar[str] = "supervised"


Criterion = VICReg | SimCLR | BarlowTwins | BYOL | DINO | Supervised

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101")
TRANSFORMERS = {  # names in timm
    "vit-ti": "vit_tiny_patch16_224",
    "vit-s": "vit_small_patch16_224",
    "vit-b": "vit_base_patch16_224",
    "vit-l": "vit_large_patch16_224",
}
PATCH = 16
SMALL = re.compile(r"small-resnet(?:#([1-9]\d{0,3}))?")
WIDTH = 32
BACKBONES = (*RESNETS, *TRANSFORMERS, "small-resnet")


FEATURES = {  # columns of an embedding by the backbone
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet101": 2048,
    "vit-ti": 192,
    "vit-s": 384,
    "vit-b": 768,
    "vit-l": 1024,
}


def layer_features(config: EncoderConfig, layer: int) -> int:
    """Return the number of columns of an embedding by this layer, without building the network."""
    if layer:
        return config.projector[min(layer, len(config.projector)) - 1]
    return FEATURES.get(config.backbone) or 4 * small_resnet_width(config.backbone)


# The name of a backbone.
Backbone = Annotated[
    str,
    Matching("|".join((*BACKBONES, SMALL.pattern)), f"one of {', '.join(BACKBONES)}, small-resnet#WIDTH"),
]
Widths = tuple[int, ...]  # of the projector's layers


def encoder_conflicts(backbone: str, projector: Widths, resolution: int) -> Iterator[str]:
    """Yield the conflicts of a backbone with the resolution and the projector."""
    if backbone in TRANSFORMERS and resolution % PATCH:
        yield f"resolution is {resolution}; for {backbone} it must be a multiple of {PATCH}"
    if not projector or min(projector) < 1:
        yield f"projector is {projector}; it must be one width or more, each at least 1"


def step_conflicts(batch: int, accumulate: int) -> Iterator[str]:
    """Yield the conflicts of steps of `batch` images that are computed in `accumulate` parts."""
    if batch % accumulate:
        yield f"accumulate is {accumulate}; it must divide batch, which is {batch}"
    if batch // accumulate < 2:
        yield f"accumulate is {accumulate}; batch norm needs two images in a part, and batch is {batch}"


def criterion_conflicts(criterion: Criterion, projector: Widths) -> Iterator[str]:
    """Yield the conflicts of a criterion with the widths of the projector."""
    if isinstance(criterion, BYOL) and criterion.predictor[-1:] not in ((), projector[-1:]):
        yield f"predictor is {criterion.predictor}; its last width must be the projector's, {projector[-1]}"


def backbone_extras(name: str) -> tuple[Extra, ...]:
    """Return the optional packages that a backbone of this name needs."""
    return (TIMM,) if name in TRANSFORMERS else ()


def small_resnet_width(name: str) -> int:
    """Return the width of a small-resnet."""
    match = SMALL.fullmatch(name)
    assert match is not None
    return int(match[1] or WIDTH)


Factors = NDArray[np.float64]


@dataclass(frozen=True)
class WarmupCosine(Ranged):
    """Linear warm-up from 0 over the first `warmup` epochs, then half a cosine down to `final` times the peak rate.

    p / warmup for p < warmup, then final + (1 - final) (1 + cos(pi (p - warmup) / (epochs - warmup))) / 2, where p
    epochs have passed before the step; `final` after `epochs`. Loshchilov & Hutter 2017, "SGDR", eq. 5 without
    restarts, after the warm-up of Goyal et al. 2017, which lasts 10 epochs as in Chen et al. 2020, "A simple framework
    for contrastive learning of visual representations".
    """

    epochs: Annotated[float, Finite()]  # including the warm-up
    warmup: Annotated[float, AtLeast(0), UpTo("epochs", below=True)] = 10.0
    final: Annotated[float, Share()] = 0.0

    def factors(self, passed: Factors) -> Factors:
        """Return the learning-rate factor after `passed` (possibly fractional) epochs, with the shape of `passed`."""
        rising = passed / self.warmup if self.warmup else np.ones_like(passed)
        gone = np.clip((passed - self.warmup) / (self.epochs - self.warmup), 0, 1)
        falling = self.final + (1 - self.final) * (1 + np.cos(math.pi * gone)) / 2
        return np.where(passed < self.warmup, rising, falling)


OptimiserName = Literal["lars", "sgd", "adamw"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Augmentation(Ranged):
    """How a view of an image is produced: a random window, resized to a square, with changed colours.

    The window's aspect ratio (width to height) is from 3/4 to 4/3, uniform in its logarithm. With a longer `side` of
    the stored squares, small windows show more detail.
    """

    resolution: Annotated[int, AtLeast(8)] = 224
    """Side of a view, in pixels."""
    min_area: Annotated[float, Share(zero=False)] = 0.08
    """Smallest share of the image's area in a view."""
    flip: Annotated[float, Share()] = 0.5
    """Probability that a view is mirrored."""
    jitter: Annotated[float, Between(0, 2.5)] = 1.0
    """Strength of the colour changes: 1 changes brightness and contrast by up to 0.4, saturation by up to 0.2, and hue
    by up to 0.1 of the circle, in 80 % of the views."""
    grey: Annotated[float, Share()] = 0.2
    """Probability that a view is grey."""
    blur: Annotated[float, Share()] = 1.0
    """Probability that the first view is blurred (Gaussian, sigma from 0.1 to 2 pixels of 224)."""
    solarise: Annotated[float, Share()] = 0.2
    """Probability that the second view is solarised."""
    side: Annotated[int, AtLeast(0)] = 0
    """Side of the stored square images, in pixels; 0 for twice the resolution, or the images' longest side if
    shorter."""


@dataclass(frozen=True)
class Pretraining(Ranged):
    """One self-supervised training, and the epochs after which its weights are kept.

    The learning rate is `base_learning_rate` times the number of images per step / 256. It rises over `warmup` epochs
    and falls by half a cosine to 0.001 of that after `schedule` epochs. A link of a chain has fewer `epochs` but the
    same schedule. A step has `batch` images, or all images if there are fewer; the remainder of an epoch is dropped.
    With `accumulate` above 1, a step is computed in parts and needs the memory of only one part: loss and gradient are
    those of the whole minibatch, but batch norm sees each part separately.

    `projector` contains the widths of the projector's layers. Weights are kept after the epochs in `recorded` (0:
    before training); if it is empty, after the last epoch; if it is None, after none.
    """

    images: TrainingImages
    criterion: Criterion = VICReg()
    backbone: Backbone = "resnet101"
    projector: Widths = (8192, 8192, 8192)
    augmentation: Augmentation = Augmentation()
    epochs: Annotated[int, AtLeast(1), UpTo("schedule")] = 1000
    schedule: int = 1000
    batch: Annotated[int, AtLeast(2)] = 1024
    accumulate: Annotated[int, AtLeast(1)] = 1
    optimiser: OptimiserName = "lars"
    base_learning_rate: Annotated[float, Finite()] = 0.2
    warmup: Annotated[int, AtLeast(0), UpTo("schedule", below=True)] = 10
    weight_decay: Annotated[float, AtLeast(0)] = 1e-6
    precision: Precision = "float32"
    recorded: tuple[int, ...] | None = ()
    seed: Annotated[int, AtLeast(0)] = 0

    def conflicts(self) -> Iterator[str]:
        yield from encoder_conflicts(self.backbone, self.projector, self.augmentation.resolution)
        yield from step_conflicts(self.batch, self.accumulate)
        yield from recorded_conflicts(self.recorded, self.epochs)
        yield from criterion_conflicts(self.criterion, self.projector)

    def extras(self) -> tuple[Extra, ...]:
        return backbone_extras(self.backbone)

    @property
    def asked(self) -> tuple[int, ...]:
        """The epochs after which weights are kept, ascending."""
        return (self.epochs,) if self.recorded == () else self.recorded or ()

    @property
    def rates(self) -> WarmupCosine:
        """The learning-rate schedule."""
        return WarmupCosine(self.schedule, self.warmup, FINAL)


FINAL = 0.001  # the final learning rate, as a share of the highest


@dataclass(frozen=True)
class EncoderConfig(Ranged):
    """A backbone, a projector with these widths on top of it, and the image resolution."""

    backbone: Backbone = "resnet101"
    projector: Widths = (8192, 8192, 8192)
    resolution: Annotated[int, AtLeast(8)] = 224

    def conflicts(self) -> Iterator[str]:
        yield from encoder_conflicts(self.backbone, self.projector, self.resolution)

    def extras(self) -> tuple[Extra, ...]:
        return backbone_extras(self.backbone)


def encoder_of_pretraining(config: Pretraining) -> EncoderConfig:
    """Return the encoder that a training trains."""
    return EncoderConfig(config.backbone, config.projector, config.augmentation.resolution)
