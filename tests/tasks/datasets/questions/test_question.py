from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.datasets.catalog import load_questions, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.questions.question import RECORD_SCHEMA, Question, QuestionSet, records_of, redrawn


def test_redrawn_parts_share_no_context() -> None:
    original = load_questions(Dataset("facts"))
    redrawn_set = redrawn(original, 3)
    assert original.by_id == redrawn_set.by_id
    assert len(original.train) <= len(redrawn_set.train) <= len(original.train) + 4
    contexts = []
    for part in (redrawn_set.train, redrawn_set.validation):
        contexts.append({question.context_id for question in part})
    assert not contexts[0] & contexts[1]
    assert original.scorer == redrawn_set.scorer


def test_redrawing_depends_only_on_the_seed() -> None:
    original = load_questions(Dataset("facts"))
    assert redrawn(original, 3).train == redrawn(original, 3).train
    assert redrawn(original, 3).train != redrawn(original, 4).train
    moved = {question.id for question in redrawn(original, 3).train} - {question.id for question in original.train}
    assert (
        0.15 * len(original.by_id) < len(moved) < 0.25 * len(original.by_id)
    )  # a quarter of three quarters is expected


def test_too_few_contexts_are_refused() -> None:
    questions = []
    for n in range(3):
        questions.append(Question(str(n), "one", "Text.", "What?", (("1",),)))
    with pytest.raises(ValueError, match="there are 1 contexts"):
        redrawn(QuestionSet(questions[:2], questions[2:], "squad"), 0)


RECORDS: list[dict[str, Any]] = [
    {"id": "1", "context": "Ann has 4.", "question": "How many?", "answers": ["4", "four", "4"], "split": "train"},
    {"id": "2", "context": "Ann has 4.", "question": "Who?", "answers": ["Ann"], "split": "train", "more": 1},
    {"id": "3", "context": "Bo has 5.", "question": "?", "answers": ["5"], "split": "validation", "context_id": "b"},
]


def put(folder: Path, records: list[dict[str, Any]]) -> Dataset:
    path = folder / "asked.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return Dataset(f"records:{path}")


def changed(**changes: Any) -> list[dict[str, Any]]:
    return [RECORDS[0], {**RECORDS[1], **changes}, RECORDS[2]]


def test_records_of_both_splits_are_questions(tmp_path: Path) -> None:
    questions = load_questions(pin(put(tmp_path, RECORDS)))
    first = questions.by_id["1"]
    second = questions.by_id["2"]
    assert first.golds == (("4",), ("four",))
    assert first.context_id == second.context_id
    assert questions.validation[0].context_id == "b"
    assert questions.scorer == "squad"


def test_parquet_contains_the_same_questions(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(RECORDS, RECORD_SCHEMA), tmp_path / "asked.parquet")
    lines = put(tmp_path, RECORDS)
    columns = Dataset(f"records:{tmp_path / 'asked.parquet'}")
    assert load_questions(pin(lines)).by_id == load_questions(pin(columns)).by_id


def test_records_for_answering_have_no_answers(tmp_path: Path) -> None:
    records = records_of(load_questions(pin(put(tmp_path, RECORDS))).train)
    expected = []
    for record_in in RECORDS[:2]:
        expected.append({name: record_in[name] for name in ("id", "context", "question")})
    assert sorted(records.as_dicts(), key=lambda record: record["id"]) == expected


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (changed(split=None), "record '2' has no split; set split to train or validation"),
        (changed(split="test"), "record '2' has the split 'test'; set split to train or validation"),
        (RECORDS[:2], "asked.jsonl has no record of the split validation; add questions that the model is tr"),
        (RECORDS[2:], "asked.jsonl has no record of the split train; "),
        (
            changed(split="validation"),
            "record '2' of the split validation has a context that is also in the split train",
        ),
        (changed(answers=[]), r"record '2' has the answers \[\]; they must be a list of at least one text"),
        (changed(answers=["4", " "]), r"record '2' has the answers \['4', ' '\]; "),
        (changed(answers=[None]), r"record '2' has the answers \[None\]; "),
        (changed(answers="4"), r"line 2: answers is '4'; it must be list"),
        (changed(answers=None), "record 1 has no answers"),
        (changed(context=None), "record 1 has no context"),
        (changed(id="1"), "several records have the id '1'"),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, records: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        load_questions(pin(put(tmp_path, records)))
    assert len(str(caught.value).splitlines()) == 1


def test_equal_contexts_are_joined(tmp_path: Path) -> None:
    twice = [RECORDS[0] | {"context_id": "a"}, RECORDS[1] | {"context_id": "c"}, RECORDS[2]]
    questions = load_questions(pin(put(tmp_path, twice)))
    assert len({question.context_id for question in questions.train}) == 1
    shared = [RECORDS[0], RECORDS[1] | {"split": "validation", "context_id": "other"}]
    with pytest.raises(
        DatasetError, match="record '2' of the split validation has a context that is also in the split train"
    ):
        load_questions(pin(put(tmp_path, shared)))
