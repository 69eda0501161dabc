"""Figures of relational, the numbers in their captions, and the texts on the page."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dashboards.audits.relational.examples import EACH, examples
from dashboards.chart import Figure
from dashboards.figures import figures
from dashboards.gallery import Gallery
from dashboards.run import Run
from orchestrator.store import Store
from tasks.audits.relational.config import Relational
from tasks.audits.relational.measures.memorization import MEMORIZATION
from tasks.audits.relational.measures.questions import QUESTIONS
from tasks.audits.relational.measures.questions import questions as of_questions
from tasks.audits.relational.presets import SMOKE
from tasks.contract.job import NoSettings
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.linear_memorization.gradient_flow import CURVES
from tasks.linear_memorization.private import PRIVATE
from tasks.question_answering.question_sets import ANSWERS
from tests.dashboards import made
from tests.dashboards.labels import words
from tests.dashboards.test_figures import named
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.relational.made_up import FACTS, memorization_of, questions, score_rows, table

CONFIG = with_settings(SMOKE, data=FACTS)


def run(store: Store, name: str = "relational-1", config: Relational = CONFIG, **tables: pa.Table) -> Run:
    parts = {root: [table] for root, table in tables.items()}
    return made.run(store, name, {"summary": [], **parts}, config, audit="relational")


def draw_figures(store: Store, **tables: pa.Table) -> dict[str, Figure]:
    return named(run(store, **tables))


def memorization_table(epochs: int, several: bool = False, epoch_known: bool = True) -> pa.Table:
    """Return a table with m = 0.1 after every epoch; with `several`, held-out questions have several gold answers."""
    parts = []
    for epoch in range(epochs):
        scores = [1.0] * epoch + [0.0] * (10 - epoch)
        common = {"epoch": epoch if epoch_known else None}
        best_scores = [1.0] * 2 + [0.0] * 8 if several else None
        parts += [
            score_rows("train", scores, **common),
            score_rows("validation", [0.0] * 10, [0.5] * 10, several=best_scores, **common),
        ]
    return memorization_of(table(*parts))


def linear_table(samples: int, features: int, *memorization: float) -> pa.Table:
    rows = []
    for index, value in enumerate(memorization):
        row: dict[str, Any] = {"samples": samples, "features": features, "time": 10.0**index, "n": 5}
        for name, level in (("learning", 0.9), ("memorization", value)):
            row |= {name: level, f"{name}_low": level - 0.05, f"{name}_high": level + 0.05}
        rows.append(row)
    return pa.Table.from_pylist(rows, CURVES)


def private_table(bound: float | None = 0.7) -> pa.Table:
    rows = []
    for mechanism, epsilon, query, m in (
        ("randomised_response", 1.0, "raw", 0.1),
        ("randomised_response", 1.0, "ratio", 0.25),
        ("randomised_response", 8.0, "raw", 0.5),
        ("noisy_descent", 1.0, "raw", 0.05),
        ("none", None, "raw", 0.9),
    ):
        row = dict.fromkeys(PRIVATE.names) | {"mechanism": mechanism, "epsilon": epsilon, "query": query, "m": m}
        row |= {"low": m - 0.02, "high": m + 0.02, "n": 1000, "success_bound": 0.95}
        rows.append(row | {"bound": bound if mechanism == "randomised_response" else None})
    return pa.Table.from_pylist(rows, PRIVATE)


def test_complete_run_has_all_its_figures(store: Store) -> None:
    figures_by_name = draw_figures(
        store,
        memorization=memorization_table(3),
        linear_curves=linear_table(3, 9, 0.5, 0.7),
        linear_private=private_table(),
    )
    assert list(figures_by_name) == ["memorization", "answers", "linear", "private"]
    assert [name for name, figure in figures_by_name.items() if "  " in figure.caption + figure.alt] == []


def test_empty_or_foreign_tables_draw_nothing(store: Store) -> None:
    tables = {
        "memorization": memorization_table(2),
        "linear_curves": linear_table(3, 9, 0.5),
        "linear_private": private_table(),
    }
    assert figures(run(store)) == []
    assert figures(run(store, "relational-2", **{name: pa.table({"column": [1]}) for name in tables})) == []
    assert figures(run(store, "relational-3", **{name: table.slice(0, 0) for name, table in tables.items()})) == []


def test_caption_states_final_m_with_interval(golden: Golden, store: Store) -> None:
    table = memorization_table(4)
    figure = draw_figures(store, memorization=table)["memorization"]
    golden(figure.alt)
    assert "as published" not in figure.alt + figure.caption  # no question has several gold answers
    assert "epoch" in words(figure)


def test_different_published_m_is_drawn(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, memorization=memorization_table(4, several=True))["memorization"]
    golden(figure.alt, "found.alt")
    golden(figure.caption, "found.caption")
    assert set(words(figure)) >= {"one gold answer on both parts", "all gold answers, as published"}


def test_four_curves_state_ends_and_counts(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, memorization=memorization_table(4))["answers"]
    ends = {"Training, whole context": "1", "Held out, whole context": "0.5"}
    ends |= {"Training, corrupted": "0.3", "Held out, corrupted": "0"}
    for name, value in ends.items():
        assert f"{name}, F1: {value} [" in figure.alt
    golden(figure.alt, "alt")
    golden(figure.caption, "caption")


@pytest.mark.parametrize("epoch_known", [True, False])
def test_single_or_unknown_epoch_is_drawn(golden: Golden, store: Store, epoch_known: bool) -> None:
    table = memorization_table(1, epoch_known=epoch_known)
    assert [0 if epoch_known else None] == table["epoch"].unique().to_pylist()
    figures_by_name = draw_figures(store, memorization=table)
    assert list(figures_by_name) == ["memorization", "answers"]
    golden(figures_by_name["memorization"].alt)
    assert "epoch" not in words(figures_by_name["answers"])


def test_missing_interval_is_not_drawn(golden: Golden, store: Store) -> None:
    rows = []
    for row in memorization_table(2).to_pylist():
        rows.append(row | {name: None for name in row if name.endswith(("_low", "_high"))})
    figure = draw_figures(store, memorization=pa.Table.from_pylist(rows, MEMORIZATION))["memorization"]
    golden(figure.alt)


def test_linear_caption_states_peak_by_size(golden: Golden, store: Store) -> None:
    curves = pa.concat_tables([linear_table(30, 30, 0.5, 0.75, 0.625), linear_table(10, 60, 0.5, 0.625, 0.875)])
    figure = draw_figures(store, linear_curves=curves)["linear"]
    golden(figure.alt)
    assert set(words(figure)) >= {"n = 30 samples, d = 30 features", "n = 10 samples, d = 60 features"}
    golden(figure.caption, "found.caption")


def test_private_caption_states_better_query(golden: Golden, store: Store) -> None:
    figure = draw_figures(store, linear_private=private_table())["private"]
    golden(figure.alt)
    assert "0.9" not in figure.alt  # without privacy there is no epsilon
    golden(figure.caption, "found.caption")
    without_privacy = private_table(bound=None).filter(pc.field("mechanism") == "none")
    assert figures(run(store, "relational-2", linear_private=without_privacy)) == []


def answered_questions(split: str, right: int, total: int, ids: list[str] | None = None) -> list[dict[str, Any]]:
    return score_rows(split, [1.0] * right + [0.0] * (total - right), ids=ids)


def open_gallery(
    store: Store, config: Relational, table: pa.Table, show_images: bool = False, name: str = "x"
) -> Gallery:
    result = examples(run(store, f"relational-{name}", config, questions=table), show_images)
    assert result is not None
    return result


def test_correctly_answered_questions_are_shown_with_contexts(store: Store) -> None:
    question_table = of_questions(
        NoSettings(), [table(answered_questions("train", 2, 5), answered_questions("validation", 1, 5))]
    )
    result = open_gallery(store, CONFIG, question_table)
    assert (result.shown, result.note) == (True, "")
    assert [shown_record.group for shown_record in result.records] == ["Training questions"] * 2 + [
        "Held-out questions"
    ]
    for question, record in zip([*questions("train")[:2], questions("validation")[0]], result.records, strict=True):
        fields = dict(record.fields)
        assert question.id == record.title
        assert question.context == fields["context"]
        assert question.question == fields["question"]
        assert re.sub("[0-9]", "", question.context) == fields["corrupted"]
        assert question.golds[0][0] == fields["right answer"]
        assert fields["answer, corrupted"] == "(none)"  # the answers are not stored here


def test_stored_answers_of_last_epoch_are_shown(store: Store) -> None:
    (question,) = questions("train")[:1]
    rows = []
    for epoch, kind, answer in ((1, True, "old"), (2, True, "remembered"), (2, False, "read")):
        rows.append({"epoch": epoch, "split": "train", "corrupted": kind, "id": question.id, "answer": [answer]})
    answers_key = hashlib.sha256(b"answers").hexdigest()
    store.write(answers_key, pa.Table.from_pylist(rows, ANSWERS), {})
    scores = table(answered_questions("train", 1, 1))
    # The run's table, with the record of a job that read the answers.
    store.write(hashlib.sha256(b"relational-1 scores 0").hexdigest(), scores, {"inputs": [answers_key]})
    tables = {"summary": [], "scores": [scores], "questions": [of_questions(NoSettings(), [scores])]}
    full_run = made.run(store, "relational-1", tables, CONFIG, audit="relational")
    result = examples(full_run, False)
    assert result is not None
    fields = dict(result.records[0].fields)
    assert fields["answer, corrupted"] == "remembered"
    assert fields["answer, whole"] == "read"


def test_first_questions_are_shown_with_training_counts(store: Store) -> None:
    many = of_questions(
        NoSettings(), [table(answered_questions("train", 40, 50)), table(score_rows("train", [1.0], replicate=1))]
    )
    result = open_gallery(store, CONFIG, many)
    assert len(result.records) == EACH
    assert f"{questions('train')[0].id}, in 2 of 2 trainings" in [record.title for record in result.records]


def users_records(folder: Path) -> Dataset:
    """Write a user's records and pin them."""
    folder.mkdir(parents=True)
    rows = []
    for split in ("train", "validation"):
        for number in range(3):
            rows.append(
                {
                    "id": f"{split}-{number}",
                    "context": f"The <secret> of {split} {number} is 7{number}.",
                    "question": "What is it?",
                }
                | {"answers": [f"7{number}"], "split": split}
            )
    (folder / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return catalog.pin(Dataset(f"records:{folder / 'asked.jsonl'}"))


def test_private_texts_are_hidden_by_default(golden: Golden, store: Store, tmp_path: Path) -> None:
    config = with_settings(CONFIG, data=users_records(tmp_path / "own"))
    ids = ["train-0", "train-1", "train-2"]
    question_table = of_questions(NoSettings(), [table(answered_questions("train", 2, 3, ids))])
    hidden = open_gallery(store, config, question_table, name="1")
    assert (hidden.shown, hidden.records) == (False, ())
    golden(hidden.note)
    assert str(tmp_path) not in hidden.note
    private_table = open_gallery(store, config, question_table, True, "2")
    assert [dict(record.fields)["context"] for record in private_table.records] == [
        "The <secret> of train 0 is 70.",
        "The <secret> of train 1 is 71.",
    ]


def test_missing_data_are_reported(golden: Golden, store: Store, tmp_path: Path) -> None:
    config = with_settings(CONFIG, data=users_records(tmp_path / "own"))
    question_table = of_questions(NoSettings(), [table(answered_questions("train", 1, 1, ["train-0"]))])
    (tmp_path / "own" / "asked.jsonl").unlink()
    catalog._records.clear()  # as in another process
    catalog._questions.clear()
    result = open_gallery(store, config, question_table, True)
    assert not result.shown
    golden(result.note)


def test_unanswered_questions_have_no_gallery(store: Store) -> None:
    unanswered = of_questions(NoSettings(), [table(answered_questions("train", 0, 3))])
    assert examples(run(store, questions=unanswered), False) is None
    assert examples(run(store, "relational-2"), False) is None
    assert examples(run(store, "relational-3", questions=QUESTIONS.empty_table()), False) is None
