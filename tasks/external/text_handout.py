"""Write records or questions for a model's owner, who returns the model's answers as a table or as files.

README.txt            instructions for the owner, and the format of the table
NAME.jsonl            the records of a set, one object per line
records.csv           id, set, row: written last, so that a folder without it is known to be incomplete

README.txt
questions/NAME.json   the questions of a set in SQuAD or DROP format, without answers; records as .jsonl
questions.csv         id, set, row: also written last
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

RECORDS = "records.csv"
RECORD_SUFFIX = ".jsonl"
SCHEMA = pa.schema([(ID, pa.string()), ("set", pa.string()), ("row", pa.int64())])
RECORD_TEXT = """\
Records for your model
======================

Please evaluate your model on these records. The model stays with you: we only need a table.

Instructions
------------
1. Use the records in {files}: one JSON object per line, in UTF-8. Field "id" is the id of a record.
2. Evaluate your model on each record in the usual way, in evaluation mode.
3. Save the requested outputs, one row per record, and send us the table as {formats}.

Format of the table
-------------------
Column "id", with the id exactly as in these files, and {columns}. The rows may be in any
order, but every record needs a row: records.csv lists all {count} records.
{promise}"""


def write_records(
    folder: Path, sets: Iterable[tuple[str, Records]], commitment: str = "", draw: Draw | None = None, columns: str = ""
) -> pa.Table:
    """Write records, list and README to a folder. Returns the list (id, set, row) with ids that are unique across sets.

    If the owner receives it, `commitment` is the SHA-256 of the list that identifies each record. `columns` describes
    the requested columns. The bytes depend only on the records and these arguments. The folder may already contain some
    or all of these files. If it contains anything else, DatasetError is raised before any file is written.
    """
    named_sets = list(sets)
    check_names([name for name, _ in named_sets], "records", reserved_names=(README, RECORDS))
    empty = [name for name, records in named_sets if not len(records)]
    if empty:
        raise DatasetError(f"set {empty[0]!r} has no records")
    rows = [(id_, name, row) for name, records in named_sets for row, id_ in enumerate(records.ids)]
    sets_of: dict[str, str] = {}
    for id_, name, _ in rows:
        if id_ in sets_of:
            raise DatasetError(f"sets {sets_of[id_]!r} and {name!r} both have a record {id_!r}; ids must differ")
        sets_of[id_] = name
    files = [(f"{name}{RECORD_SUFFIX}", _record_lines(records)) for name, records in named_sets]
    file_names = ", ".join(name for name, _ in files)
    promised = promise("records", commitment, draw)
    text = RECORD_TEXT.format(
        files=file_names,
        count=len(rows),
        promise=f"\n{promised.rstrip()}\n" if promised else "",
        columns=columns or "the requested columns",
        formats="CSV or Parquet" if columns else "CSV, JSON Lines or Parquet",
    )
    files.append((README, text.encode()))
    files.append((RECORDS, write_csv(rows)))
    write_all(folder, files)
    return table_of_rows(SCHEMA, rows)


def _record_lines(records: Records) -> bytes:
    """Format records as JSON Lines, with fields in schema order."""
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records.as_dicts()).encode()


LISTED = "questions.csv"
FOLDER = "questions"
PREDICTIONS = "predictions"
SUFFIX: Mapping[Form, str] = {"squad": ".json", "drop": ".json", "records": ".jsonl"}
CONTENT: Mapping[Form, Callable[[ProbeQuestions], bytes]] = {
    "squad": lambda probes: write_squad(probes.questions, answered=False),
    "drop": lambda probes: write_drop(probes.questions, answered=False),
    "records": lambda probes: _record_lines(records_of(probes.questions)),
}
FORMAT: Mapping[Form, str] = {
    "squad": 'They are in the format of SQuAD v1.1, with an empty list "answers".',
    "drop": 'They are in the format of DROP, with an empty "answer".',
    "records": "They are JSON Lines: each line is an object with an id, a context and a question.",
}
ANSWER: Mapping[Form, str] = {
    "squad": "Each file contains an object that maps question ids to answer texts, as in SQuAD's evaluation:",
    "drop": "Each file contains an object that maps query_ids to answers, as in DROP's evaluation: a text, or a list\n"
    "of texts for several spans:",
    "records": "Each file contains an object that maps question ids to answer texts:",
}
QUESTION_TEXT = """\
Questions for your system
=========================

Please answer these questions with your question answering system. In some contexts, the relevant part was removed.
The system stays with you: we only need its answers.

Instructions
------------
1. Do not train the system on these files.
2. Answer the questions in every file of the folder "{folder}":

{files}

   {format}
3. Pass each question with its unchanged context and no other input: no other file, and no earlier questions. If the
   system samples its answers, use the most likely answer (greedy decoding, temperature 0).

Format of the answers
---------------------
A folder "{predictions}" with one JSON file per file of questions, of the same name:

{returned}

{answer}

    {{"{example}": "1966", ...}}

Every question needs an entry, in any order, with an empty text if the system has no answer. {listed} lists all
{count} questions.
{promise}"""


def write_questions(
    folder: Path, sets: Iterable[tuple[str, ProbeQuestions]], commitment: str = "", draw: Draw | None = None
) -> pa.Table:
    """Write questions (without gold answers), list and README to a folder. Returns the list (id, set, row).

    If the owner receives it, `commitment` is the SHA-256 of the list that identifies each question. The bytes depend
    only on the questions and the commitment. All sets have the same format. The folder may already contain some or all
    of these files. If it contains anything else, DatasetError is raised before any file is written.
    """
    named_sets = list(sets)
    check_names([name for name, _ in named_sets], "questions", reserved_names=())
    empty = [name for name, probe_questions in named_sets if not probe_questions.questions]
    if empty:
        raise DatasetError(f"set {empty[0]!r} has no questions")
    (form,) = {probe_questions.form for _, probe_questions in named_sets}
    rows = []
    for name, probe_questions in named_sets:
        for row, question in enumerate(probe_questions.questions):
            rows.append((question.id, name, row))
    files = {}
    for name, probe_questions in named_sets:
        files[f"{FOLDER}/{name}{SUFFIX[form]}"] = CONTENT[form](probe_questions)
    promised = promise("questions", commitment, draw)
    about = QUESTION_TEXT.format(
        folder=FOLDER,
        files=_indent_names(files),
        format=FORMAT[form],
        predictions=PREDICTIONS,
        returned=_indent_names(f"{PREDICTIONS}/{name}.json" for name, _ in named_sets),
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
