"""Questions whose hidden answers are given all the same, with their contexts, as in table 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dashboards.gallery import Gallery, Record, error_reason, format_field
from dashboards.run import Run
from orchestrator.errors import StoreError
from orchestrator.store import stored_keys
from tasks.audits.relational.config import Answers, Relational
from tasks.datasets.catalog import is_embedded, load_questions
from tasks.datasets.questions.question import Answer, Question
from tasks.question_answering.question_sets import ANSWERS

EACH = 12  # questions of each part
TITLE = "Hidden answers"
CAPTION = (
    f"Questions that are answered rightly though the context no longer says it: up to {EACH} of the training part, of "
    f"which some may be remembered, and up to {EACH} held-out ones, which cannot be."
)
PARTS = {"train": "Training questions", "validation": "Held-out questions"}


def examples(run: Run, show_images: bool) -> Gallery | None:
    """The questions of both parts; of private data a note with their number."""
    table = run.table("questions")
    if "corrupted_exact_match" not in table.column_names:
        return None
    given = table.filter(pc.field("corrupted_exact_match") > 0)
    config = run.private_config
    question = config.question if isinstance(config, Relational) else None
    if not isinstance(question, Answers):
        return Gallery(
            CAPTION, False, "They cannot be shown: the audit has changed since the run was made.", title=TITLE
        )
    if not (show_images or is_embedded(question.data.name)):
        count = given.filter(pc.field("split") == "train").num_rows
        ids = ", ".join(given.filter(pc.field("split") == "train")["id"].slice(0, EACH).to_pylist())
        yours = (
            f"Texts of {question.data.named().name} are yours and are not shown unless asked for with --show-texts. "
            f"{count:,} training questions are answered rightly on a corrupted context{': ' + ids if ids else ''}."
        )
        return Gallery(CAPTION, False, yours, title=TITLE)
    try:
        shown = tuple(records(run, question, given))
    except (ValueError, OSError, KeyError, StoreError) as error:  # DatasetError among them
        return Gallery(CAPTION, False, f"They cannot be shown{error_reason(run, error)}.", title=TITLE)
    return Gallery(CAPTION, bool(shown), records=shown, title=TITLE) if shown else None


def records(run: Run, asked: Answers, given: pa.Table) -> Iterator[Record]:
    """The first questions of each part, as table 1 has them."""
    questions = load_questions(asked.data)
    answers = _last_answers(run)
    for split, heading in PARTS.items():
        for row in given.filter(pc.field("split") == split).slice(0, EACH).to_pylist():
            question = questions.by_id[row["id"]]
            fields = (
                ("context", question.context),
                ("corrupted", asked.corruption.corrupt_context(question)),
                ("question", question.question),
                ("right answer", _join_answer(question.golds[0])),
                ("answer, corrupted", _join_answer(answers.get((row["id"], True), ()))),
                ("answer, whole", _join_answer(answers.get((row["id"], False), ()))),
            )
            yield Record(
                _record_title(question, row), tuple((name, format_field(text)) for name, text in fields), heading
            )


def _record_title(question: Question, row: Mapping[str, Any]) -> str:
    """The question's id, and in how many trainings its hidden answer is given."""
    rightly, replicates = round(row["corrupted_exact_match"] * row["replicates"]), row["replicates"]
    return question.id if replicates == 1 else f"{question.id}, in {rightly} of {replicates} trainings"


def _join_answer(answer: Answer) -> str:
    return ", ".join(answer) or "(none)"


def _last_answers(run: Run) -> dict[tuple[str, bool], Answer]:
    """The answers of the last model at its last epoch, by the question's id and whether its context is corrupted."""
    for key in _answer_keys(run):
        table = run.store.read(key)
        if not table.schema.equals(ANSWERS) or not table.num_rows:
            continue
        last = pc.max(table["epoch"]).as_py()
        rows = table if last is None else table.filter(pc.field("epoch") == last)
        return {(row["id"], row["corrupted"]): tuple(row["answer"]) for row in rows.to_pylist()}
    return {}


def _answer_keys(run: Run) -> Iterator[str]:
    """The keys of stored answers: of the tables from which the questions are scored, the last epoch's first."""
    stored = stored_keys(run.store)
    for scores in reversed(run.journal.roots().get("scores", ())):
        if scores in stored:
            yield from (key for key in run.store.record(scores, check=False).get("inputs", ()) if key in stored)
