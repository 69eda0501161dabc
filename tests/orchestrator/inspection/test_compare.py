"""Comparing two runs: their settings, answers and numbers, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toys

from orchestrator.errors import SpecError
from orchestrator.inspection import results
from orchestrator.inspection.compare import Comparison, Difference, compare
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, open_store
from tests.dashboards import made
from tests.support.shell import Shell

HERE = Execution(address="none", mlflow="off", report=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "engram-store"))


def journal(store: Store, *configs: toys.Config) -> Journal:
    cells = []
    for config in configs:
        cells.append(Cell("toys", config, setting={"parts": config.parts} if configs[1:] else {}))
    return Journal(store.folder("runs", start(cells, store, HERE).run))


def compared(store: Store) -> Comparison:
    return compare(store, journal(store, toys.Config(parts=3)), journal(store, toys.Config(parts=4, label="four")))


def test_only_differing_fields_are_listed(store: Store) -> None:
    comparison = compared(store)
    assert set(comparison.fields) == {Difference("parts", 3, 4), Difference("label", "", "four")}
    assert comparison.environment == ()
    assert comparison.audits == ("toys", "toys")


def test_rows_are_paired_by_metric_and_setting(store: Store) -> None:
    comparison = compared(store)
    journals = [Journal(store.folder("runs", run)) for run in comparison.runs]
    tables = []
    for run_journal in journals:
        tables.append(results.read(run_journal, store, "summary").table.to_pylist())
    assert [(p.metric, p.setting, p.a, p.b) for p in comparison.rows] == [("sum", "{}", tables[0][0], tables[1][0])]
    assert tables[0][0]["estimate"] == 3.0
    assert tables[1][0]["estimate"] == 6.0


def test_unfinished_run_is_compared_by_available_rows(store: Store) -> None:
    finished = journal(store, toys.Config(parts=3))
    part = journal(store, toys.Config(parts=2))
    for key in part.roots()["summary"]:
        next(Path(store.location).glob(f"results/*/{key}.arrow")).unlink()
    (pair,) = compare(store, finished, part).rows
    assert (pair.a and pair.a["estimate"]) == 3.0
    assert pair.b is None


def test_sweep_is_refused_and_its_runs_named(store: Store) -> None:
    sweep = journal(store, toys.Config(parts=2), toys.Config(parts=3))
    one = Journal(store.folder("runs", sweep.about()["cells"][0]))
    with pytest.raises(SpecError, match=f"is a sweep; compare two of its runs .*{one.run}"):
        compare(store, one, sweep)


def test_runs_of_different_audits_share_nothing(store: Store) -> None:
    sums = journal(store, toys.Config(parts=2))
    pairs = made.run(store, "unique_feature-1", made.tables(3)).journal
    assert compare(store, sums, pairs).shares_nothing


def test_command_prints_text_or_json(store: Store, tmp_path: Path) -> None:
    comparison = compared(store)
    engram = Shell(tmp_path)
    printed = engram("compare", *comparison.runs).stdout
    assert "a  " + comparison.runs[0] in printed
    assert ["config", "parts", "3", "4"] in [line.split() for line in printed.splitlines()]
    assert ["sum", "3", "3", "6", "4"] in [line.split() for line in printed.splitlines()]
    shape = engram.json("compare", *comparison.runs)
    assert shape.keys() == {"fields", "environment", "answers", "effects", "rows", "runs", "audits"}
    assert json.loads(json.dumps(comparison.rows[0].a)) == shape["rows"][0]["a"]


def test_runs_of_different_questions_are_one_line(store: Store, tmp_path: Path) -> None:
    sums = journal(store, toys.Config(parts=2)).run
    engram = Shell(tmp_path)
    asked = engram.json("run", "questions", "--preset", "smoke", "--address", "none")["run"]
    printed = engram("compare", sums, asked).stdout
    assert printed == f"nothing to compare: {sums} (toys) and {asked} (questions) answer different questions\n"
    assert engram.json("compare", sums, asked)["rows"]


def test_invalid_comparison_is_refused_in_one_line(store: Store, tmp_path: Path) -> None:
    run = journal(store, toys.Config(parts=2)).run
    engram = Shell(tmp_path)
    assert "unknown run 'nowhere'" in engram("compare", run, "nowhere", code=2).stderr
    assert "its name must end in .html" in engram("compare", run, run, "--out", "page.txt", code=2).stderr
