"""Records for a model's owner, who evaluates the model on them and sends back a table of its answers.

README.txt          what the owner does, and what comes back
NAME.jsonl          a set's records, an object in each line
records.csv         id, set, row: written last, so that a folder without it is known to be half written
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.datasets.records import ID, Records
from tasks.external.handout import README, check_names, promise, put_all

RECORDS, SUFFIX = "records.csv", ".jsonl"
SCHEMA = pa.schema([(ID, pa.string()), ("set", pa.string()), ("row", pa.int64())])
TEXT = """\
Records for your model
======================

We would like to know what your model says of these records. The model stays with you: all we need is a table.

What to do
----------
1. Take the records of {files}: a JSON object in each line, in UTF-8. Field "id" names each one.
2. Give every one of them to your model as you give it any other, with the model in evaluation mode.
3. Write down what we have asked you for, one row per record, and send us the table, as CSV, JSON Lines or Parquet.

What to send back
-----------------
Column "id", with the id exactly as it stands here, and beside it the columns that we have asked you for. The rows may
be in any order, but there has to be one for every record: records.csv lists all {count} of them.
{promise}"""


def write(folder: Path, sets: Iterable[tuple[str, Records]], commitment: str = "") -> pa.Table:
    """Write the records, list and README to a folder; return the list (id, set, row), whose ids differ across all sets.

    `commitment` is the SHA-256 of the list that says what each record is, where the owner is told it. The bytes depend
    on the records and on it alone. A folder may be there if what is in it is the same, whole or in part; DatasetError,
    in one line and before anything is written, otherwise.
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
    held = [(f"{name}{SUFFIX}", lines(records)) for name, records in given]
    files = ", ".join(name for name, _ in held)
    promised = promise("records", commitment)
    text = TEXT.format(files=files, count=len(rows), promise=f"\n{promised.rstrip()}\n" if promised else "")
    held.append((README, text.encode()))
    held.append((RECORDS, write_csv(rows)))
    put_all(folder, held)
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def lines(records: Records) -> bytes:
    """JSON Lines of records, the fields in the order of the schema."""
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records.as_dicts()).encode()


def write_csv(rows: list[tuple[str, str, int]]) -> bytes:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerows([SCHEMA.names, *rows])
    return out.getvalue().encode()
