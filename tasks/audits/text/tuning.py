"""Settings for reading texts and for fine-tuning on them, and the small models used by `scale=tiny`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Full, LanguageModelTuning, LowRank, Reading
from tasks.numerics.precision import Precision
from tasks.training.privacy_config import DifferentialPrivacy, WithoutPrivacy, guarantee_of
from tasks.training.recipe import Privacy

TINY_MODEL = LanguageModel("tiny-gpt#16x1")
TINY_BASE = LanguageModel("tiny-gpt#32x1")
TINY_LENGTH = 128
AnyReading = TypeVar("AnyReading", bound=Reading)


@dataclass(frozen=True)
class TextReading(Reading):
    """Settings for a model that reads texts without training."""

    precision: Precision = "float32"
    """Ours: number format of a model loaded from a folder."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from precision_conflicts(self.precision, self.model)


def precision_conflicts(precision: Precision, model: LanguageModel) -> Iterator[str]:
    """Yield the reason why a model cannot compute in this number format."""
    if precision == "bfloat16" and model.tiny_sizes is not None:
        yield (
            f"precision: expected float32 for the small model {model.name}, got bfloat16. Set precision=float32 or "
            "give a model from a folder."
        )


@dataclass(frozen=True)
class TextLowRank(LowRank):
    """Training of adapters; the model's own weights stay unchanged."""

    precision: Precision = "float32"
    """Ours: number format of a model loaded from a folder; its adapters always use float32."""


@dataclass(frozen=True)
class WholeGradients(WithoutPrivacy):
    """Training without differential privacy, with one gradient for all texts in a step."""

    checkpointing: bool = False
    """Ours: gradient checkpointing, which saves memory and takes a third more time."""


@dataclass(frozen=True)
class TextTuning(LanguageModelTuning):
    """Fine-tuning settings."""

    adaptation: Full | TextLowRank = Full()
    """Trained weights: all (full), or low-rank adapters (lora)."""
    privacy: WholeGradients | DifferentialPrivacy = WholeGradients()
    """Differential privacy, with single texts as the unit of protection."""
    deduplicate: bool = False
    """Ours: whether repeated training texts are used only once."""

    @property
    def guarantee(self) -> Privacy | None:
        return guarantee_of(self.privacy)

    @property
    def precision(self) -> Precision:
        """Number format of the model."""
        if isinstance(self.adaptation, TextLowRank):
            return self.adaptation.precision
        return "float32"

    @property
    def job_fields(self) -> dict[str, Any]:
        return {
            **super().job_fields,
            "precision": self.precision,
            "checkpointing": isinstance(self.privacy, WholeGradients) and self.privacy.checkpointing,
            "deduplicate": self.deduplicate,
        }


def tiny_reading(reading: AnyReading) -> AnyReading:
    """Return the same settings with a small model."""
    tiny = replace(reading, model=TINY_MODEL, length=TINY_LENGTH)
    if isinstance(tiny, TextReading):
        return replace(tiny, precision="float32")
    return tiny


def tiny_tuning(tuning: TextTuning) -> TextTuning:
    """Return the same settings for full fine-tuning that takes seconds."""
    return replace(tuning, adaptation=Full(), epochs=2, batch=16, accumulate=1)
