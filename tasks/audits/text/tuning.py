"""How language models read texts and are fine-tuned on them, and the small models of `scale=tiny`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tasks.language_models.fine_tuning_config import Precision
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Full, LanguageModelTuning, LowRank, Reading
from tasks.training.privacy_config import DifferentialPrivacy, WithoutPrivacy, guarantee_of
from tasks.training.recipe import Privacy

TINY_MODEL, TINY_BASE = LanguageModel("tiny-gpt#16x1"), LanguageModel("tiny-gpt#32x1")
TINY_LENGTH = 128
AnyReading = TypeVar("AnyReading", bound=Reading)


@dataclass(frozen=True)
class TextReading(Reading):
    """How a language model reads texts that it is not trained on here."""

    precision: Precision = "float32"
    """Ours: numbers that a model from a folder computes with."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from precision_conflicts(self.precision, self.model)


def precision_conflicts(precision: Precision, model: LanguageModel) -> Iterator[str]:
    """What forbids a model to compute with numbers of this precision."""
    if precision == "bfloat16" and model.tiny_sizes is not None:
        yield f"precision is bfloat16; the model must come from a folder, and {model.name} does not"


@dataclass(frozen=True)
class TextLowRank(LowRank):
    """Adapters are trained, and the weights of the model stay unchanged."""

    precision: Precision = "float32"
    """Ours: numbers that a model from a folder computes with; its adapters are float32 in any case."""


@dataclass(frozen=True)
class WholeGradients(WithoutPrivacy):
    """Training without differential privacy: the gradient of a step is computed for all of its texts together."""

    checkpointing: bool = False
    """Ours: whether the values of layers are computed again for gradients: less memory, and a third more time."""


@dataclass(frozen=True)
class TextTuning(LanguageModelTuning):
    """How a language model is fine-tuned on texts."""

    adaptation: Full | TextLowRank = Full()
    """Which weights are trained: all weights (full), or adapters of low rank (lora)."""
    privacy: WholeGradients | DifferentialPrivacy = WholeGradients()
    """Whether fine-tuning is differentially private, by single texts."""
    deduplicate: bool = False
    """Ours: whether a text that occurs several times in the training data is kept once."""

    @property
    def guarantee(self) -> Privacy | None:
        return guarantee_of(self.privacy)

    @property
    def precision(self) -> Precision:
        """Numbers that the model computes with."""
        return self.adaptation.precision if isinstance(self.adaptation, TextLowRank) else "float32"

    @property
    def job_fields(self) -> dict[str, Any]:
        return {
            **super().job_fields,
            "precision": self.precision,
            "checkpointing": isinstance(self.privacy, WholeGradients) and self.privacy.checkpointing,
            "deduplicate": self.deduplicate,
        }


def tiny_reading(reading: AnyReading) -> AnyReading:
    """The same reading by a small model."""
    tiny = replace(reading, model=TINY_MODEL, length=TINY_LENGTH)
    return replace(tiny, precision="float32") if isinstance(tiny, TextReading) else tiny


def tiny_tuning(tuning: TextTuning) -> TextTuning:
    """The same fine-tuning of a whole model, in seconds."""
    return replace(tuning, adaptation=Full(), epochs=2, batch=16, accumulate=1)
