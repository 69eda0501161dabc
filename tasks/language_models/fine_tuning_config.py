"""Configuration of fine-tuning on questions about contexts. This module does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

from tasks.contract.extras import PEFT, Extra
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.numerics.precision import Precision
from tasks.question_answering.question_sets import Corruption, DigitRemoval
from tasks.training.chains import recorded_conflicts, recording_up_to
from tasks.training.recipe import Privacy

Relation = Literal["kept", "redrawn"]
Adaptation = Literal["full", "lora"]


def adaptation_extras(adaptation: Adaptation) -> tuple[Extra, ...]:
    """Return the optional packages that training with this adaptation needs."""
    return (PEFT,) if adaptation == "lora" else ()


class Reader(Protocol):
    """Settings for reading texts with a language model."""

    @property
    def model(self) -> LanguageModel: ...
    @property
    def seed(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def answer_length(self) -> int: ...
    @property
    def precision(self) -> Precision: ...


class Tuning(Reader, Protocol):
    """Settings for fine-tuning a language model on any kind of text."""

    @property
    def relation(self) -> Relation: ...
    @property
    def adaptation(self) -> Adaptation: ...
    @property
    def rank(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def accumulate(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def dropout(self) -> float: ...
    @property
    def privacy(self) -> Privacy | None: ...
    @property
    def asked(self) -> tuple[int, ...]: ...
    @property
    def checkpointing(self) -> bool: ...


@dataclass(frozen=True)
class FineTuning(Ranged):
    """One fine-tuning of a language model, and the questions that it answers.

    The model is trained on the first `examples` training questions (0: all). It answers these and the first `held_out`
    validation questions (0: all), each on the original and on the corrupted context. If `parts` is set, it is a seed
    that randomly assigns contexts to training or held-out data. With `numeric`, the model answers only questions whose
    first gold answer contains a digit, although it is trained on all questions.

    The training answers are the first gold answers. `redrawn` gives each question the answer of another question, by a
    different permutation in every epoch: never its own answer, and never the same one twice within as many epochs as
    there are other questions. Answers are then unrelated to contexts.

    `lora` trains low-rank adapters of this `rank` (Hu et al. 2022), and the model's own weights stay unchanged.
    `dropout` replaces every dropout probability in the model's config. `length` and `answer_length` are in tokens;
    longer contexts and answers are truncated. With `accumulate` above 1, a step divides its `batch` questions into that
    many parts and needs the memory of only one part. The model answers after the epochs in `recorded` (0: before
    training); if it is empty, after the last epoch, and if it is None, after none.
    """

    data: Dataset
    model: LanguageModel = LanguageModel("hub:t5-small")
    corruption: Corruption = DigitRemoval()
    examples: Annotated[int, AtLeast(0)] = 0
    held_out: Annotated[int, AtLeast(0)] = 0
    parts: int | None = None
    numeric: bool = False
    relation: Relation = "kept"
    adaptation: Adaptation = "full"
    rank: Annotated[int, AtLeast(1)] = 8
    seed: Annotated[int, AtLeast(0)] = 0
    epochs: Annotated[int, AtLeast(1)] = 20
    batch: Annotated[int, AtLeast(1)] = 128
    accumulate: Annotated[int, AtLeast(1)] = 1
    learning_rate: Annotated[float, Finite()] = 1e-3
    dropout: Annotated[float, Share(one=False)] = 0.1
    length: Annotated[int, AtLeast(8)] = 512
    answer_length: Annotated[int, AtLeast(1)] = 32
    recorded: tuple[int, ...] | None = ()
    privacy: Privacy | None = None

    precision: ClassVar[Precision] = "float32"
    checkpointing: ClassVar[bool] = False

    def conflicts(self) -> Iterator[str]:
        if self.batch % self.accumulate:
            yield f"accumulate: expected a divisor of batch={self.batch}, got {self.accumulate}. Change one of both."
        if self.privacy is not None and self.relation == "redrawn":
            # The gradient of a question would contain the answer to another question.
            yield "relation: expected kept with privacy, got redrawn. Set relation=kept, or train without privacy."
        yield from recorded_conflicts(self.recorded, self.epochs)

    def extras(self) -> tuple[Extra, ...]:
        return adaptation_extras(self.adaptation)

    @property
    def asked(self) -> tuple[int, ...]:
        """The epochs after which the model answers, in ascending order."""
        return (self.epochs,) if self.recorded == () else self.recorded or ()


def up_to(config: FineTuning, before: int, end: int) -> FineTuning:
    """Return the link of a chain from epoch `before` to epoch `end`, which answers only after its own epochs.

    It is called by `tasks.training.chains.chain`. Raises ValueError if the training cannot be divided into links.
    """
    if config.privacy is not None:
        raise ValueError("link: expected 0 with privacy. A private training is not divided into links: set link=0.")
    linked: FineTuning = recording_up_to(config, before, end)
    return linked
