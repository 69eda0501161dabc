"""Identifiers: found by format, refused unless they are random, and ranked in a model."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import orchestrator
from tasks.audits.text.answer import RULES, certificate, verdict
from tasks.audits.text.config import About, Text
from tasks.audits.text.given.model import IDENTIFIER_SCORES, candidate_texts
from tasks.audits.text.measures import summary
from tasks.audits.text.secrets.ranks import Ranking, identifiers
from tasks.audits.text.secrets.space import control_p_value, find_identifiers, space_of
from tasks.audits.text.trainings import trainings
from tasks.datasets.catalog import load_texts, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.language_models.pretrained import prepare_model
from tasks.language_models.training import FineTuner, encode_texts
from tasks.numerics.evenness import evenness_p_values
from tests.support.golden import Golden
from tests.tasks.audits.text.made_up import configure, pair_of

TICKETS = pin(Dataset("tickets"))
CONFIG = configure(data=TICKETS, model="tiny-gpt#16x1", identifiers=("uuid4",), secrets=8, references=199, context=40)
DIGITS = "{digits:9}"


def draw_identifier_scores(p: float, gain: float, seed: int, count: int = 24) -> pa.Table:
    """Draw scores of identifiers, which the model scores higher by `gain` nats; `p` is the blind control's p-value."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        for log_p in [rng.normal(-90, 3, 500) + gain * (np.arange(500) == 0)]:
            rows.append({"format": "uuid4", "row": number, "occurrences": 1, "control": p, "log_p": log_p.tolist()})
    return pa.Table.from_pylist(rows, IDENTIFIER_SCORES)


def answer_of(table: pa.Table, config: Text = CONFIG) -> str:
    return verdict(config, summary(About(0.05), [identifiers(Ranking(0.05), [table])])).answer


def test_identifiers_are_found_at_first_occurrence() -> None:
    first_uuid, second_uuid = (str(uuid.UUID(int=number << 70, version=4)) for number in (5, 6))
    time_uuid = str(uuid.UUID(int=7 << 70, version=1))  # based on time
    texts = [
        f"a {first_uuid}, {time_uuid}",
        f"b {first_uuid} {second_uuid}. key-0123456789abcdef x0123456789abcdef0123456789abcdef",
    ]
    identifiers = find_identifiers(texts, ("uuid4", "key-{hex:16}", "md5"))
    assert [
        (identifier.format, identifier.row, identifier.occurrences)
        for identifier in (identifiers[0], replace(identifiers[1], row=0), identifiers[2])
    ] == [
        ("uuid4", 0, 2),
        ("uuid4", 0, 1),
        ("key-{hex:16}", 1, 1),
    ]
    assert [
        texts[identifier.row][identifier.start :][
            : len(space_of(identifier.format).write(0, identifier.random_characters))
        ]
        for identifier in identifiers
    ] == [first_uuid, second_uuid, "key-0123456789abcdef"]


def luhn(number: int) -> str:
    """Append the check digit to a number: ISO/IEC 7812-1, annex B."""
    digits = [int(digit) for digit in f"{number:08}"]
    doubled = []
    for position, digit in enumerate(digits):
        doubled.append(2 * digit - 9 * (digit > 4) if position % 2 else digit)
    return f"{number:08}{-sum(doubled) % 10}"


@pytest.mark.parametrize(
    "draw",
    [
        lambda chance, at: f"{170_000_000 + 37 * at + chance.integers(30):09}",
        lambda chance, _: luhn(int(chance.integers(10**8))),
        lambda chance, _: f"{97 * chance.integers(10**9 // 97) + 1:09}",
        lambda chance, _: "".join(str(digit) for digit in chance.choice(10, 9, p=[0.37, *[0.07] * 9])),
    ],
    ids=["grows", "Luhn", "modulo 97", "uneven"],
)
def test_uneven_identifiers_are_detected_without_model(draw: Callable[[np.random.Generator, int], str]) -> None:
    rng = np.random.default_rng(1)
    texts = [f"id {draw(rng, number)}" for number in range(60)]
    assert control_p_value(find_identifiers(texts, (DIGITS,)), (DIGITS,), 1) <= 0.01


def test_random_identifiers_are_rarely_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.numerics.evenness.SIMULATIONS", 99)
    space = space_of(DIGITS)
    adjusted_p_values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p_values = evenness_p_values([space.draw(rng) for _ in range(30)], space.alphabets, rng)
        adjusted_p_values.append(min(p_values) * len(p_values))
    assert sum(p <= 0.2 for p in adjusted_p_values) <= 20  # of 60 at 20 %: more with a chance of 1 in 200
    assert control_p_value([], (DIGITS,), 1) == 1


def test_references_replace_the_uuid_of_a_ticket() -> None:
    texts = load_texts(TICKETS)
    identifiers = find_identifiers(texts, ("uuid4",))
    assert len(texts) == len(identifiers) == 300
    assert control_p_value(identifiers, ("uuid4",), 1) > 0.01
    question = trainings(CONFIG)[0].config
    first, *references = candidate_texts(question, identifiers[7], texts[7])
    assert first == texts[7][max(0, identifiers[7].start - 40) : -1]
    assert len(set(references)) == 199
    assert {text[:-36] for text in references} == {first[:-36]}
    assert all(uuid.UUID(text[-36:]).version == 4 for text in references)
    replacement, *null_references = candidate_texts(replace(question, is_null=True), identifiers[7], texts[7])
    assert replacement not in (first, *references)
    assert len(null_references) == 199
    with pytest.raises(DatasetError, match="expected formats that occur in facts, got uuid4"):
        trainings(configure(CONFIG, data=pin(Dataset("facts"))))


def test_uneven_identifiers_are_not_assessable(golden: Golden) -> None:
    assert answer_of(draw_identifier_scores(0.5, 20.0, 1)) == "memorised"
    assert answer_of(draw_identifier_scores(0.01, 20.0, 1)) == "not assessable"
    assert [answer_of(draw_identifier_scores(0.5, 0.0, seed)) for seed in range(3)] != ["memorised"] * 3
    rows = summary(About(0.05), [identifiers(Ranking(0.05), [draw_identifier_scores(0.004, 20.0, 1)])])
    answer = verdict(CONFIG, rows)
    golden(answer.sentence)
    page = certificate(CONFIG, rows, answer)
    assert RULES.explain(CONFIG) == page.rule
    assert page.steps


def test_models_without_memory_are_rarely_accused() -> None:
    answers = []
    for seed in range(100, 200):
        answers.append(answer_of(draw_identifier_scores(0.5, 0.0, seed)))
    assert answers.count("memorised") <= 12  # of 100 at 5.1 %: more with a chance of 1 in 500


@pytest.mark.trained
def test_trained_model_reveals_its_identifiers(
    tmp_path: Path,
) -> None:
    training = pair_of(
        configure(data=TICKETS, model="tiny-gpt#64x1", epochs=50, batch=8, learning_rate=5e-3, length=128), 0, 0
    )
    texts = load_texts(TICKETS)[:8]
    learner = prepare_model(training, texts, torch.device("cpu"))
    FineTuner(training, learner, encode_texts(training, learner, texts)).fit("", lambda *_: None, None)
    folder = tmp_path / "gpt"
    for part in (learner.module, learner.tokenizer):
        part.save_pretrained(folder)
    settings = {"data": "tickets", "examples": 8, "secrets": 8, "references": 199, "context": 40, "length": 128}
    answers = []
    for fields in ({"model": f"folder:{folder}"}, {"model": f"folder:{folder}", "is_null": True}):
        run = orchestrator.run(
            "text", preset="identifiers", store=tmp_path / "store", address="none", mlflow="off", report=False,
            **settings, **fields,
        )  # fmt: skip
        assert run.verdict is not None
        answers.append(run.verdict.answer)
        assert run.table("identifiers").num_rows == 8
    assert answers[0] == "memorised"
    assert answers[1] in ("undecided", "not detected")
