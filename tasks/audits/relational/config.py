"""The config of the audit, and of the paper's linear model, which is trained in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.extras import OPACUS, PEFT, Extra
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.external.blinded_questions import Blinding
from tasks.external.blinding import withheld
from tasks.external.bound_draw import OTHER_PARTY, Draw, check_secret, derive_secret_seed, describe_draw
from tasks.language_models.fine_tuning_config import Adaptation, Relation
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import Corruption, Selection
from tasks.training.recipe import Privacy
from tasks.worker.files import WITHHELD

SplitOrigin = Literal["given", "drawn"]
MeasureGroup = Literal["answers", "linear", "private"]

TINY = 40  # samples and features of a linear model at most


@dataclass(frozen=True)
class Linear(Ranged):
    """Which linear models are trained, without and with privacy."""

    sizes: tuple[tuple[int, int], ...] = ((300, 2000), (1000, 1000))
    """Pairs of samples n and features d, by default those of figure 5."""
    trainings: Annotated[int, AtLeast(1)] = 20
    """Trainings of each, on samples of its own."""
    per_decade: Annotated[int, AtLeast(1)] = 10
    """Points of its curves for every factor of ten in time."""
    epsilons: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    """The epsilons of the private model, a small one."""
    private_trainings: Annotated[int, AtLeast(1)] = 1000
    """Trainings at each epsilon."""

    def conflicts(self) -> Iterator[str]:
        if not self.sizes or any(samples < 1 or features < 1 for samples, features in self.sizes):
            yield f"sizes is {self.sizes}; it must be pairs of samples and features, each at least 1"
        if not self.epsilons or any(not epsilon > 0 for epsilon in self.epsilons):
            yield f"epsilons is {self.epsilons}; each must be above 0, and there must be one"

    def tiny(self) -> Linear:
        """The same with small models, and few of them; which of samples and features are more is kept."""
        sizes = tuple(
            (max(2, TINY * samples // max(samples, features)), max(2, TINY * features // max(samples, features)))
            for samples, features in self.sizes
        )
        return replace(
            self,
            sizes=sizes,
            trainings=min(self.trainings, 4),
            per_decade=min(self.per_decade, 3),
            epsilons=self.epsilons[:2],
            private_trainings=min(self.private_trainings, 20),
        )


@dataclass(frozen=True)
class Relational(Ranged):
    """Which questions are asked of which model, how it is fine-tuned, and what is taken out of the contexts.

    The defaults are the published setting for SQuAD: T5-small, text to text, AdaFactor.
    """

    data: Dataset = Dataset("squad")
    """Questions to train on and questions that are held out."""
    model: LanguageModel = LanguageModel("hub:t5-small")
    """The sequence model that is fine-tuned: hub:NAME, folder:PATH, or one of ours."""
    given: Predictions | None = field(default=None, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: a file or a folder of answers of a system that was trained elsewhere; nothing is trained then."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Ours: text that nobody can guess, which says together with `seed` in which order questions are handed out;
    without one, who tries seeds finds it."""
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: text that the other party named once it had the commitment (`engram probes --commit`): the order follows
    from it, too, so that neither party chooses it."""
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: who named the nonce: the system's owner, or a public beacon of a time after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: the commitment that the nonce was named after. It holds the whole configuration except the nonce, the
    secret and what the other party returns; a run with another configuration is refused."""
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
    rank: Annotated[int, AtLeast(1)] = 8
    """Ours: rank of the updates of lora."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: how many training questions are used and asked; 0: all."""
    held_out: Annotated[int, AtLeast(0)] = 0
    """Ours: how many held-out questions are asked; 0: all."""
    split: SplitOrigin = "given"
    """Ours: drawn draws by `seed` which contexts are trained on, so that both parts are alike; given keeps the
    data's own parts."""
    replicates: Annotated[int, AtLeast(1)] = 1
    """Ours: how often the model is fine-tuned, from other seeds."""
    epochs: Annotated[int, AtLeast(1)] = 20
    """Epochs of fine-tuning."""
    every: Annotated[int, AtLeast(0)] = 1
    """Epochs between rounds of questions; 0: after the last alone."""
    link: Annotated[int, AtLeast(0)] = 1
    """Ours: epochs per link of the chain that a training is, from whose ends it goes on after an interruption; 0:
    one job."""
    batch: Annotated[int, AtLeast(1)] = 128
    """Questions a step."""
    accumulate: Annotated[int, AtLeast(1)] = 1
    """Ours: parts in which a step is computed, one after another, in the memory of one."""
    learning_rate: Annotated[float, Finite()] = 1e-3
    """The constant learning rate of AdaFactor."""
    dropout: Annotated[float, Share(one=False)] = 0.1
    """Dropout of the model while it is trained."""
    length: Annotated[int, AtLeast(1)] = 512
    """Longest context, in tokens; longer ones are cut off."""
    answer_length: Annotated[int, AtLeast(1)] = 32
    """Longest answer, in tokens."""
    privacy: Privacy | None = None
    """Fine-tune with differential privacy; none: without."""
    linear: Linear = Linear()
    """Settings of the linear models."""
    negligible: Annotated[float, Share(zero=False, one=False)] = field(default=0.02, metadata={ANSWER_ONLY: True})
    """Ours: relational m below which the answer is not seen."""
    resamples: Annotated[int, AtLeast(1)] = 2000
    """Ours: bootstraps over contexts, for intervals of m."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_secret(self.secret, self.nonce, self.nonce_by)
        if self.given is not None and self.split == "drawn":
            raise ValueError(
                "split is drawn and predictions are given; it must be given, as their owner has trained on it"
            )
        if not self.asks:  # then no data have to be there; without a training no model
            object.__setattr__(self, "data", Dataset("facts"))
            object.__setattr__(self, "given", None)
            object.__setattr__(self, "secret", "")
            object.__setattr__(self, "nonce", "")
        if not self.trains:
            object.__setattr__(self, "model", LanguageModel("tiny-t5"))
        if self.privacy is not None and self.link:
            raise ValueError("privacy is given and link is not 0; private training is one job, by its noise")

    def extras(self) -> tuple[Extra, ...]:
        adapters = (PEFT,) if self.adaptation == "lora" and self.trains else ()
        return (*adapters, *((OPACUS,) if "private" in self.measures else ()))

    @property
    def asks(self) -> bool:
        return "answers" in self.measures

    @property
    def trains(self) -> bool:
        return self.asks and self.given is None

    @property
    def is_null(self) -> bool:
        """Whether answers are asked of a model that was trained here with nothing to memorise."""
        return self.relation == "redrawn" and self.asks and self.given is None

    @property
    def selection(self) -> Selection:
        return Selection(self.examples, self.held_out, self.numeric)

    @property
    def blinding(self) -> Blinding:
        """How the questions are handed out to an owner who answers them."""
        order = derive_secret_seed(self.seed, "order", self.secret, self.nonce)
        return Blinding(self.data, self.selection, self.corruption, order)

    @property
    def draw(self) -> Draw:
        """What the order in which questions are handed out follows from."""
        # No model is fine-tuned if the other party's answers are there.
        return Draw(self._drawn_from, self, self.seed, self.secret, self.nonce, self.commitment, ("model",))

    def _drawn_from(self) -> tuple[object, ...]:
        return (self.data.identity(), repr(self.selection), repr(self.corruption))

    def describe_draw(self) -> str:
        """Who chose the order, in sentences."""
        what = "The order in which questions are handed out"
        return describe_draw(what, self.commitment, self.nonce, self.nonce_by)

    @property
    def is_guessable(self) -> bool:
        """Whether an owner who tries seeds could have told which of the questions that were answered are which."""
        return self.given is not None and self.given.is_blinded and not self.secret

    @property
    def recorded(self) -> tuple[int, ...]:
        """The epochs after which the model is asked: before training and after the last among them."""
        return (*range(0, self.epochs, self.every), self.epochs) if self.every else (self.epochs,)


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
    copies: CopyCount = CopyCount()
    """The exact copies among the questions that are asked."""
    chance: float | None = None
    """The accuracy of the best constant answer to the held-out questions that decide; None if no question is asked."""
