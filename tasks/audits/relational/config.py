"""The config of the audit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tasks.audits.relational.linear import Linear
from tasks.datasets.dataset import Dataset
from tasks.external.blinding import check_secret, derive_secret_seed, withheld
from tasks.extras import OPACUS, PEFT, Extra
from tasks.files import WITHHELD
from tasks.language_models.fine_tuning import Adaptation, Relation
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.blinded_questions import Blinding
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import Corruption, Selection
from tasks.ranges import above_zero, check_minimums, one_of, share, some_of
from tasks.training.recipe import Privacy

SplitOrigin = Literal["given", "drawn"]
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

    The defaults are the published setting for SQuAD: T5-small, text to text, AdaFactor.
    """

    data: Dataset = Dataset("squad")
    """Questions to train on and questions that are held out."""
    model: LanguageModel = LanguageModel("hub:t5-small")
    """The sequence model that is fine-tuned: hub:NAME, folder:PATH, or one of ours."""
    given: Predictions | None = None
    """Ours: a file or a folder of answers of a system that was trained elsewhere; nothing is trained then."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld})
    """Ours: text that nobody can guess, which says together with `seed` in which order questions are handed out;
    without one, who tries seeds finds it."""
    measures: tuple[MeasureGroup, ...] = ("answers",)
    """What is measured: answers of a model, or the paper's linear model without (linear) and with privacy
    (private), which need neither data nor model."""
    corruption: Corruption = Corruption()
    """What is taken out of contexts."""
    numeric: bool = True
    """Whether only questions whose answer has a digit are asked; the model is trained on all."""
    relation: Relation = "kept"
    """Ours: redrawn gives every training question the answer of another, another in every epoch: nothing to
    memorise, which is the null."""
    adaptation: Adaptation = "full"
    """Ours: whether the model is fine-tuned whole (full) or by low-rank updates (lora)."""
    rank: int = 8
    """Ours: rank of the updates of lora."""
    examples: int = 0
    """Ours: how many training questions are used and asked; 0: all."""
    held_out: int = 0
    """Ours: how many held-out questions are asked; 0: all."""
    split: SplitOrigin = "given"
    """Ours: drawn draws by `seed` which contexts are trained on, so that both parts are alike; given keeps the
    data's own parts."""
    replicates: int = 1
    """Ours: how often the model is fine-tuned, from other seeds."""
    epochs: int = 20
    """Epochs of fine-tuning."""
    every: int = 1
    """Epochs between rounds of questions; 0: after the last alone."""
    link: int = 1
    """Ours: epochs per link of the chain that a training is, from whose ends it goes on after an interruption; 0:
    one job."""
    batch: int = 128
    """Questions a step."""
    accumulate: int = 1
    """Ours: parts in which a step is computed, one after another, in the memory of one."""
    learning_rate: float = 1e-3
    """The constant learning rate of AdaFactor."""
    dropout: float = 0.1
    """Dropout of the model while it is trained."""
    length: int = 512
    """Longest context, in tokens; longer ones are cut off."""
    answer_length: int = 32
    """Longest answer, in tokens."""
    privacy: Privacy | None = None
    """Fine-tune with differential privacy; none: without."""
    linear: Linear = Linear()
    """Settings of the linear models."""
    negligible: float = 0.02
    """Ours: relational m below which the answer is not seen."""
    resamples: int = 2000
    """Ours: bootstraps over contexts, for intervals of m."""
    seed: int = 0
    """Ours: the only source of chance."""

    def __post_init__(self) -> None:
        check_minimums(self, LEAST)
        above_zero(self, "learning_rate")
        share(self, "dropout", one=False)
        share(self, "negligible", zero=False, one=False)
        one_of(self, "relation", Relation)
        one_of(self, "split", SplitOrigin)
        one_of(self, "adaptation", Adaptation)
        some_of(self, "measures", MeasureGroup)
        check_secret(self.secret)
        if self.given is not None and self.split == "drawn":
            raise ValueError(
                "split is drawn and predictions are given; it must be given, as their owner has trained on it"
            )
        if not self.asks:  # then no data have to be there; without a training no model
            object.__setattr__(self, "data", Dataset("facts"))
            object.__setattr__(self, "given", None)
            object.__setattr__(self, "secret", "")
        if not self.trains:
            object.__setattr__(self, "model", LanguageModel("tiny-t5"))
        if self.privacy is not None and self.link:
            raise ValueError("privacy is given and link is not 0; private training is one job, by its noise")

    def extras(self) -> tuple[Extra, ...]:
        adapters = (PEFT,) if self.adaptation == "lora" and self.trains else ()
        return (*adapters, *((OPACUS,) if "private" in self.measures else ()))

    @property
    def asks(self) -> bool:
        """Whether a model is asked questions."""
        return "answers" in self.measures

    @property
    def trains(self) -> bool:
        """Whether a model is fine-tuned here."""
        return self.asks and self.given is None

    @property
    def is_null(self) -> bool:
        """Whether answers are asked of a model that was trained here with nothing to memorise."""
        return self.relation == "redrawn" and self.asks and self.given is None

    @property
    def selection(self) -> Selection:
        """The questions that are asked."""
        return Selection(self.examples, self.held_out, self.numeric)

    @property
    def blinding(self) -> Blinding:
        """How the questions are handed out to an owner who answers them."""
        return Blinding(self.data, self.selection, self.corruption, derive_secret_seed(self.seed, "order", self.secret))

    @property
    def is_guessable(self) -> bool:
        """Whether an owner who tries seeds could have told which of the questions that were answered are which."""
        return self.given is not None and self.given.is_blinded and not self.secret

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
        secret="",
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


@dataclass(frozen=True)
class About:
    """What the summary needs to know of the run beside the tables.

    The decisive m is that of these `questions`: numeric where digits are taken out of contexts. `epsilon` is that of
    differential privacy; None without. `cell` is the column of the paper's table 2 that the run repeats; empty for
    none.
    """

    questions: str
    epsilon: float | None = None
    cell: str = ""
