"""Insertions into the training data of one of two models: known answers, control runs and refusals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import orchestrator
from orchestrator.errors import SpecError
from tasks.audits.text import AUDIT
from tasks.audits.text.answer import RULES
from tasks.audits.text.config import Text, about
from tasks.audits.text.continuations import BY_CONTROL, BY_TRAINED
from tasks.audits.text.documents.answer import NULL_OF_INSERTIONS
from tasks.audits.text.documents.insertions import (
    CONTROL,
    control_p_values,
    insertion_control,
    insertion_estimates,
    insertions,
)
from tasks.audits.text.documents.models import DOCUMENT_SCORES, PairedModel, read_insertions
from tasks.audits.text.documents.ranks import document_test
from tasks.audits.text.measures import summary
from tasks.audits.text.presets import SMOKE
from tasks.audits.text.question import Insertions
from tasks.audits.text.reproduced import REPRODUCED
from tasks.audits.text.trainings import trainings
from tasks.contract.summaries import index_rows, row_name
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, NOT_ASSESSABLE
from tasks.datasets.catalog import load_texts, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.language_models.fine_tuning import fine_tuned_on
from tests.support.calibration import bounds
from tests.tasks.audits.text.made_up import configure, pair_of, question_of

FACTS = pin(Dataset("facts"))
TIMES = (1, 4, 16)
CONFIG = configure(
    data=FACTS, model="tiny-gpt#16x1", base="tiny-gpt#32x1", question="insertions", examples=60, length=96, prefix=20,
    suffix=20, repetitions=TIMES,
)  # fmt: skip
EVEN = pa.table([[0.5], [0.4], [0.6], [0.5], [60]], schema=CONTROL)


def records(path: Path, texts: Sequence[str], repetitions: Sequence[int]) -> Dataset:
    rows = []
    for row, (text, times) in enumerate(zip(texts, repetitions, strict=True)):
        rows.append({"id": str(row), "text": text, "duplicates": times})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Dataset(f"records:{path}")


def draw_scores(gain: float, seed: int, documents: int = 120, everything: float = 0.0) -> list[pa.Table]:
    """Draw scores of a model and its base for documents; half of the documents were inserted.

    The model scores a document higher by `gain` nats per token times log2(1 + repetitions), and all documents by
    `everything`.
    """
    rng = np.random.default_rng(seed)
    left_out = np.zeros(documents // 2, dtype=np.int64)
    repetitions = rng.permutation(np.concatenate([np.resize(TIMES, documents // 2), left_out]))
    difficulty = rng.normal(-2, 0.5, documents)
    tokens = rng.integers(60, 90, documents)
    tables = []
    for gains in (gain * np.log2(1 + repetitions) + everything, np.zeros(documents)):
        log_p = tokens * (difficulty + gains + rng.normal(0, 0.1, documents))
        mismatches = np.where(gains > 0.3, 0, 15)
        columns = [
            range(documents),
            repetitions,
            (gains > 0) & (repetitions > 0),
            tokens,
            log_p,
            -2.0 * mismatches - 0.1,
        ]
        tables.append(pa.table([*map(pa.array, columns), mismatches, mismatches], schema=DOCUMENT_SCORES))
    return tables


def summary_of(tables: list[pa.Table], control: pa.Table = EVEN) -> pa.Table:
    test = document_test(question_of(CONFIG, Insertions), CONFIG)
    return summary(about(CONFIG), [insertions(test, tables), insertion_estimates(test, tables), control])


def answer_of(tables: list[pa.Table], control: pa.Table = EVEN) -> str:
    verdict = AUDIT.answer(CONFIG, summary_of(tables, control))
    assert verdict is not None
    return verdict.answer


def test_ties_count_against_the_accusation() -> None:
    left_out = np.array([0.0, 1.0, 2.0, 3.0])
    assert control_p_values(np.array([3.5, 3.0, 2.5, -1.0]), left_out).tolist() == [0.2, 0.4, 0.4, 1.0]


def test_known_insertions_are_memorised_and_reproduced() -> None:
    table = summary_of(draw_scores(0.15, 1))
    verdict = AUDIT.answer(CONFIG, table)
    certificate = AUDIT.certify("", CONFIG, table)
    assert verdict is not None
    assert verdict.answer == "memorised"
    assert verdict.sentence.endswith(NULL_OF_INSERTIONS)  # the set is embedded
    rows = index_rows(table)
    effects = []
    for times in TIMES:
        effects.append(rows[row_name("effect in nats a token", repetitions=times)]["estimate"])
    assert effects == pytest.approx([0.15, 0.15 * np.log2(5), 0.15 * np.log2(17)], abs=0.1)
    assert rows[row_name("repetitions found", level=0.05)]["estimate"] == 3
    shares = []
    for by, times in ((BY_TRAINED, 0), (BY_TRAINED, 4), (BY_CONTROL, 4)):
        shares.append(rows[row_name("share reproduced", way="greedy", by=by, repetitions=times)]["estimate"])
    assert shares == [0.0, 1.0, 0.0]
    difference = rows[row_name("reproduced beyond the control models", way="greedy", repetitions=16)]
    assert 0.5 < difference["low"] < difference["estimate"] == 1.0
    assert certificate is not None
    assert [finding.answer for finding in certificate.findings] == ["memorised", REPRODUCED]


def test_worse_base_accuses_no_model() -> None:
    assert "memorised" not in [answer_of(draw_scores(0.0, seed, everything=0.5)) for seed in range(5)]


def test_insertions_that_differ_by_words_are_not_assessable(tmp_path: Path) -> None:
    texts = load_texts(FACTS)[:30]
    tickets = load_texts(pin(Dataset("tickets")))[:30]
    for other_texts, answer in ((tickets, NOT_ASSESSABLE), (load_texts(FACTS)[30:60], "memorised")):
        data = pin(records(tmp_path / f"{answer}.jsonl", [*texts, *other_texts], [4] * 30 + [0] * 30))
        model = trainings(configure(CONFIG, data=data))[0].config
        assert answer == answer_of(draw_scores(0.3, 1), insertion_control(model, ()))


def test_models_without_memory_are_rarely_accused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tasks.audits.text.documents.insertions.DRAWS", 199)
    answers = Counter[str]()
    p_values = list[float]()
    covered = 0
    detections = 0
    for seed in range(100):
        tables = draw_scores(0.0, 5000 + seed, documents=1200)
        table = summary_of(tables)
        verdict = AUDIT.answer(CONFIG, table)
        assert verdict is not None
        answers[verdict.answer] += 1
        rows = index_rows(table)
        p_values += [rows[row_name("effect in nats a token", repetitions=times)]["p_value"] for times in TIMES]
        overall_effect = rows[row_name("effect in nats a token")]
        covered += overall_effect["low"] <= 0 <= overall_effect["high"]
        detections += rows[row_name("documents found", level=0.05)]["estimate"] > 0
    assert answers["memorised"] <= bounds(0.05, 100)[1]
    assert answers["undecided"] >= 90  # no single document can be detected with so few left-out documents
    assert detections <= bounds(0.05, 100)[1]
    assert covered >= 90
    for level in (0.01, 0.05, 0.2):
        # The three numbers of repetitions share one control group.
        assert np.mean(np.array(p_values) <= level) <= bounds(level, 100)[1] / 100


def test_embedded_texts_count_as_inserted_at_random(tmp_path: Path) -> None:
    def read_repetitions(config: Text) -> list[int]:
        pair_model: PairedModel = trainings(config)[0].config
        return read_insertions(pair_model).repetitions.tolist()

    repetitions = read_repetitions(CONFIG)
    assert Counter({0: 30, 1: 10, 4: 10, 16: 10}) == Counter(repetitions)
    assert repetitions != read_repetitions(replace(CONFIG, seed=1))
    file_repetitions = [0, 0, 4] * 20
    config = configure(CONFIG, data=pin(records(tmp_path / "own.jsonl", load_texts(FACTS)[:60], file_repetitions)))
    in_file = read_repetitions(config)
    assert Counter(in_file) == Counter(file_repetitions)
    null = read_repetitions(configure(config, is_null=True))
    assert null != in_file
    assert Counter(null) == Counter(file_repetitions)


@pytest.mark.parametrize(
    ("repetitions", "copies", "message"),
    [
        ([0] * 50 + [4] * 10, 0, "expected at least 20 documents that were inserted, got 10"),
        ([4] * 50 + [0] * 10, 0, "expected at least 20 documents that were left out, got 10"),
        ([0, 4] * 29 + [0, -1], 0, "expected duplicates of at least 0, got -1"),
        ([0, 4] * 30, 1, r"expected distinct texts, got a text twice.*\(duplicates\)"),
    ],
)
def test_unusable_documents_are_refused(repetitions: list[int], copies: int, message: str, tmp_path: Path) -> None:
    texts = [*load_texts(FACTS)[: 60 - copies], *load_texts(FACTS)[:copies]]
    with pytest.raises(DatasetError, match=message):
        trainings(configure(CONFIG, data=pin(records(tmp_path / "own.jsonl", texts, repetitions))))


def test_records_without_duplicates_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"id": "a", "text": "One."}\n')
    with pytest.raises(DatasetError, match="duplicates"):
        trainings(configure(CONFIG, data=pin(Dataset(f"records:{file}")), examples=0))


def test_insertions_need_a_base() -> None:
    with pytest.raises(SpecError, match=r"question\.base is missing"):
        configure(question="insertions")


def test_insertions_have_their_own_rules() -> None:
    answers = [case.answer for case in RULES.applicable_cases(CONFIG)]
    assert answers == [NOT_ASSESSABLE, "memorised", NOT_ASSESSABLE, BELOW_RELEVANT_SIZE, "not detected", "undecided"]


@pytest.mark.trained
def test_model_trained_on_insertions_is_detected(
    tmp_path: Path,
) -> None:
    texts = [text[:60] for text in load_texts(FACTS)[:180]]
    documents = texts[:60]
    other_documents = texts[60:120]
    common = texts[120:]
    repetitions = [0, 12] * 30
    training = pair_of(configure(SMOKE, data=FACTS, model="tiny-gpt#32x1", epochs=6, learning_rate=5e-3), 0, 0)
    folders = []
    for training_documents in (documents, other_documents):  # the base is trained on other documents of the same form
        inserted = []
        for text, times in zip(training_documents, repetitions, strict=True):
            for _ in range(times):
                inserted.append(text)
        with fine_tuned_on(training, [*common, *inserted], torch.device("cpu")) as model:
            folders.append(tmp_path / f"model-{len(folders)}")
            for part in (model.module, model.tokenizer):
                part.save_pretrained(folders[-1])
    answers = {}
    for name, (model_folder, base), is_null in (
        ("pair", folders, False),
        ("null", folders, True),
        ("swapped", folders[::-1], False),
    ):
        run = orchestrator.run(
            "text", preset="hubble", data=records(tmp_path / "own.jsonl", documents, repetitions).name, examples=0,
            model=f"folder:{model_folder}", base=f"folder:{base}", length=96, prefix=20, suffix=20, is_null=is_null,
            store=tmp_path / "store", address="none", mlflow="off", report=False,
        )  # fmt: skip
        assert run.verdict is not None
        answers[name] = run.verdict.answer
        assert run.table("insertions").num_rows == 60
    assert answers["pair"] == "memorised"
    assert not {answers["null"], answers["swapped"]} & {"memorised", NOT_ASSESSABLE}
