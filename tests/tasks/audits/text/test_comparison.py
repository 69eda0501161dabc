"""Comparison with texts of another time or source: a warning if words alone do not distinguish them."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.audits.text import AUDIT, probes, split
from tasks.audits.text.config import Text, about
from tasks.audits.text.given.comparison import (
    ATTACKS,
    BLIND,
    COMPARISON,
    comparison,
    plan,
    score_given_model,
)
from tasks.audits.text.given.returned import returned
from tasks.audits.text.measures import summary
from tasks.audits.text.question import TextComparison
from tasks.contract.job import Job
from tasks.datasets.catalog import load_texts, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.records import Records
from tasks.language_models.training import least_likely
from tasks.worker import files
from tasks.worker.files import File
from tests.tasks.audits.text.made_up import configure, question_of

FACTS = pin(Dataset("facts"))
TICKETS = pin(Dataset("tickets"))


def compare_with(comparison_texts: Dataset) -> Text:
    return configure(data=FACTS, comparison_texts=comparison_texts, model="tiny-gpt#16x1", examples=60, length=300)


def records(path: Path, texts: Sequence[str]) -> Dataset:
    path.write_text("".join(json.dumps({"id": str(index), "text": text}) + "\n" for index, text in enumerate(texts)))
    return pin(Dataset(f"records:{path}"))


def job(config: Text) -> Job:
    root = plan(config, ())
    assert isinstance(root, Job)
    return root


def test_texts_that_differ_by_words_are_not_assessable(tmp_path: Path) -> None:
    different, similar = (
        compare_with(records(tmp_path / f"{name}.jsonl", texts))
        for name, texts in (("tickets", load_texts(TICKETS)[:60]), ("facts", load_texts(FACTS)[60:120]))
    )
    answers = []
    for config in (different, similar):
        table = comparison(job(config).config, ())
        assert table["score"].to_pylist() == [*ATTACKS, BLIND]
        verdict = AUDIT.answer(config, summary(about(config), [table]))
        assert verdict is not None
        assert "not evidence" in verdict.limits
        answers.append(verdict.answer)
    assert answers == ["not assessable", "undecided"]
    assert set(AUDIT.plan(similar)) == {"comparison", "summary"}


@pytest.mark.parametrize(
    ("loss", "blind", "p_value", "answer"),
    [
        ((0.9, 0.85, 0.95), (0.5, 0.4, 0.6), 0.5, "distinguishable"),
        ((0.9, 0.85, 0.95), (0.7, 0.6, 0.8), 0.01, "not assessable"),
        ((0.55, 0.51, 0.6), (0.5, 0.4, 0.6), 0.5, "undecided"),
        ((0.5, 0.45, 0.55), (0.5, 0.4, 0.6), 0.5, "undecided"),
    ],
)
def test_loss_must_exceed_the_blind_control(
    loss: tuple[float, ...], blind: tuple[float, ...], p_value: float, answer: str
) -> None:
    rows = [*((name, *loss, None) for name in ATTACKS), (BLIND, *blind, p_value)]
    table = pa.table([*map(list, zip(*rows, strict=True)), [60] * 4, [60] * 4], schema=COMPARISON)
    config = compare_with(FACTS)
    table_of_summary = summary(about(config), [table])
    verdict = AUDIT.answer(config, table_of_summary)
    certificate = AUDIT.certify("", config, table_of_summary)
    assert verdict is not None
    assert answer == verdict.answer
    assert certificate is not None
    assert "p =" not in certificate.findings[0].sentence


def test_scores_follow_their_formulas() -> None:
    config = job(compare_with(TICKETS)).config
    texts = ["One.", "Something longer than one."]
    scores = score_given_model(config, texts)
    log_p = scores["zlib"] * [8 * len(zlib.compress(text.encode())) for text in texts]
    np.testing.assert_allclose(scores["loss"] * [len(text) + 1 for text in texts], log_p)
    tokens = torch.tensor([[-1.0, -5.0, -2.0, -4.0, -3.0], [-1.0, -2.0, 0.0, 0.0, 0.0]])
    assert least_likely(0.4)(tokens).tolist() == [-4.5, -2.0]


def answer_of_table(config: Text, path: Path, log_p: Callable[[str, bool], float]) -> str:
    """Return the answer on a table with `log_p(text, is_member)` for every text."""
    ((_, exported),) = probes(config)
    assert isinstance(exported, Records)
    question = question_of(config, TextComparison)
    members = set(load_texts(question.data, question.examples))
    texts = exported.table["text"].to_pylist()
    assert members | set(load_texts(question.comparison_texts)) == set(texts)
    rows = []
    for name, text in zip(exported.ids, texts, strict=True):
        rows.append(f"{name},{log_p(text, text in members)!r}")
    path.write_text("\n".join(["id,log_p", *rows]) + "\n")
    config_with_table = configure(config, outputs=files.pin(File(str(path)), {}))
    tables = [comparison(job(config_with_table).config, ()), returned(job(config_with_table).config, ())]
    assert tables[0]["score"].to_pylist() == ["loss", "zlib", BLIND]
    verdict = AUDIT.answer(config_with_table, summary(about(config_with_table), tables))
    assert verdict is not None
    return verdict.answer


def test_returned_table_covers_both_shuffled_sets(tmp_path: Path) -> None:
    tickets, facts = (
        compare_with(records(tmp_path / f"{name}.jsonl", texts))
        for name, texts in (("tickets", load_texts(TICKETS)[:60]), ("facts", load_texts(FACTS)[60:120]))
    )
    key = split(facts).key
    assert key is not None
    assert set(key["question"].to_pylist()) == {0, 1}

    def log_p_of(text: str, is_member: bool) -> float:
        return -len(text.encode()) * (2.0 - is_member + 0.3 * random.Random(text).random())

    path = tmp_path / "log_p.csv"
    assert answer_of_table(facts, path, log_p_of) == "distinguishable"
    assert answer_of_table(tickets, path, log_p_of) == "not assessable"
    assert answer_of_table(facts, path, lambda text, _: log_p_of(text, False)) == "undecided"
    assert answer_of_table(facts, path, lambda *_: -100.0) == "not assessable"
    config_with_table = configure(facts, outputs=files.pin(File(str(path)), {}))
    assert set(AUDIT.plan(config_with_table)) == {"comparison", "returned", "summary"}


def test_small_or_overlapping_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="expected texts that are not in facts, got 60 that are"):
        plan(compare_with(FACTS), ())
    with pytest.raises(DatasetError, match="expected at least 20 texts, got 3"):
        plan(compare_with(records(tmp_path / "few.jsonl", ["a", "b", "c"])), ())
