"""How encoders are trained: the settings of an audit, from which the job of each training is made.

It imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from tasks.contract.extras import Extra
from tasks.contract.ranges import AtLeast, Ranged, UpTo
from tasks.datasets.boxed.partition import TrainingImages
from tasks.self_supervised.pretraining_config import (
    Augmentation,
    Backbone,
    Criterion,
    OptimiserName,
    Precision,
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
    """How an encoder is trained on images, with or without labels."""

    tag: ClassVar[str] = "pretraining"

    criterion: Criterion = VICReg()
    """The loss that the encoders are trained with, and its settings."""
    backbone: Backbone = "resnet101"
    """The network whose first layer of embeddings is layer 0."""
    projector: Widths = (8192, 8192, 8192)
    """Widths of the projector's layers."""
    augmentation: Augmentation = Augmentation()
    """How views of an image are drawn."""
    epochs: Count = 1000
    """Epochs of training."""
    link: Annotated[int, AtLeast(0)] = 50
    """Ours: epochs per link of the chain of jobs that a training consists of and resumes from after an interruption;
    0: one job."""
    batch: Annotated[int, AtLeast(2)] = 1024
    """Images per step."""
    accumulate: Count = 1
    """Ours: parts in which a step is computed, one after another, in the memory of one."""
    optimiser: OptimiserName = "lars"
    """The optimiser."""
    base_learning_rate: Rate = 0.2
    """The learning rate is this x batch / 256 after the warm-up."""
    warmup: Annotated[int, AtLeast(0), UpTo("epochs", below=True)] = 10
    """Epochs over which the learning rate rises."""
    weight_decay: Annotated[float, AtLeast(0)] = 1e-6
    """Weight decay."""
    precision: Precision = "float32"
    """Number format of the computation."""
    fine_tuning: Annotated[int, AtLeast(0)] = 0
    """Epochs of further training on labels, after each of which the encoders are attacked, too; 0: none."""

    def conflicts(self) -> Iterator[str]:
        yield from encoder_conflicts(self.backbone, self.projector, self.augmentation.resolution)
        yield from step_conflicts(self.batch, self.accumulate)
        yield from criterion_conflicts(self.criterion, self.projector)
        if self.fine_tuning and isinstance(self.criterion, Supervised):
            yield f"fine_tuning is {self.fine_tuning}; it must be 0, since a supervised model knows labels"

    def extras(self) -> tuple[Extra, ...]:
        return backbone_extras(self.backbone)

    @property
    def last_epoch(self) -> int:
        """The epochs that encoders are trained for, those of fine-tuning included."""
        return self.epochs + self.fine_tuning

    @property
    def top(self) -> int:
        """The last layer: the projector's output, or the logits of a supervised model."""
        return len(self.projector) + isinstance(self.criterion, Supervised)

    def pretraining(self, images: TrainingImages, recorded: tuple[int, ...], seed: int) -> Pretraining:
        """The training on these images, up to its last epoch. Raises ValueError if it cannot record these epochs."""
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
