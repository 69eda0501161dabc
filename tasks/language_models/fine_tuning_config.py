"""The config of a fine-tuning on questions about contexts. It imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

from tasks.contract.extras import PEFT, Extra
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.question_sets import Corruption, DigitRemoval
from tasks.training.chains import recorded_conflicts, recording_up_to
from tasks.training.recipe import Privacy

Relation = Literal["kept", "redrawn"]
Adaptation = Literal["full", "lora"]
Precision = Literal["float32", "bfloat16"]


def adaptation_extras(adaptation: Adaptation) -> tuple[Extra, ...]:
    """The packages that a training with this adaptation needs."""
    return (PEFT,) if adaptation == "lora" else ()


class Reader(Protocol):
    """The settings of a config by which a language model reads texts."""

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
    """The settings of a config by which a language model is fine-tuned, whatever its texts are."""

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
    """One fine-tuning of a language model, and what it is asked.

    It is trained on the first `examples` questions for training (0: all), and asked these and the first `held_out` of
    the validation questions (0: all), each on its context as it is and on the corrupted one. With `parts`, a seed, it
    is drawn by this which contexts are trained on and which are held out. With `numeric` only questions whose first
    gold answer has a digit are asked; it is trained on all of them nevertheless.

    The answers trained on are the first gold ones. `redrawn` gives each question that of another one, by a permutation
    that is another in every epoch: never its own, and never that of the same question twice in as many epochs as there
    are other questions. Then nothing relates answers to contexts.

    `lora` trains low-rank adapters of this `rank` (Hu et al. 2022) and leaves the model's own weights as they are.
    `dropout` is set wherever the model's config has one. `length` and `answer_length` are in tokens: longer contexts
    and answers are cut off. With `accumulate` above 1 a step computes its `batch` questions in so many parts, one after
    another: it takes the memory of a part. The model is asked after the epochs `recorded` (0: before training); empty
    stands for the last, and None for no epoch.
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
            yield f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}"
        if self.privacy is not None and self.relation == "redrawn":
            # The answer of one question would be in the gradients of others.
            yield "privacy is given and relation is redrawn; it must be kept"
        yield from recorded_conflicts(self.recorded, self.epochs)

    def extras(self) -> tuple[Extra, ...]:
        return adaptation_extras(self.adaptation)

    @property
    def asked(self) -> tuple[int, ...]:
        """The epochs after which the model is asked, ascending."""
        return (self.epochs,) if self.recorded == () else self.recorded or ()


def up_to(config: FineTuning, before: int, end: int) -> FineTuning:
    """The link of a chain from epoch `before` to epoch `end`, which is asked after its own epochs alone.

    The part of `tasks.training.chains.chain`. ValueError where the training cannot be broken into links.
    """
    if config.privacy is not None:
        raise ValueError("privacy is given, and a private training is never broken into links; link must be 0")
    linked: FineTuning = recording_up_to(config, before, end)
    return linked
