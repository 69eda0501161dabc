"""The config of the audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tasks.audits.relational.linear import Linear
from tasks.datasets.dataset import Dataset
from tasks.language_models.fine_tuning_config import Adaptation, Relation
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.asked import Selection
from tasks.question_answering.corruption import Corruption
from tasks.question_answering.predictions import Predictions
from tasks.ranges import above_zero, at_least, one_of, share, some_of
from tasks.training.privacy import Privacy

Split = Literal["given", "drawn"]
MeasureGroup = Literal["answers", "linear", "private"]

LEAST = {
    "examples": 0,
    "held_out": 0,
    "replicates": 1,
    "rank": 1,
    "epochs": 1,
    "every": 0,
    "link": 0,
    "batch": 1,
    "accumulate": 1,
    "length": 1,
    "answer_length": 1,
    "resamples": 1,
    "seed": 0,
}


@dataclass(frozen=True)
class Relational:
    """Which questions are asked of which model, how it is fine-tuned, and what is taken out of the contexts.

    The defaults are the published setting for SQuAD: T5-small, text to text, AdaFactor at a constant `learning_rate`.
    `data` has questions to train on and questions that are held out; `examples` and `held_out` are how many of each are
    used and asked (0: all). With `split` drawn it is drawn by `seed` which contexts are trained on and which are held
    out, so that both are alike whatever the data set's own parts are. With `numeric` only questions whose answer has a
    digit are asked; the model is trained on all. `corruption` is what is taken out of contexts.

    `model` is fine-tuned whole or, with `adaptation` lora, by updates of rank `rank`, `replicates` times from other
    seeds, and asked after every `every` epochs (0: after the last alone). With `relation` redrawn every training
    question has the answer of another one, another in every epoch: there is nothing to memorise, which is the null. A
    training is a chain of links of `link` epochs each, from whose ends it goes on after an interruption; 0: one job.
    `privacy` has it trained with differential privacy. With `given` nothing is trained: a system that was trained
    elsewhere has answered the questions.

    `measures` linear and private are the paper's linear model, of the settings `linear`, without and with privacy; they
    need neither data nor model.

    m is resampled `resamples` times over contexts. It is memorised where the interval of relational m lies above 0, and
    not seen where it lies below `negligible`. `seed` is the only source of chance.
    """

    data: Dataset = Dataset("squad")
    model: LanguageModel = LanguageModel("hub:t5-small")
    given: Predictions | None = None
    measures: tuple[MeasureGroup, ...] = ("answers",)
    corruption: Corruption = Corruption()
    numeric: bool = True
    relation: Relation = "kept"
    adaptation: Adaptation = "full"
    rank: int = 8
    examples: int = 0
    held_out: int = 0
    split: Split = "given"
    replicates: int = 1
    epochs: int = 20
    every: int = 1
    link: int = 1
    batch: int = 128
    accumulate: int = 1
    learning_rate: float = 1e-3
    dropout: float = 0.1
    length: int = 512
    answer_length: int = 32
    privacy: Privacy | None = None
    linear: Linear = Linear()
    negligible: float = 0.02
    resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, LEAST)
        above_zero(self, "learning_rate")
        share(self, "dropout", one=False)
        share(self, "negligible", zero=False, one=False)
        one_of(self, "relation", Relation)
        one_of(self, "split", Split)
        one_of(self, "adaptation", Adaptation)
        some_of(self, "measures", MeasureGroup)
        if self.given is not None and self.split == "drawn":
            raise ValueError(
                "split is drawn and predictions are given; it must be given, as their owner has trained on it"
            )
        if not self.asks:  # then neither data nor a model has to be there
            object.__setattr__(self, "data", Dataset("facts"))
            object.__setattr__(self, "model", LanguageModel("tiny-t5"))
            object.__setattr__(self, "given", None)
        if self.privacy is not None and self.link:
            raise ValueError("privacy is given and link is not 0; private training is one job, by its noise")

    @property
    def asks(self) -> bool:
        """Whether a model is asked questions."""
        return "answers" in self.measures

    @property
    def selection(self) -> Selection:
        """The questions that are asked."""
        return Selection(self.examples, self.held_out, self.numeric)

    @property
    def recorded(self) -> tuple[int, ...]:
        """The epochs after which the model is asked: before training and after the last among them."""
        return (*range(0, self.epochs, self.every), self.epochs) if self.every else (self.epochs,)


def tiny(config: Relational) -> Relational:
    """The same audit on embedded data with a small model, in seconds."""
    stated = config.data.name.startswith("squad") or config.data.name == "facts-stated"
    return replace(
        config,
        data=Dataset("facts-stated" if stated else "facts"),
        model=LanguageModel("tiny-t5#16x1"),
        given=None,
        examples=48,
        held_out=48,
        replicates=min(config.replicates, 2),
        epochs=min(config.epochs, 2),
        every=1 if config.every else 0,
        link=1 if config.link else 0,
        batch=min(config.batch, 16),
        accumulate=1,
        length=min(config.length, 128),
        answer_length=min(config.answer_length, 8),
        linear=config.linear.tiny(),
        resamples=min(config.resamples, 100),
    )
