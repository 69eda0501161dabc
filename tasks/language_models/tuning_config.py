"""How a language model reads texts and how it is fine-tuned: the settings that audits of language models share.

It imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tasks.contract.extras import PEFT, Extra
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.language_models.language_model import LanguageModel
from tasks.training.recipe import Privacy

UNUSED_RANK = 8  # the rank that trainings of the whole model carry in their keys


@dataclass(frozen=True)
class Reading(Ranged):
    """Which language model reads texts, and how much of each."""

    model: LanguageModel = LanguageModel("tiny-gpt")
    """The language model: folder:PATH, hub:NAME, or one of the small built-in models."""
    length: Annotated[int, AtLeast(8)] = 512
    """Longest text, in tokens; longer texts are cut off."""


@dataclass(frozen=True)
class Full:
    """Every weight of the model is trained."""

    tag: ClassVar[str] = "full"


@dataclass(frozen=True)
class LowRank(Ranged):
    """Adapters are trained, and the weights of the model stay unchanged.

    Hu et al. 2022, "LoRA: Low-rank adaptation of large language models".
    """

    tag: ClassVar[str] = "lora"
    rank: Annotated[int, AtLeast(1)] = 8
    """Rank of the updates."""

    def extras(self) -> tuple[Extra, ...]:
        return (PEFT,)


@dataclass(frozen=True)
class LanguageModelTuning(Ranged):
    """How a language model is fine-tuned."""

    tag: ClassVar[str] = "fine-tuning"
    adaptation: Full | LowRank = Full()
    """Which weights are trained: all weights (full), or adapters of low rank (lora)."""
    epochs: Annotated[int, AtLeast(1)] = 10
    """Epochs of fine-tuning."""
    batch: Annotated[int, AtLeast(1)] = 32
    """Texts per step."""
    accumulate: Annotated[int, AtLeast(1)] = 1
    """Parts in which a step is computed, one after another, in the memory of one."""
    learning_rate: Annotated[float, Finite()] = 1e-3
    """The constant learning rate of AdaFactor."""
    dropout: Annotated[float, Share(one=False)] = 0.0
    """Dropout of the model during training."""

    def conflicts(self) -> Iterator[str]:
        if self.batch % self.accumulate:
            yield f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}"

    @property
    def guarantee(self) -> Privacy | None:
        """The guarantee of differential privacy, with single texts as the unit; None without one."""
        return None

    @property
    def job_fields(self) -> dict[str, Any]:
        """The same settings as fields of a training's configuration, which contains the adaptation by name and rank."""
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
