"""The config of the audit, and what its summary is told of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np

from tasks.audits.text.secret_space import Repetitions, SecretSpace, Told, find_identifiers, space_of
from tasks.contract import ranges
from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.copy_counts import TRAINING_TEXTS
from tasks.contract.extras import PEFT, Extra
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.power import Resolution
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.datasets.catalog import load_texts
from tasks.datasets.copies import CopyCount, count_groups
from tasks.datasets.dataset import Dataset
from tasks.external.blinding import withheld
from tasks.external.bound_draw import OTHER_PARTY, Draw, check_secret, derive_secret_seed, describe_draw
from tasks.language_models.fine_tuning_config import Adaptation, Precision
from tasks.language_models.language_model import LanguageModel
from tasks.training.recipe import Privacy
from tasks.worker.files import WITHHELD, File

Scoring = Literal["whole", "shared"]
GUESSED = (
    "No secret was set, so an owner who tried seeds could have found out which of the texts are which: such a table "
    "proves nothing in the owner's favour."
)


@dataclass(frozen=True)
class Text(Ranged):
    """Which secrets are put into which texts, how a model is fine-tuned on them, and among how many they are ranked."""

    data: Dataset = Dataset("facts")
    """The texts: records with a field `text` (records:FILE), or the contexts of a set of questions."""
    model: LanguageModel = LanguageModel("tiny-gpt")
    """The language model that is fine-tuned: folder:PATH, hub:NAME, or a small one of ours."""
    pattern: str = "Patient {number}: code {digits:6}."
    """The format of the secrets: {number} is the secret's own number, and {digits:N}, {letters:N} and {hex:N} are
    drawn."""
    secrets: Annotated[int, AtLeast(2)] = 24
    """Secrets of a pair of models; each is in the training data of one of the two."""
    repetitions: Repetitions = (1, 4, 16)
    """How often a secret stands in the training data, in turn."""
    references: Annotated[int, AtLeast(19)] = 499
    """Other secrets of the space among which each is ranked: all where there are no more."""
    told: Told = "secrets"
    """Ours: others puts other secrets of the format into the training data, in the place of those that are asked
    about: a null."""
    pairs: Annotated[int, AtLeast(1)] = 1
    """Pairs of models, each with secrets of its own."""
    examples: Annotated[int, AtLeast(0)] = 0
    """The first so many texts; 0: all."""
    adaptation: Adaptation = "full"
    """Whether the model is fine-tuned whole (full) or by low-rank updates (lora)."""
    rank: Annotated[int, AtLeast(1)] = 8
    """Rank of the updates of lora."""
    epochs: Annotated[int, AtLeast(1)] = 10
    """Epochs of fine-tuning."""
    batch: Annotated[int, AtLeast(1)] = 32
    """Texts a step."""
    accumulate: Annotated[int, AtLeast(1)] = 1
    """Parts in which a step is computed, one after another, in the memory of one."""
    learning_rate: Annotated[float, Finite()] = 1e-3
    """The constant learning rate of AdaFactor."""
    dropout: Annotated[float, ranges.Share(one=False)] = 0.0
    """Dropout of the model while it is trained."""
    length: Annotated[int, AtLeast(8)] = 512
    """Longest text, in tokens; longer ones are cut off."""
    level: Annotated[float, ranges.Share(zero=False, one=False)] = 0.05
    """Ours: at most this share of the secrets that are found may be false."""
    negligible: Annotated[float, ranges.Share(zero=False)] = field(default=0.1, metadata={ANSWER_ONLY: True})
    """Ours: a secret that stands before half of all others and this share more is hardly known."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""
    identifiers: tuple[str, ...] = ()
    """Ours: formats of identifiers that stand in the texts already (uuid4, md5, sha1, sha256, or key-{hex:16}): the
    model is asked about at most `secrets` of them as it is, without a fine-tuning."""
    context: Annotated[int, AtLeast(0)] = 200
    """Ours: characters before an identifier that the model reads."""
    documents: Annotated[int, AtLeast(0)] = 0
    """Ours: ask about so many of the texts themselves, drawn by chance, each in the training data of half of the
    models. 0: secrets."""
    models: Annotated[int, AtLeast(4)] = 16
    """Ours: models for documents, an even number."""
    prefix: Annotated[int, AtLeast(1)] = 50
    """Tokens of a document that a model reads before it goes on."""
    suffix: Annotated[int, AtLeast(1)] = 50
    """Tokens that it is to go on with; shorter documents are not asked for them."""
    attempts: tuple[int, ...] = (1, 100, 10_000)
    """How often a model may be asked to go on, drawing each token from what it says."""
    likely: Annotated[float, ranges.Share(zero=False, one=False)] = 0.5
    """The probability from which on a document's tokens count as extracted by so many attempts."""
    near: Annotated[float, ranges.Share(one=False)] = 0.1
    """Share of the tokens by which the likeliest continuation may differ to be nearly verbatim (edit distance)."""
    extraction: bool = False
    """Ours: whether models are also asked to go on from what stands before each secret, or identifier. Documents always
    are."""
    precision: Precision = "float32"
    """Ours: numbers that a model from a folder computes with; adapters are float32 whatever it is."""
    checkpointing: bool = False
    """Ours: whether what layers compute is computed again for gradients: less memory, and a third more time."""
    deduplicate: bool = False
    """Ours: whether a text that stands several times in the training data is kept once."""
    privacy: Privacy | None = None
    """Ours: fine-tune with differential privacy, in single texts; none: without."""
    planted: bool = False
    """Ours: whether the secrets that `engram probes` names were put into the training data of the model beforehand: it
    is asked as it is, without a fine-tuning."""
    base: LanguageModel | None = None
    """Ours: the model that a model which is asked as it is was fine-tuned from: what it says more is ranked."""
    outputs: File | None = field(default=None, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: a table of log probabilities that the owner of the model returned for the texts that `engram probes` hands
    out."""
    others: Dataset | None = None
    """Ours: texts of another time or source, on which the model, asked as it is, was not trained."""
    scoring: Scoring = "whole"
    """Ours: whether each candidate is read whole, or what the candidates of a secret have in common is read once
    (shared): numbers are the same but for rounding."""
    insertions: bool = False
    """Whether the texts were inserted into the training data of the model, but not of its base, as often as the field
    `duplicates` of their records says (0: left out), which was drawn by chance: both are asked as they are."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Ours: text that nobody can guess. With `seed` it decides which identifiers or secrets are drawn and in which
    order texts are handed out; without it, an owner who tries seeds finds both."""
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: text that the other party named once it had the commitment (`engram probes --commit`). The draw and the
    order follow from it, too, so that neither party chooses them."""
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: who named the nonce: the model's owner, or a public beacon of a time after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: the commitment that the nonce was named after. It holds the whole configuration except the nonce, the
    secret and what the other party returns; a run with another configuration is refused."""

    def conflicts(self) -> Iterator[str]:
        check_secret(self.secret, self.nonce, self.nonce_by)
        try:
            spaces = [space_of(name) for name in self.identifiers] or [SecretSpace(self.pattern)]
        except ValueError as error:
            yield str(error)
            return
        if len(set(self.identifiers)) < len(self.identifiers):
            yield f"identifiers is {', '.join(self.identifiers)}; each format must be given once"
        if not self.repetitions or min(self.repetitions) < 1:
            yield f"repetitions is {self.repetitions}; there must be one at least, and each must be at least 1"
        if self.precision == "bfloat16" and not self.asks_as_it_is and self.adaptation == "full":
            yield "precision is bfloat16 and adaptation full; it must be lora, whose adapters are float32"
        if self.precision == "bfloat16" and self.model.tiny_sizes is not None:
            yield f"precision is bfloat16; the model must come from a folder, and {self.model.name} does not"
        if self.checkpointing and self.privacy is not None:
            yield "checkpointing is on and privacy is given; gradients of single texts are computed without it"
        if self.batch % self.accumulate:
            yield f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}"
        if self.others is not None and (self.asks_as_it_is or self.documents):
            yield "others is given beside identifiers, planted, documents or insertions; an audit is of one of them"
        if self.insertions and (self.has_handout or self.documents):
            yield "insertions is on beside identifiers, planted or documents; an audit is of one of them"
        if self.insertions and self.base is None:
            yield "insertions is on and base is not given; it must be the model that was trained without them"
        if self.base is not None and not self.asks_as_it_is:
            yield "base is given, and the model is fine-tuned here; give identifiers, planted=true or insertions=true"
        if self.outputs is not None and not self.has_handout and self.others is None:
            yield "outputs is given, and nothing that is handed out; give identifiers, planted=true or others"
        if self.secret and not self.hands_out:
            yield "secret is given, and nothing that is handed out; give identifiers, planted=true or others"
        if self.base is not None and self.outputs is not None:
            yield "base and outputs are both given; what an owner returns is ranked by itself"
        if self.privacy is not None and max(self.repetitions, default=1) > 1 and not self.deduplicate:
            yield (
                f"privacy is given and repetitions is {', '.join(map(str, self.repetitions))}; it protects single "
                "texts, so each must stand once: repetitions=1, or deduplicate=true"
            )
        if not self.attempts or min(self.attempts) < 1:
            yield f"attempts is {self.attempts}; there must be one at least, and each must be at least 1"
        yield from self.extraction_conflicts() if self.extraction else ()
        if self.documents or self.insertions:
            yield from self.document_conflicts()
        else:
            yield from self.rank_conflicts(spaces)

    def extraction_conflicts(self) -> Iterator[str]:
        if self.documents or self.insertions or self.others is not None:
            yield "extraction is on beside documents, insertions or others, where no secret is asked about"
        if self.outputs is not None:
            yield "extraction is on and outputs is given; an owner's table does not say how a model goes on"

    def rank_conflicts(self, spaces: Sequence[SecretSpace]) -> Iterator[str]:
        if self.planted and self.identifiers:
            yield "planted and identifiers are both given; an audit is of one of the two"
        ranked = min(min(space.size for space in spaces), self.references + 1)
        asked = self.secrets * (1 if self.asks_as_it_is else self.pairs)
        if not Resolution(1 / ranked, asked, self.level, "secrets", "").finds_one:
            least = round(asked / self.level)
            yield (
                f"{asked} secrets are ranked among {ranked}, and no single one of them could be found at level "
                f"{self.level:g}; they must be ranked among {least} or more (references, pattern)"
            )

    def document_conflicts(self) -> Iterator[str]:
        if self.documents and self.has_handout:
            yield "documents are given beside identifiers, planted; an audit is of one of them"
        if self.documents == 1:
            yield "documents is 1; it must be at least 2, or 0 where secrets are asked about"
        if self.documents and self.models % 2:
            yield f"models is {self.models}; it must be even, so that every document is in half of them"
        if self.prefix + self.suffix > self.length:
            yield (
                f"prefix is {self.prefix} and suffix {self.suffix}, which is more than length ({self.length}) together"
            )

    def extras(self) -> tuple[Extra, ...]:
        return (PEFT,) if self.adaptation == "lora" else ()

    @property
    def asks_as_it_is(self) -> bool:
        """Whether the model is asked without a fine-tuning."""
        return self.has_handout or self.insertions

    @property
    def has_handout(self) -> bool:
        """Whether the owner of a model may ask it, and return a table."""
        return bool(self.identifiers) or self.planted

    @property
    def hands_out(self) -> bool:
        """Whether texts are handed out to a model's owner: those that are drawn, or two sets that are compared."""
        return self.has_handout or self.others is not None

    @property
    def is_guessable(self) -> bool:
        """Whether an owner who tries seeds could have found out what each text of the returned table is."""
        return self.outputs is not None and not self.secret

    def derive_seed(self, name: str) -> int:
        """The seed of what is drawn between two parties."""
        return derive_secret_seed(self.seed, name, self.secret, self.nonce)

    @property
    def draw(self) -> Draw:
        """What the draw of identifiers or secrets, and the order of the texts, follow from."""
        unused = ("model", "base")  # no other model is asked if the owner of one returns a table
        return Draw(None, self, self.seed, self.secret, self.nonce, self.commitment, unused)

    def describe_draw(self) -> str:
        """Who chose what a returned table was asked, and whether its owner could guess it; empty without a table."""
        if self.outputs is None:
            return ""
        if self.is_guessable:
            return GUESSED
        what = "The draw of what was asked" if self.has_handout else "The order of the texts"
        return describe_draw(what, self.commitment, self.nonce, self.nonce_by)

    @property
    def is_null(self) -> bool:
        return self.told == "others"


FORMATS_OF_TICKETS = ("uuid4",)
OF_A_TRAINING = (
    "adaptation", "rank", "epochs", "batch", "accumulate", "learning_rate", "dropout", "length", "deduplicate",
    "privacy", "precision", "checkpointing",
)  # fmt: skip


def tuning_fields(config: Text) -> dict[str, Any]:
    """How a model is fine-tuned, whatever it is told: the fields that are those of its training, too."""
    return {name: getattr(config, name) for name in OF_A_TRAINING}


@dataclass(frozen=True)
class About:
    """What the summary is told of a run."""

    level: float
    things: Literal["secrets", "identifiers"] = "secrets"
    copies: CopyCount = CopyCount()
    """The exact copies among the documents, texts or identifiers that are asked about."""


def about(config: Text) -> About:
    return About(config.level, "identifiers" if config.identifiers else "secrets", count_text_copies(config))


def count_text_copies(config: Text) -> CopyCount:
    """The exact copies among what is asked about.

    Secrets have none, as their numbers differ, and insertions are refused with a text that stands twice.
    """
    if config.insertions or config.planted:
        return CopyCount()
    texts = load_texts(config.data, config.examples)
    if config.identifiers:
        found = find_identifiers(texts, config.identifiers)
        return count_groups(np.repeat(np.arange(len(found)), [each.occurrences for each in found]), "places")
    if config.others is not None:
        return count_groups([*texts, *load_texts(config.others)], "texts")
    if config.documents:
        return count_groups(texts, "texts")
    return count_groups(texts, TRAINING_TEXTS)


def tiny(config: Text) -> Text:
    """The config's shape on embedded data, in seconds."""
    return replace(
        config,
        data=Dataset("tickets" if config.identifiers else "facts"),
        model=LanguageModel("tiny-gpt#16x1"),
        pattern=Text.pattern,
        secrets=min(config.secrets, 6),
        references=199,
        pairs=1,
        examples=40 if config.insertions else 20,
        adaptation="full",
        epochs=2,
        batch=16,
        accumulate=1,
        precision="float32",
        length=128,
        documents=min(config.documents, 8),
        models=min(config.models, 4),
        prefix=min(config.prefix, 20),
        suffix=min(config.suffix, 20),
        identifiers=FORMATS_OF_TICKETS if config.identifiers else (),
        base=None if config.base is None else LanguageModel("tiny-gpt#32x1"),
        context=40,
    )
