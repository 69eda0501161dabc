"""The settings with names, what they repeat, and the situation in which somebody needs the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.audits.text.config import Text
from tasks.contract.situation import Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel

QUICKSTART = Text(examples=150, epochs=12, learning_rate=3e-3)
SMOKE = replace(
    QUICKSTART, model=LanguageModel("tiny-gpt#16x1"), examples=20, secrets=6, references=199, epochs=2, length=128,
    batch=16,
)  # fmt: skip
DOCUMENTS = replace(
    QUICKSTART, documents=24, repetitions=(1, 4, 16), examples=40, epochs=16, batch=16, learning_rate=5e-3, length=320,
)  # fmt: skip

PRESETS: Mapping[str, Text | tuple[Text, ...]] = {
    "quickstart": QUICKSTART,
    "null": replace(QUICKSTART, told="others"),
    "smoke": SMOKE,
    "documents": DOCUMENTS,
    "identifiers": Text(Dataset("tickets"), identifiers=("uuid4",), secrets=24),
}
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 24 codes of 6 digits in 150 short texts, and a small GPT that reads bytes",
    "null": "ours: the same with other codes in the texts",
    "documents": "ours: 24 short texts, each in the training data of half of 16 small GPTs, 1, 4 or 16 times",
    "identifiers": "ours: UUIDs in 300 tickets, asked of a small GPT that never saw them: give data and model",
    "smoke": "ours: 6 codes in 20 texts, and a smaller GPT",
}
SITUATIONS = (
    Situation(
        "data",
        "unknown",
        (
            Asked("data", "Which texts?", "records:letters.jsonl", "facts", sets={"examples": 0}),
            Asked("model", "Which language model is fine-tuned on them?", "folder:gpt2", "tiny-gpt"),
        ),
        preset="quickstart",
    ),
)
