"""Questions: their selection by fields, and fields of other questions."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.planning.commitment import commitment_of
from orchestrator.planning.extras import required_extras
from tasks.audits.text import PRESETS
from tasks.audits.text.config import tiny
from tasks.audits.text.question import (
    Continuation,
    Documents,
    Identifiers,
    Insertions,
    Planted,
    Question,
    RankingModel,
    ReturnedTable,
    Secrets,
    TextComparison,
)
from tasks.audits.text.trainings import trainings
from tasks.audits.text.tuning import TextLowRank, TextTuning
from tasks.contract.extras import PEFT
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Reading
from tasks.worker.files import File
from tests.tasks.audits.text.made_up import configure

MODEL = LanguageModel("tiny-gpt#16x1")
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        ({}, Secrets()),
        ({"model": MODEL, "epochs": 3}, Secrets(reading=Reading(MODEL), tuning=TextTuning(epochs=3))),
        ({"rank": 4}, Secrets(tuning=TextTuning(adaptation=TextLowRank(4)))),
        ({"extraction": "continuation"}, Secrets(extraction=Continuation())),
        ({"documents": 4, "models": 6}, Documents(documents=4, models=6)),
        ({"question": "documents", "model": MODEL}, Documents(reading=Reading(MODEL))),
        ({"identifiers": "md5", "model": MODEL}, Identifiers(identifiers=("md5",), source=RankingModel(MODEL))),
        (
            {"identifiers": "md5", "outputs": "p.csv"},
            Identifiers(identifiers=("md5",), source=ReturnedTable(File("p.csv"))),
        ),
        ({"question": "planted", "base": MODEL, "secrets": 3}, Planted(secrets=3, source=RankingModel(base=MODEL))),
        ({"question": "insertions", "base": MODEL}, Insertions(base=MODEL)),
        (
            {"comparison_texts": "tickets", "secret": SECRET},
            TextComparison(comparison_texts=Dataset("tickets"), secret=SECRET),
        ),
    ],
)
def test_question_is_selected_by_its_fields(fields: dict[str, Any], question: Question) -> None:
    assert configure(**fields).question == question


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"question": "document"}, "question is 'document'; allowed: secrets, planted, identifiers, documents"),
        ({"planted": "true"}, "'planted' is not a field but a choice of question: write question=planted"),
        ({"question": "comparison"}, r"question\.comparison_texts is missing"),
        ({"documents": 4, "identifiers": "uuid4"}, "identifiers is a field of question=identifiers, but another"),
        ({"question": "identifiers", "epochs": 3}, "epochs is not a field of question=identifiers"),
        ({"identifiers": "uuid4", "base": "tiny-gpt", "outputs": "p.csv"}, "base is not a field of .*source=table"),
        ({"adaptation": "full", "rank": 4}, "rank is not a field of question.tuning.adaptation=full"),
        ({"secret": SECRET}, "secret is ambiguous; write question=planted question.secret=VALUE or"),
        (
            {"adaptation": "lora", "precision": "bfloat16"},
            "precision: expected float32 for the small model tiny-gpt, got bfloat16",
        ),
        (
            {"question": "comparison", "comparison_texts": "facts", "source.precision": "bfloat16"},
            "precision: expected float32 for the small model tiny-gpt, got bfloat16",
        ),
        ({"adaptation": "full", "question": "secrets", "precision": "bfloat16"}, "precision is not a field of"),
    ],
)
def test_fields_of_other_questions_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        configure(**fields)


@pytest.mark.parametrize("fields", [{"identifiers": "uuid4", "data": "tickets"}, {"comparison_texts": "tickets"}])
def test_commitment_does_not_depend_on_the_source(fields: dict[str, Any]) -> None:
    data = {}
    for name, value in fields.items():
        if value == "tickets":
            data[name] = pin(Dataset(value))
    config = configure(**{"data": pin(Dataset("facts")), **fields, **data, "secret": SECRET})
    table = configure(config, outputs=File("p.csv", "0" * 64))
    assert config.draw is not None
    assert table.draw is not None
    assert commitment_of(config.draw) == commitment_of(table.draw)


@pytest.mark.parametrize("question", ["secrets", "documents"])
def test_training_of_adapters_needs_peft(question: str) -> None:
    data = pin(Dataset("facts"))
    for adaptation, needs_peft in (("lora", True), ("full", False)):
        config = configure(question=question, data=data, adaptation=adaptation)
        assert all((PEFT in required_extras([job.config])) == needs_peft for job in trainings(config))


@pytest.mark.parametrize("preset", PRESETS)
def test_tiny_keeps_the_question(preset: str) -> None:
    cells = PRESETS[preset]
    for config in cells if isinstance(cells, tuple) else (cells,):
        assert type(tiny(config).question) is type(config.question)
        assert tiny(tiny(config)) == tiny(config)
