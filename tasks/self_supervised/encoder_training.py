"""Training settings for an audit's encoders, and the configuration of each training job. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.contract.extras import Extra
from tasks.contract.ranges import AtLeast, Ranged, UpTo
from tasks.datasets.boxed.partition import TrainingImages
from tasks.numerics.precision import Precision
from tasks.self_supervised.pretraining_config import (
    Augmentation,
    Backbone,
    Criterion,
    OptimiserName,
    Pretraining,
    Supervised,
    VICReg,
    Widths,
    backbone_extras,
    criterion_conflicts,
    encoder_conflicts,
    step_conflicts,
)
from tasks.training.recipe import Count, Rate


@dataclass(frozen=True)
class EncoderTraining(Ranged):
    """Training of an encoder on images, with or without labels."""

    tag: ClassVar[str] = "pretraining"

    criterion: Criterion = VICReg()
    """Loss of the encoders and its settings."""
    backbone: Backbone = "resnet101"
    """Backbone network (layer 0)."""
    projector: Widths = (8192, 8192, 8192)
    """Widths of the projector layers."""
    augmentation: Augmentation = Augmentation()
    """Augmentation that produces the views of an image."""
    epochs: Count = 1000
    """Epochs of training."""
    link: Annotated[int, AtLeast(0)] = 50
    """Ours: epochs per link of a training, which resumes from the last complete link; 0 plans a single job."""
    batch: Annotated[int, AtLeast(2)] = 1024
    """Images per step."""
    accumulate: Count = 1
    """Ours: sequential parts of a step, which reduce its memory to that of one part."""
    optimiser: OptimiserName = "lars"
    """Optimiser."""
    base_learning_rate: Rate = 0.2
    """Base learning rate; the rate after the warm-up is this x batch / 256."""
    warmup: Annotated[int, AtLeast(0), UpTo("epochs", below=True)] = 10
    """Warm-up epochs of the learning rate."""
    weight_decay: Annotated[float, AtLeast(0)] = 1e-6
    """Weight decay."""
    precision: Precision = "float32"
    """Number format of the products in training; weights are always float32."""
    fine_tuning: Annotated[int, AtLeast(0)] = 0
    """Epochs of fine-tuning on labels, after each of which encoders are attacked again; 0 omits fine-tuning."""

    def conflicts(self) -> Iterator[str]:
        yield from encoder_conflicts(self.backbone, self.projector, self.augmentation.resolution)
        yield from step_conflicts(self.batch, self.accumulate)
        yield from criterion_conflicts(self.criterion, self.projector)
        if self.fine_tuning and isinstance(self.criterion, Supervised):
            yield f"fine_tuning is {self.fine_tuning}; it must be 0, since a supervised model already trains on labels"

    def extras(self) -> tuple[Extra, ...]:
        return backbone_extras(self.backbone)

    @property
    def last_epoch(self) -> int:
        """The total number of epochs of training and fine-tuning."""
        return self.epochs + self.fine_tuning

    @property
    def top(self) -> int:
        """The last layer: the projector's output, or the logits of a supervised model."""
        return len(self.projector) + isinstance(self.criterion, Supervised)

    def pretraining(self, images: TrainingImages, recorded: tuple[int, ...], seed: int) -> Pretraining:
        """Return the training on these images, up to its last epoch.

        Raises ValueError if it cannot record these epochs.
        """
        return Pretraining(
            images=images,
            criterion=self.criterion,
            backbone=self.backbone,
            projector=self.projector,
            augmentation=self.augmentation,
            epochs=self.epochs,
            schedule=self.epochs,
            batch=self.batch,
            accumulate=self.accumulate,
            optimiser=self.optimiser,
            base_learning_rate=self.base_learning_rate,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            precision=self.precision,
            recorded=recorded,
            seed=seed,
        )
