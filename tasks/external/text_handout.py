"""Records or questions for the owner of a model, who gives them to it and sends back a table or files of its answers.

README.txt            what the owner does, and what comes back
NAME.jsonl            a set's records, an object in each line
records.csv           id, set, row: written last, so that a folder without it is known to be half written

README.txt
questions/NAME.json   a set's questions in SQuAD's or DROP's own format, without their answers; records as .jsonl
questions.csv         id, set, row: written last, too
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from tasks.contract.schemas import table_of_rows
from tasks.datasets.dataset import DatasetError
from tasks.datasets.questions.question import records_of
from tasks.datasets.questions.question_files import write_drop, write_squad
from tasks.datasets.records import ID, Records
from tasks.external.bound_draw import Draw
from tasks.external.handout import README, check_names, promise, write_all
from tasks.question_answering.question_sets import Form, ProbeQuestions

RECORDS, RECORD_SUFFIX = "records.csv", ".jsonl"
SCHEMA = pa.schema([(ID, pa.string()), ("set", pa.string()), ("row", pa.int64())])
RECORD_TEXT = """\
Records for your model
======================

We would like to know what your model says of these records. The model stays with you: all we need is a table.

What to do
----------
1. Take the records of {files}: a JSON object in each line, in UTF-8. Field "id" names each one.
2. Give every one of them to your model as you give it any other, with the model in evaluation mode.
3. Write down what we have asked you for, one row per record, and send us the table, as {formats}.

What to send back
-----------------
Column "id", with the id exactly as it stands here, and beside it {columns}. The rows may
be in any order, but there has to be one for every record: records.csv lists all {count} of them.
{promise}"""


def write_records(
    folder: Path, sets: Iterable[tuple[str, Records]], commitment: str = "", draw: Draw | None = None, columns: str = ""
) -> pa.Table:
    """Write the records, list and README to a folder; return the list (id, set, row), whose ids differ across all sets.

    `commitment` is the SHA-256 of the list that says what each record is, where the owner is told it, and `columns`
    says which the owner is to return. The bytes depend on the records and on these alone. A folder may be there if what
    is in it is the same, whole or in part; DatasetError, in one line and before anything is written, otherwise.
    """
    given = list(sets)
    check_names([name for name, _ in given], "records", taken=(README, RECORDS))
    empty = [name for name, records in given if not len(records)]
    if empty:
        raise DatasetError(f"set {empty[0]!r} has no records")
    rows = [(id_, name, row) for name, records in given for row, id_ in enumerate(records.ids)]
    sets_of: dict[str, str] = {}
    for id_, name, _ in rows:
        if id_ in sets_of:
            raise DatasetError(f"sets {sets_of[id_]!r} and {name!r} have a record {id_!r} each; ids must differ")
        sets_of[id_] = name
    held = [(f"{name}{RECORD_SUFFIX}", _record_lines(records)) for name, records in given]
    files = ", ".join(name for name, _ in held)
    promised = promise("records", commitment, draw)
    text = RECORD_TEXT.format(
        files=files,
        count=len(rows),
        promise=f"\n{promised.rstrip()}\n" if promised else "",
        columns=columns or "the columns that we have asked you for",
        formats="CSV or Parquet" if columns else "CSV, JSON Lines or Parquet",
    )
    held.append((README, text.encode()))
    held.append((RECORDS, write_csv(rows)))
    write_all(folder, held)
    return table_of_rows(SCHEMA, rows)


def _record_lines(records: Records) -> bytes:
    """JSON Lines of records, the fields in the order of the schema."""
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records.as_dicts()).encode()


LISTED, FOLDER, PREDICTIONS = "questions.csv", "questions", "predictions"
SUFFIX: Mapping[Form, str] = {"squad": ".json", "drop": ".json", "records": ".jsonl"}
CONTENT: Mapping[Form, Callable[[ProbeQuestions], bytes]] = {
    "squad": lambda asked: write_squad(asked.questions, answered=False),
    "drop": lambda asked: write_drop(asked.questions, answered=False),
    "records": lambda asked: _record_lines(records_of(asked.questions)),
}
FORMAT: Mapping[Form, str] = {
    "squad": 'They are in SQuAD v1.1\'s format, with no answer in "answers": we may not tell you any.',
    "drop": 'They are in DROP\'s format, with a blank "answer": we may not tell you any.',
    "records": "They are JSON Lines: in each line an object with an id, a context and a question.",
}
ANSWER: Mapping[Form, str] = {
    "squad": "In each is an object with the text of the answer under each question's id, as in SQuAD's evaluation:",
    "drop": "In each is an object with the answer under each question's query_id, as in DROP's evaluation: a text, or\n"
    "a list of texts for several spans:",
    "records": "In each is an object with the text of the answer under each question's id:",
}
QUESTION_TEXT = """\
Questions for your system
=========================

We would like to know what your question answering system answers, when its contexts are whole and when what matters
has been taken out of them. The system stays with you: all we need is its answers.

What to do
----------
1. Take the system as it is: it must not learn from these files.
2. Let it answer the questions of every file of the folder "{folder}":

{files}

   {format}
3. Give it each question with the context beside it as it stands, and nothing else: no other file, and no memory of what
   it was asked before. Where it draws at random, let it give the likeliest answer (greedy decoding, temperature 0).

What to send back
-----------------
A folder "{predictions}" with one JSON file for each, of the same name:

{returned}

{answer}

    {{"{example}": "1966", ...}}

There has to be an entry for every question, in whatever order; an empty text where the system has no answer.
{listed} lists all {count} of them.
{promise}"""


def write_questions(
    folder: Path, sets: Iterable[tuple[str, ProbeQuestions]], commitment: str = "", draw: Draw | None = None
) -> pa.Table:
    """Write the questions, list and README to a folder; return the list (id, set, row). No gold answer is in any file.

    `commitment` is the SHA-256 of the list that says what each question is, where the owner is told it. The bytes
    depend on the questions and on it alone. All sets have one format. A folder may be there if what is in it is the
    same, whole or in part; DatasetError, in one line and before anything is written, otherwise.
    """
    given = list(sets)
    check_names([name for name, _ in given], "questions", taken=())
    empty = [name for name, asked in given if not asked.questions]
    if empty:
        raise DatasetError(f"set {empty[0]!r} has no questions")
    (form,) = {asked.form for _, asked in given}
    rows = [(each.id, name, row) for name, asked in given for row, each in enumerate(asked.questions)]
    files = {f"{FOLDER}/{name}{SUFFIX[form]}": CONTENT[form](asked) for name, asked in given}
    promised = promise("questions", commitment, draw)
    about = QUESTION_TEXT.format(
        folder=FOLDER,
        files=_indent_names(files),
        format=FORMAT[form],
        predictions=PREDICTIONS,
        returned=_indent_names(f"{PREDICTIONS}/{name}.json" for name, _ in given),
        answer=ANSWER[form],
        example=rows[0][0],
        listed=LISTED,
        count=len(rows),
        promise=f"\n{promised.rstrip()}\n" if promised else "",
    )
    write_all(folder, [*files.items(), (README, about.encode()), (LISTED, write_csv(rows))])
    return table_of_rows(SCHEMA, rows)


def _indent_names(names: Iterable[str]) -> str:
    return "\n".join(f"    {name}" for name in names)


def write_csv(rows: list[tuple[str, str, int]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([SCHEMA.names, *rows])
    return out.getvalue().encode()
