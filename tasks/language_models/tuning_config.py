"""Settings that audits of language models share: reading texts and fine-tuning. This module does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tasks.contract.extras import PEFT, Extra
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.language_models.language_model import LanguageModel
from tasks.training.recipe import Privacy

UNUSED_RANK = 8  # rank that appears in the keys of trainings of all weights


@dataclass(frozen=True)
class Reading(Ranged):
    """Settings for reading texts with a language model."""

    model: LanguageModel = LanguageModel("tiny-gpt")
    """Language model: folder:PATH, hub:NAME, or a small built-in model."""
    length: Annotated[int, AtLeast(8)] = 512
    """Longest text in tokens; longer texts are truncated."""


@dataclass(frozen=True)
class Full:
    """Training of all weights."""

    tag: ClassVar[str] = "full"


@dataclass(frozen=True)
class LowRank(Ranged):
    """Training of adapters, while the model's own weights stay unchanged.

    Hu et al. 2022, "LoRA: Low-rank adaptation of large language models".
    """

    tag: ClassVar[str] = "lora"
    rank: Annotated[int, AtLeast(1)] = 8
    """Rank of the updates."""

    def extras(self) -> tuple[Extra, ...]:
        return (PEFT,)


@dataclass(frozen=True)
class LanguageModelTuning(Ranged):
    """Fine-tuning settings."""

    tag: ClassVar[str] = "fine-tuning"
    adaptation: Full | LowRank = Full()
    """Trained weights: all (full), or low-rank adapters (lora)."""
    epochs: Annotated[int, AtLeast(1)] = 10
    """Number of epochs."""
    batch: Annotated[int, AtLeast(1)] = 32
    """Number of texts per step."""
    accumulate: Annotated[int, AtLeast(1)] = 1
    """Gradient accumulation: number of parts of a step, which needs the memory of only one part."""
    learning_rate: Annotated[float, Finite()] = 1e-3
    """Constant learning rate of AdaFactor."""
    dropout: Annotated[float, Share(one=False)] = 0.0
    """Dropout probability during training."""

    def conflicts(self) -> Iterator[str]:
        if self.batch % self.accumulate:
            yield f"accumulate: expected a divisor of batch={self.batch}, got {self.accumulate}. Change one of both."

    @property
    def guarantee(self) -> Privacy | None:
        """The differential privacy guarantee for single texts, or None without one."""
        return None

    @property
    def job_fields(self) -> dict[str, Any]:
        """The settings as fields of a training job, which stores the adaptation by name and rank."""
        return {
            "adaptation": self.adaptation.tag,
            "rank": self.adaptation.rank if isinstance(self.adaptation, LowRank) else UNUSED_RANK,
            "epochs": self.epochs,
            "batch": self.batch,
            "accumulate": self.accumulate,
            "learning_rate": self.learning_rate,
            "dropout": self.dropout,
            "privacy": self.guarantee,
        }
