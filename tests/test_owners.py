"""Probes, returned answers and tampered answers, for every audit with a handout."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.planning.plan import plan_of
from orchestrator.spec.audits import find, names
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tests.support.owners import OWNERS, SECRET, Answers, Owner
from tests.support.shell import Here, refusals

BY_AUDIT = {owner.audit: owner for owner in OWNERS}
IMAGES = ("unique_feature", "membership", "forgetting")
WITH_SECRET = [owner.audit for owner in OWNERS if any(SECRET in setting for setting in owner.settings)]


@dataclass(frozen=True)
class Exchange:
    """The folder of one audit, with the answers to its probes and to the probes of another setting."""

    owner: Owner
    engram: Here
    exported: Mapping[str, Any]
    answers: Answers
    other_answers: Answers

    @property
    def path(self) -> Path:
        return self.engram.folder / self.owner.file

    def read(self, answers: Answers) -> list[pa.Table]:
        """The tables of all jobs of a run that read this file and no other job's result."""
        answers.write(self.path)
        settings = [*self.owner.settings, *self.owner.returned(str(self.path))]
        fields = dict(setting.split("=", 1) for setting in settings)
        (cell,) = pin_cells(resolve_cells(Spec(self.owner.audit, self.owner.preset, fields)), {})
        jobs = [job for job in plan_of(cell).jobs.values() if not job.inputs and str(self.path) in repr(job.config)]
        assert jobs
        return [job.function(job.config, ()) for job in jobs]

    def refuse(self, command: str = "run") -> str:
        """The one line with which a command refuses the file. No run may be left behind."""
        done = self.engram.run(command, *self.owner.arguments(*self.owner.returned(self.owner.file)))
        assert done.returncode in (1, 2), done
        assert "Traceback" not in done.stderr
        (line,) = refusals(done.stderr)
        assert self.owner.file in line
        assert not list(self.engram.folder.glob("engram-store/runs/*"))
        return line


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exchange]:
    """Exports the probes of an audit and lets its owner answer, once per audit."""
    exchange_by_audit: dict[str, Exchange] = {}

    def exchange(audit: str) -> Exchange:
        if audit not in exchange_by_audit:
            owner = BY_AUDIT[audit]
            engram = Here(tmp_path_factory.mktemp(audit))
            exported = engram.json("probes", *owner.arguments(), "--out", "probes")
            engram("probes", *owner.arguments(owner.other_setting), "--out", "other")
            answers = owner.respond(engram.folder / "probes")
            other_answers = owner.respond(engram.folder / "other")
            exchange_by_audit[audit] = Exchange(owner, engram, exported, answers, other_answers)
        return exchange_by_audit[audit]

    return exchange


def test_every_audit_with_handout_has_owner() -> None:
    audits = {name for name in names() if find(name).audit.handout is not None}
    assert audits - {"toys", "questions"} == set(BY_AUDIT)


@pytest.mark.parametrize("audit", WITH_SECRET)
def test_folder_promises_key_and_hides_it(audit: str, exchanges: Callable[[str], Exchange]) -> None:
    exchange = exchanges(audit)
    folder = exchange.engram.folder
    key = (folder / "probes-key.csv").read_bytes()
    assert exchange.exported["commitment"] == hashlib.sha256(key).hexdigest()
    texts = {}
    for path in (folder / "probes").rglob("*"):
        if path.suffix != ".png" and path.is_file():
            texts[path.name] = path.read_text()
    assert exchange.exported["commitment"] in texts["README.txt"]
    assert exchange.owner.file.rpartition(".")[2] in texts["README.txt"]
    assert not any(SECRET in text for text in texts.values())
    rows = list(csv.reader(key.decode().splitlines()))[1:]
    assert [row[0] for row in rows] == sorted(row[0] for row in exchange.answers.rows)
    assert len({tuple(row[1:]) for row in rows}) > 1
    assert {row[0] for row in exchange.other_answers.rows}.isdisjoint(row[0] for row in rows)


def add_column(answers: Answers) -> Answers:
    return Answers([*answers.columns, "extra"], [[*row, 0.5] for row in answers.rows])


def add_row(answers: Answers) -> Answers:
    return replace(answers, rows=[*answers.rows, ["extra", *answers.rows[0][1:]]])


def move_values(answers: Answers) -> Answers:
    """Give each row the values of the next one."""
    values = [row[1:] for row in answers.rows]
    next_values = [*values[1:], values[0]]
    return replace(
        answers, rows=[[row[0], *following] for row, following in zip(answers.rows, next_values, strict=True)]
    )


@pytest.mark.parametrize(
    ("audit", "additions"),
    [
        *((audit, [add_row]) for audit in IMAGES),
        *((audit, [add_row, add_column]) for audit in ("text", "deja_vu")),
        ("relational", []),
    ],
)
def test_answers_are_read_by_ids_in_any_order(
    audit: str, additions: Sequence[Callable[[Answers], Answers]], exchanges: Callable[[str], Exchange]
) -> None:
    exchange = exchanges(audit)
    reordered = replace(exchange.answers, rows=exchange.answers.rows[::-1])
    for add in additions:
        reordered = add(reordered)
    tables = exchange.read(exchange.answers)
    assert exchange.read(reordered) == tables
    assert exchange.read(move_values(exchange.answers)) != tables


def replace_value(value: float) -> Callable[[Answers], Answers]:
    """Replace a value in the fourth row, or the first number of its embedding."""

    def tamper(answers: Answers) -> Answers:
        rows = [list(row) for row in answers.rows]
        first = rows[3][1]
        rows[3][1] = [value, *first[1:]] if isinstance(first, list) else value
        return replace(answers, rows=rows)

    return tamper


def rename_columns(answers: Answers) -> Answers:
    return replace(answers, columns=[answers.columns[0], *(f"class {name}" for name in answers.columns[1:])])


def rename_ids(answers: Answers) -> Answers:
    return replace(answers, columns=["name", *answers.columns[1:]])


def print_percent(answers: Answers) -> Answers:
    return replace(answers, rows=[[row[0], *(100 * value for value in row[1:])] for row in answers.rows])


def keep_labels(answers: Answers) -> Answers:
    return Answers(["image", "class"], [[row[0], row.index(max(row[1:])) - 1] for row in answers.rows])


@dataclass(frozen=True)
class Fault:
    """A manipulation of answers, and its message by audit. `images` applies to all audits of classifiers.

    `{first}` and `{fourth}` stand for the ids of these rows.
    """

    tamper: Callable[[Answers], Answers]
    images: str = ""
    text: str = ""
    deja_vu: str = ""
    relational: str = ""

    def message(self, audit: str) -> str:
        message: str = self.images if audit in IMAGES else getattr(self, audit)
        return message


NO_ROW = r"has no row for '{first}'; 1 of \d+ are missing"
TWO_ROWS = r"has more than one row for '{first}'; 1 rows"
FAULTS = {
    "row missing": Fault(
        lambda answers: replace(answers, rows=answers.rows[1:]),
        NO_ROW,
        NO_ROW,
        NO_ROW,
        r"has no answer to 1 of \d+ questions, the first of them '{first}'",
    ),
    "row twice": Fault(
        lambda answers: replace(answers, rows=[*answers.rows, answers.rows[0]]),
        TWO_ROWS,
        TWO_ROWS,
        TWO_ROWS,
        r"has more than one value for '{first}'; 1 names are repeated",
    ),
    "NaN": Fault(
        replace_value(float("nan")),
        r"the numbers of image '{fourth}' are not all finite: nan, .* this applies to 1 of",
        r"expected log_p in nats, finite and at most 0, got nan for '{fourth}'. Correct 1 of",
        r"the embedding of '{fourth}' has a number that is missing or not finite, as have 1 of",
        r"{fourth} is NaN; it must be text, or a list of texts",
    ),
    "infinite": Fault(
        replace_value(float("-inf")),
        r"the numbers of image '{fourth}' are not all finite: -inf, .* this applies to 1 of",
        r"expected log_p in nats, finite and at most 0, got -inf for '{fourth}'. Correct 1 of",
        r"the embedding of '{fourth}' has a number that is missing or not finite, as have 1 of",
        r"{fourth} is -Infinity; it must be text, or a list of texts",
    ),
    "another kind of number": Fault(
        replace_value(3.0),
        r"the numbers of image '{fourth}' are not all probabilities, in \[0, 1\]",
        r"expected log_p in nats, finite and at most 0, got 3 for '{fourth}'. Correct 1 of",
        relational=r"{fourth} is 3\.0; it must be text, or a list of texts",
    ),
    "in percent": Fault(print_percent, r"are not all probabilities, in \[0, 1\]"),
    "labels alone": Fault(keep_labels, r"unknown column 'class'|has no confidences"),
    "column added": Fault(add_column, r"has the unknown column 'extra' \(1 in total\); expected image and p0, p1"),
    "answer added": Fault(
        add_row, relational=r"answers 1 questions that are not of its set, the first of them 'extra'"
    ),
    "other columns": Fault(
        rename_columns,
        r"unknown column 'class p0'|has no confidences",
        r"expected a column log_p, got id, class log_p",
        r"has no column embedding; found class embedding",
    ),
    "no ids": Fault(
        rename_ids,
        r"has no column image; found name, p0",
        r"has no column id; found name, log_p",
        r"has no column image; found name, embedding",
    ),
}
TAMPERED = [(name, audit) for name, fault in FAULTS.items() for audit in BY_AUDIT if fault.message(audit)]


@pytest.mark.parametrize(("name", "audit"), TAMPERED)
def test_tampered_answers_are_refused_before_run(name: str, audit: str, exchanges: Callable[[str], Exchange]) -> None:
    exchange = exchanges(audit)
    fault = FAULTS[name]
    fault.tamper(exchange.answers).write(exchange.path)
    ids = [row[0] for row in exchange.answers.rows]
    assert re.search(fault.message(audit).format(first=ids[0], fourth=ids[3]), exchange.refuse())


CUT = {
    ".csv": r"has no row for|has a row that has \d+ values; it must have",
    ".json": "is not JSON",
    ".parquet": "cannot be read",
}


@pytest.mark.parametrize("audit", BY_AUDIT)
def test_truncated_files_are_refused_before_run(audit: str, exchanges: Callable[[str], Exchange]) -> None:
    exchange = exchanges(audit)
    exchange.answers.write(exchange.path)
    content = exchange.path.read_bytes()
    for length, message in (
        (len(content) // 2, CUT[exchange.path.suffix]),
        (0, "is empty; the first line must name|is not JSON|cannot be read"),
    ):
        exchange.path.write_bytes(content[:length])
        assert re.search(message, exchange.refuse())


@pytest.mark.parametrize("audit", BY_AUDIT)
def test_answers_to_another_folder_name_both_sets(audit: str, exchanges: Callable[[str], Exchange]) -> None:
    exchange = exchanges(audit)
    exchange.other_answers.write(exchange.path)
    line = exchange.refuse()
    assert exchange.refuse("plan") == line
    sets = re.search(r"answers (\w+-\w{8}), but these settings and this secret generate (\w+-\w{8});", line)
    assert sets
    ids = [row[0] for row in exchange.answers.rows]
    other_ids = [row[0] for row in exchange.other_answers.rows]
    assert [other_ids[0].startswith(sets[1]), ids[0].startswith(sets[2])] == [True, True]
    assert sets[1] != sets[2]
