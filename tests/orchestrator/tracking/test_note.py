"""MLflow names runs by their settings and cells by their varied settings.

A run's note contains its question, its answer with numbers, and how to continue.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator import rounding
from orchestrator.inspection import pages
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.run_folder.journal import Journal, cell_description
from orchestrator.runs.lifecycle import start
from orchestrator.spec import audits
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import Store, open_store
from orchestrator.tracking import note
from tasks.contract import schemas
from tests.dashboards import made

HERE = Execution(address="none", mlflow="off", report=False)
QUESTION = "*How far does a sum get when its parts are lost?*"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (Spec("unique_feature", "quickstart", {"seed": "1"}), "letter A, quickstart, seed=1"),
        (Spec("unique_feature", "smoke", {"feature": "words:JANE DOE"}), "words '<4 and 3 letters>', smoke"),
        (Spec("forgetting", "quickstart"), "forgetting of digits-on-photos, quickstart"),
        (Spec("forgetting", "quickstart", {"query.secret": "ab" * 16}), "forgetting of digits-on-photos, quickstart"),
        (
            Spec("toys", "few", {"first": "1", "at": "2", "parts": "3", "label": f"given.csv@{'ab' * 32}"}),
            "toys, few, label=given.csv, first=1, at=2, 1 more",
        ),
        (Spec("density", "quickstart"), "vae of digits, quickstart"),
        (Spec("toys", "few"), "toys, few"),
    ],
)
def test_run_name_contains_settings_but_no_private_values(tmp_path: Path, spec: Spec, name: str) -> None:
    (cell,) = resolve_cells(spec)
    Journal(tmp_path / "some").create(cell_description(cell), None)
    name_in_mlflow = note.run_name(Disclosure().journal(tmp_path / "some"))
    assert name_in_mlflow.startswith(name)
    assert ("JANE" not in name_in_mlflow, "=<" not in name_in_mlflow) == (True, True)


def test_sweep_and_cells_are_named_by_varied_settings(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    spec = Spec("toys", "few", {"first": "1"}, sweep={"parts": ["3", "4"]})
    report = start(resolve_cells(spec), store, Execution(address="none", mlflow="off", report=False))
    sweep = Journal(store.folder("runs", report.run))
    assert note.run_name(sweep) == "toys, few, first=1, sweep of parts"
    assert list(note.cell_names(sweep, None).values()) == ["parts=3", "parts=4"]
    assert note.run_name(sweep.sibling(report.cells[0].run)) == "toys, few, first=1, parts=3"


def run_spec(store: Store, spec: Spec) -> Journal:
    return Journal(store.folder("runs", start(resolve_cells(spec), store, HERE).run))


def test_run_without_an_answer_shows_its_numbers(store: Store) -> None:
    journal = run_spec(store, Spec("toys", "few", {"parts": "3"}))
    assert note.run_note(journal, store, "finished").split("\n\n") == [
        QUESTION,
        "| metric | setting | estimate | 95 % interval | n | null | p |\n|---|---|---|---|---|---|---|\n"
        "| sum |  | 3 |  | 3 parts |  |  |",
        "All jobs are done.",
        f"To print the numbers, run `engram results {journal.run} summary` in the folder of the store.",
    ]


@pytest.mark.parametrize(
    ("state", "says", "goes_on"),
    [
        (
            "running",
            "The run is in progress.",
            "use `engram runs status RUN --watch` or the live page of `engram ui`.",
        ),
        ("failed", "Some jobs failed.", "`engram resume RUN` repeats the failed jobs."),
        ("interrupted", "The run was interrupted.", "`engram resume RUN` continues the run."),
        ("paused", "The run has paused.", "`engram resume RUN` continues the run."),
    ],
)
def test_every_state_says_how_to_continue(store: Store, state: str, says: str, goes_on: str) -> None:
    journal = run_spec(store, Spec("toys", "few", {"parts": "2"}))
    state_text, ways = note.run_note(journal, store, state).split("\n\n")[-2:]
    assert (says, True) == (state_text, ways.endswith(f" {goes_on.replace('RUN', journal.run)}"))


def test_decided_runs_and_sweeps_say_so(store: Store) -> None:
    spec = Spec("toys", "few", {"parts": "12", "first": "20", "level": "0.05"})
    state_text = note.run_note(run_spec(store, spec), store, "decided").split("\n\n")[-2]
    assert state_text.startswith(
        "Decided after 6 of at most 12 pairs of trainings, at an error rate of 0.05; the other"
    )
    sweep = run_spec(store, replace(spec, set={"parts": "12", "level": "0.05"}, sweep={"first": ["20", "150"]}))
    assert "The run was decided early" in note.run_note(sweep, store, "decided")


def test_note_links_the_page_once_it_exists(store: Store) -> None:
    journal = run_spec(store, Spec("toys", "few", {"parts": "2"}))
    assert "report.html" not in note.run_note(journal, store, "finished")
    (journal.folder / pages.PAGE).touch()
    assert "The full report is `report.html` under *Artifacts*. " in note.run_note(journal, store, "finished")


def test_sweep_note_has_a_line_per_cell(store: Store) -> None:
    journal = run_spec(store, Spec("toys", "few", sweep={"parts": ["3", "4"]}))
    three, four = journal.about()["cells"]
    (store.folder("runs", four) / "report.html").touch()
    assert note.run_note(journal, store, "finished").split("\n\n")[1:3] == [
        "| varied | effect | answer | run |\n|---|---|---|---|\n"
        f"| parts=3 | sum 3 |  | {three} |\n| parts=4 | sum 6 |  | {four} |",
        "The metric `effect` is sum. Its steps are the cells, in the order of the sweep.",
    ]
    (key,) = journal.sibling(four).roots()["summary"]
    next(Path(store.location).glob(f"results/*/{key}.arrow")).unlink()
    incomplete_note = note.run_note(journal, open_store(store.location), "interrupted")
    assert f"| parts=3 | sum 3 |  | {three} |\n| parts=4 |  |  | {four} |" in incomplete_note


def test_answer_is_shown_with_numbers_and_limits(store: Store) -> None:
    run = made.run(store, "some", made.tables(4))
    verdict = run.verdict
    assert verdict is not None
    question, effect, metric, sentence, table, limits, *_ = note.run_note(run.journal, store, "finished").split("\n\n")
    assert question == f"*{audits.find('unique_feature').question}*"
    assert effect == f"**{run.effect}**"
    assert metric == "The metric `effect` is M_w effect (images=probe) (unit: nats)."
    assert sentence == f"**{verdict.sentence}**"
    assert limits == verdict.limits_in_full
    rows = {(row["metric"], row["setting"]): row for row in run.summary}
    (metric, setting), lines = verdict.rows[0], table.splitlines()
    assert 2 + len(verdict.rows) == len(lines)
    row = rows[metric, setting]
    ends = rounding.format_interval(row["low"], row["high"])
    begins = f"| {metric} | images=probe | {rounding.format_row_value(row, 'estimate')} | {ends} | "
    assert lines[2].startswith(begins)


def test_special_characters_are_escaped_and_long_notes_cut(store: Store) -> None:
    empty = dict.fromkeys(schemas.SUMMARY.names)
    row = empty | {"metric": "a|b\nc", "setting": "no|JSON", "estimate": 0.123456, "low": 0.1, "p_value": 1e-9}
    run = made.run(store, "some", {"summary": [pa.Table.from_pylist([row], schemas.SUMMARY)]}, audit="gone")
    table, *_ = note.run_note(run.journal, store, "finished").split("\n\n")
    assert table.splitlines()[2] == "| a\\|b c | no\\|JSON | 0.1235 |  |  |  | < 1e-6 |"
    long = empty | {"metric": "m" * 1000}
    run = made.run(store, "long", {"summary": [pa.Table.from_pylist([long] * 12, schemas.SUMMARY)]}, audit="gone")
    text = note.run_note(run.journal, store, "finished")
    assert (len(text), text.endswith("m ...")) == (note.LONGEST_NOTE + 4, True)
    assert len(text) <= 8000
