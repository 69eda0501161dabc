"""The figures of relational, the numbers in their captions, and the texts that are shown."""

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


def drawn(store: Store, **tables: pa.Table) -> dict[str, Figure]:
    return named(run(store, **tables))


def trained(epochs: int, several: bool = False, known: bool = True) -> pa.Table:
    """Return a table with m = 0.1 after every epoch; with `several`, held-out questions have several gold answers."""
    parts = []
    for epoch in range(epochs):
        right, at = [1.0] * epoch + [0.0] * (10 - epoch), {"epoch": epoch if known else None}
        best = [1.0] * 2 + [0.0] * 8 if several else None
        parts += [
            score_rows("train", right, **at),
            score_rows("validation", [0.0] * 10, [0.5] * 10, several=best, **at),
        ]
    return memorization_of(table(*parts))


def linear(samples: int, features: int, *memorization: float) -> pa.Table:
    rows = []
    for at, value in enumerate(memorization):
        row: dict[str, Any] = {"samples": samples, "features": features, "time": 10.0**at, "n": 5}
        for name, level in (("learning", 0.9), ("memorization", value)):
            row |= {name: level, f"{name}_low": level - 0.05, f"{name}_high": level + 0.05}
        rows.append(row)
    return pa.Table.from_pylist(rows, CURVES)


def private(bound: float | None = 0.7) -> pa.Table:
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


def test_a_whole_run_has_all_its_figures(store: Store) -> None:
    found = drawn(store, memorization=trained(3), linear_curves=linear(3, 9, 0.5, 0.7), linear_private=private())
    assert list(found) == ["memorization", "answers", "linear", "private"]
    assert [name for name, figure in found.items() if "  " in figure.caption + figure.alt] == []


def test_empty_or_foreign_tables_draw_nothing(store: Store) -> None:
    whole = {"memorization": trained(2), "linear_curves": linear(3, 9, 0.5), "linear_private": private()}
    assert figures(run(store)) == []
    assert figures(run(store, "relational-2", **{name: pa.table({"column": [1]}) for name in whole})) == []
    assert figures(run(store, "relational-3", **{name: each.slice(0, 0) for name, each in whole.items()})) == []


def test_caption_states_final_m_with_interval(golden: Golden, store: Store) -> None:
    table = trained(4)
    found = drawn(store, memorization=table)["memorization"]
    golden(found.alt)
    assert "as published" not in found.alt + found.caption  # no question has several gold answers
    assert "epoch" in words(found)


def test_different_published_m_is_drawn(golden: Golden, store: Store) -> None:
    found = drawn(store, memorization=trained(4, several=True))["memorization"]
    golden(found.alt, "found.alt")
    golden(found.caption, "found.caption")
    assert {"one gold answer on both parts", "all gold answers, as published"} <= set(words(found))


def test_four_curves_state_ends_and_counts(golden: Golden, store: Store) -> None:
    found = drawn(store, memorization=trained(4))["answers"]
    ends = {"Training, whole context": "1", "Held out, whole context": "0.5"}
    ends |= {"Training, corrupted": "0.3", "Held out, corrupted": "0"}
    for name, value in ends.items():
        assert f"{name}, F1: {value} [" in found.alt
    golden(found.alt, "alt")
    golden(found.caption, "caption")


@pytest.mark.parametrize("known", [True, False])
def test_single_or_unknown_epoch_is_drawn(golden: Golden, store: Store, known: bool) -> None:
    table = trained(1, known=known)
    assert [0 if known else None] == table["epoch"].unique().to_pylist()
    found = drawn(store, memorization=table)
    assert list(found) == ["memorization", "answers"]
    golden(found["memorization"].alt)
    assert "epoch" not in words(found["answers"])


def test_missing_interval_is_not_drawn(golden: Golden, store: Store) -> None:
    rows = [row | {name: None for name in row if name.endswith(("_low", "_high"))} for row in trained(2).to_pylist()]
    found = drawn(store, memorization=pa.Table.from_pylist(rows, MEMORIZATION))["memorization"]
    golden(found.alt)


def test_linear_caption_states_peak_by_size(golden: Golden, store: Store) -> None:
    both = pa.concat_tables([linear(30, 30, 0.5, 0.75, 0.625), linear(10, 60, 0.5, 0.625, 0.875)])
    found = drawn(store, linear_curves=both)["linear"]
    golden(found.alt)
    assert {"n = 30 samples, d = 30 features", "n = 10 samples, d = 60 features"} <= set(words(found))
    golden(found.caption, "found.caption")


def test_private_caption_states_better_query(golden: Golden, store: Store) -> None:
    found = drawn(store, linear_private=private())["private"]
    golden(found.alt)
    assert "0.9" not in found.alt  # without privacy there is no epsilon
    golden(found.caption, "found.caption")
    nothing = private(bound=None).filter(pc.field("mechanism") == "none")
    assert figures(run(store, "relational-2", linear_private=nothing)) == []


def answered(split: str, right: int, of: int, ids: list[str] | None = None) -> list[dict[str, Any]]:
    return score_rows(split, [1.0] * right + [0.0] * (of - right), ids=ids)


def shown(store: Store, config: Relational, table: pa.Table, show_images: bool = False, name: str = "x") -> Gallery:
    found = examples(run(store, f"relational-{name}", config, questions=table), show_images)
    assert found is not None
    return found


def test_hidden_answers_are_shown_with_contexts(store: Store) -> None:
    asked = of_questions(NoSettings(), [table(answered("train", 2, 5), answered("validation", 1, 5))])
    found = shown(store, CONFIG, asked)
    assert (found.shown, found.note) == (True, "")
    assert [each.group for each in found.records] == ["Training questions"] * 2 + ["Held-out questions"]
    for question, record in zip([*questions("train")[:2], questions("validation")[0]], found.records, strict=True):
        fields = dict(record.fields)
        assert question.id == record.title
        assert (question.context, question.question) == (fields["context"], fields["question"])
        assert re.sub("[0-9]", "", question.context) == fields["corrupted"]
        assert question.golds[0][0] == fields["right answer"]
        assert fields["answer, corrupted"] == "(none)"  # the answers are not stored here


def test_stored_answers_of_last_epoch_are_shown(store: Store) -> None:
    (question,) = questions("train")[:1]
    rows = [
        {"epoch": epoch, "split": "train", "corrupted": kind, "id": question.id, "answer": [said]}
        for epoch, kind, said in ((1, True, "old"), (2, True, "remembered"), (2, False, "read"))
    ]
    stored = hashlib.sha256(b"answers").hexdigest()
    store.write(stored, pa.Table.from_pylist(rows, ANSWERS), {})
    scores = table(answered("train", 1, 1))
    # The run's table, with the record of a job that read the answers.
    store.write(hashlib.sha256(b"relational-1 scores 0").hexdigest(), scores, {"inputs": [stored]})
    tables = {"summary": [], "scores": [scores], "questions": [of_questions(NoSettings(), [scores])]}
    made_of = made.run(store, "relational-1", tables, CONFIG, audit="relational")
    found = examples(made_of, False)
    assert found is not None
    fields = dict(found.records[0].fields)
    assert (fields["answer, corrupted"], fields["answer, whole"]) == ("remembered", "read")


def test_first_questions_are_shown_with_training_counts(store: Store) -> None:
    many = of_questions(
        NoSettings(), [table(answered("train", 40, 50)), table(score_rows("train", [1.0], replicate=1))]
    )
    found = shown(store, CONFIG, many)
    assert len(found.records) == EACH
    assert f"{questions('train')[0].id}, in 2 of 2 trainings" in [record.title for record in found.records]


def own(folder: Path) -> Dataset:
    """Write records of the user."""
    folder.mkdir(parents=True)
    rows = [
        {"id": f"{split}-{at}", "context": f"The <secret> of {split} {at} is 7{at}.", "question": "What is it?"}
        | {"answers": [f"7{at}"], "split": split}
        for split in ("train", "validation")
        for at in range(3)
    ]
    (folder / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return catalog.pin(Dataset(f"records:{folder / 'asked.jsonl'}"))


def test_private_texts_are_hidden_by_default(golden: Golden, store: Store, tmp_path: Path) -> None:
    config = with_settings(CONFIG, data=own(tmp_path / "own"))
    ids = ["train-0", "train-1", "train-2"]
    asked = of_questions(NoSettings(), [table(answered("train", 2, 3, ids))])
    found = shown(store, config, asked, name="1")
    assert (found.shown, found.records) == (False, ())
    golden(found.note)
    assert str(tmp_path) not in found.note
    private = shown(store, config, asked, True, "2")
    assert [dict(record.fields)["context"] for record in private.records] == [
        "The <secret> of train 0 is 70.",
        "The <secret> of train 1 is 71.",
    ]


def test_missing_data_are_reported(golden: Golden, store: Store, tmp_path: Path) -> None:
    config = with_settings(CONFIG, data=own(tmp_path / "own"))
    asked = of_questions(NoSettings(), [table(answered("train", 1, 1, ["train-0"]))])
    (tmp_path / "own" / "asked.jsonl").unlink()
    catalog._records.clear()  # as in another process
    catalog._questions.clear()
    found = shown(store, config, asked, True)
    assert not found.shown
    golden(found.note)


def test_where_nothing_is_answered_there_is_no_gallery(store: Store) -> None:
    nothing = of_questions(NoSettings(), [table(answered("train", 0, 3))])
    assert examples(run(store, questions=nothing), False) is None
    assert examples(run(store, "relational-2"), False) is None
    assert examples(run(store, "relational-3", questions=QUESTIONS.empty_table()), False) is None
