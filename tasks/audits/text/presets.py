"""Presets, their descriptions, and the situations in which a user needs the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.audits.text.config import Text
from tasks.audits.text.question import (
    Continuation,
    Documents,
    Identifiers,
    Insertions,
    ReturnedTable,
    Secrets,
)
from tasks.audits.text.tuning import TextTuning, WholeGradients
from tasks.contract.situation import TABLE, Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Reading
from tasks.training.privacy_config import DifferentialPrivacy

TUNING = TextTuning(epochs=12, learning_rate=3e-3)
CODES = Secrets(examples=150, tuning=TUNING)
QUICKSTART = Text(CODES)
SMOKE = Text(
    Secrets(
        examples=20,
        secrets=6,
        references=199,
        reading=Reading(LanguageModel("tiny-gpt#16x1"), length=128),
        tuning=replace(TUNING, epochs=2, batch=16),
    )
)
DOCUMENTS = Text(
    Documents(
        examples=24,
        reading=Reading(length=320),
        tuning=TextTuning(epochs=24, batch=16, learning_rate=5e-3),
    )
)
EPSILONS = (None, 16.0, 4.0, 1.0)
HUBBLE = Insertions(base=LanguageModel("tiny-gpt#32x1"), examples=200, repetitions=(1, 4, 16, 64, 256))


def _private_codes(epsilon: float | None) -> Text:
    """Return an audit of codes that occur once, in texts trained on for many epochs. No privacy if epsilon is None."""
    privacy = WholeGradients() if epsilon is None else DifferentialPrivacy(epsilon)
    tuning = replace(TUNING, epochs=48, privacy=privacy)
    return Text(replace(CODES, repetitions=(1,), examples=20, tuning=tuning))


PRESETS: Mapping[str, Text | tuple[Text, ...]] = {
    "quickstart": QUICKSTART,
    "null": Text(replace(CODES, is_null=True)),
    "smoke": SMOKE,
    "extraction": Text(replace(CODES, extraction=Continuation())),
    "ladder": tuple(map(_private_codes, EPSILONS)),
    "documents": DOCUMENTS,
    "identifiers": Text(Identifiers(data=Dataset("tickets"))),
    "hubble": Text(HUBBLE),
}
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 24 codes of 6 digits in 150 short texts, with a small GPT that reads bytes",
    "null": "ours: quickstart as a control run, with other codes in the texts",
    "extraction": "ours: quickstart, and whether the models reproduce each code",
    "ladder": "ours: each code once in 20 texts, 48 epochs, without privacy and with epsilon 16, 4 and 1",
    "documents": "ours: 24 short texts, each 1, 4 or 16 times in the training data of half of 16 small GPTs",
    "identifiers": "ours: UUIDs in texts, with a given model; by default 300 tickets and a GPT that never saw them",
    "hubble": "as Wei et al. 2025: documents that were inserted into the training data of a given model but not of its "
    "base; by default a control run on 200 embedded texts and two small GPTs",
    "smoke": "ours: 6 codes in 20 texts, with a smaller GPT",
}
TEXTS = Asked("question.data", "Which texts?", "records:letters.jsonl", sets={"question.examples": 0})
MODEL = Asked(
    "question.reading.model",
    "Your language model to fine-tune on them (or tiny-gpt as a stand-in)?",
    "folder:gpt2",
    "tiny-gpt",
    optional=True,
)
FORMATS = Asked(
    "question.identifiers", "Formats of random identifiers in them (uuid4, md5, key-{hex:16})?", "uuid4", "uuid4"
)
GIVEN = Asked("question.source.model", "The model's folder, and +FOLDER if it has an adapter?", "folder:gpt2+adapter")
RETURNED = replace(
    TABLE, field="question.source.outputs", example="log_p.csv", sets={"question.source": ReturnedTable.tag}
)
SITUATIONS = (
    Situation("data", "secret", (TEXTS, MODEL), preset="quickstart"),
    Situation("model", "secret", (TEXTS, FORMATS, GIVEN), preset="identifiers"),
    Situation("outputs", "secret", (TEXTS, FORMATS, RETURNED), preset="identifiers", table=RETURNED.field),
)
