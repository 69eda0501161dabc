"""Questions whose hidden answers are given correctly, and the contexts of these questions, as in table 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dashboards.gallery import Gallery, Record, describe_withheld, error_reason, format_field
from dashboards.run import Run
from orchestrator.errors import StoreError
from orchestrator.store import stored_keys
from tasks.audits.relational.config import Answers, Relational
from tasks.datasets.catalog import is_embedded, load_questions
from tasks.datasets.questions.question import Answer, Question
from tasks.question_answering.question_sets import ANSWERS

EACH = 12  # questions per part
TITLE = "Hidden answers"
CAPTION = (
    f"Questions answered correctly although the answer was removed from the context: up to {EACH} training questions, "
    f"some of which may be memorised, and up to {EACH} held-out questions, which cannot be."
)
PARTS = {"train": "Training questions", "validation": "Held-out questions"}


def examples(run: Run, show_images: bool) -> Gallery | None:
    """Show the questions of both parts. For private data, show only how many there are."""
    table = run.table("questions")
    if "corrupted_exact_match" not in table.column_names:
        return None
    correct_answers = table.filter(pc.field("corrupted_exact_match") > 0)
    config = run.private_config
    if isinstance(config, Relational):
        question = config.question
    else:
        question = None
    if not isinstance(question, Answers):
        return Gallery(CAPTION, False, "They cannot be shown: the audit has changed since the run.", title=TITLE)
    if not (show_images or is_embedded(question.data.name)):
        count = correct_answers.filter(pc.field("split") == "train").num_rows
        ids = ", ".join(correct_answers.filter(pc.field("split") == "train")["id"].slice(0, EACH).to_pylist())
        withheld = describe_withheld(f"Texts of {question.data.named().name}", option="--show-texts")
        yours = (
            f"{withheld} {count:,} training questions are answered correctly on a corrupted "
            f"context{': ' + ids if ids else ''}."
        )
        return Gallery(CAPTION, False, yours, title=TITLE)
    try:
        example_records = tuple(records(run, question, correct_answers))
    except (ValueError, OSError, KeyError, StoreError) as error:  # includes DatasetError
        return Gallery(CAPTION, False, f"They cannot be shown{error_reason(run, error)}.", title=TITLE)
    if example_records:
        return Gallery(CAPTION, bool(example_records), records=example_records, title=TITLE)
    return None


def records(run: Run, question_config: Answers, correct_answers: pa.Table) -> Iterator[Record]:
    """Yield the first questions of each part, as in table 1."""
    questions = load_questions(question_config.data)
    answers = _last_answers(run)
    for split, heading in PARTS.items():
        for row in correct_answers.filter(pc.field("split") == split).slice(0, EACH).to_pylist():
            question = questions.by_id[row["id"]]
            fields = (
                ("context", question.context),
                ("corrupted", question_config.corruption.corrupt_context(question)),
                ("question", question.question),
                ("right answer", _join_answer(question.golds[0])),
                ("answer, corrupted", _join_answer(answers.get((row["id"], True), ()))),
                ("answer, whole", _join_answer(answers.get((row["id"], False), ()))),
            )
            yield Record(
                _record_title(question, row), tuple((name, format_field(text)) for name, text in fields), heading
            )


def _record_title(question: Question, row: Mapping[str, Any]) -> str:
    """Return the question's id, and how many trainings give the hidden answer."""
    rightly = round(row["corrupted_exact_match"] * row["replicates"])
    replicates = row["replicates"]
    if replicates == 1:
        return question.id
    return f"{question.id}, in {rightly} of {replicates} trainings"


def _join_answer(answer: Answer) -> str:
    return ", ".join(answer) or "(none)"


def _last_answers(run: Run) -> dict[tuple[str, bool], Answer]:
    """Return the last model's answers after its last epoch, by question id and kind of context."""
    for key in _answer_keys(run):
        table = run.store.read(key)
        if not table.schema.equals(ANSWERS) or not table.num_rows:
            continue
        last = pc.max(table["epoch"]).as_py()
        if last is None:
            rows = table
        else:
            rows = table.filter(pc.field("epoch") == last)
        answers = {}
        for row in rows.to_pylist():
            answers[(row["id"], row["corrupted"])] = tuple(row["answer"])
        return answers
    return {}


def _answer_keys(run: Run) -> Iterator[str]:
    """Yield the keys of the stored answers behind the scores, last epoch first."""
    existing_keys = stored_keys(run.store)
    for scores in reversed(run.journal.roots().get("scores", ())):
        if scores in existing_keys:
            yield from (key for key in run.store.record(scores, check=False).get("inputs", ()) if key in existing_keys)
