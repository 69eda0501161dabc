"""Two runs lie side by side: what was asked of each, what each answers, and their numbers, row by row."""

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
from tests.support.shell import Shell

HERE = Execution(address="none", mlflow="off", report=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "engram-store"))


def journal(store: Store, *configs: toys.Config) -> Journal:
    cells = [Cell("toys", config, setting={"parts": config.parts} if configs[1:] else {}) for config in configs]
    return Journal(store.folder("runs", start(cells, store, HERE).run))


def compared(store: Store) -> Comparison:
    return compare(store, journal(store, toys.Config(parts=3)), journal(store, toys.Config(parts=4, label="four")))


def test_the_fields_that_differ_are_named_and_no_others(store: Store) -> None:
    found = compared(store)
    assert {Difference("parts", 3, 4), Difference("label", "", "four")} == set(found.fields)
    assert found.environment == ()
    assert found.audits == ("toys", "toys")


def test_rows_of_one_metric_and_setting_are_pairs_with_the_numbers_of_their_tables(store: Store) -> None:
    found = compared(store)
    journals = [Journal(store.folder("runs", run)) for run in found.runs]
    tables = [results.read(each, store, "summary").table.to_pylist() for each in journals]
    assert [("sum", "{}", tables[0][0], tables[1][0])] == [(p.metric, p.setting, p.a, p.b) for p in found.rows]
    assert (tables[0][0]["estimate"], tables[1][0]["estimate"]) == (3.0, 6.0)


def test_a_run_that_has_nothing_yet_is_compared_as_far_as_it_is_there(store: Store) -> None:
    whole, part = journal(store, toys.Config(parts=3)), journal(store, toys.Config(parts=2))
    for key in part.roots()["summary"]:
        next(Path(store.location).glob(f"results/*/{key}.arrow")).unlink()
    (pair,) = compare(store, whole, part).rows
    assert (pair.a and pair.a["estimate"], pair.b) == (3.0, None)


def test_a_sweep_is_refused_and_its_runs_are_named(store: Store) -> None:
    sweep = journal(store, toys.Config(parts=2), toys.Config(parts=3))
    one = Journal(store.folder("runs", sweep.about()["cells"][0]))
    with pytest.raises(SpecError, match=f"is a sweep; compare two of its runs .*{one.run}"):
        compare(store, one, sweep)


def test_the_command_shows_both_and_gives_them_as_json(store: Store, tmp_path: Path) -> None:
    found = compared(store)
    engram = Shell(tmp_path)
    said = engram("compare", *found.runs).stdout
    assert "a  " + found.runs[0] in said
    assert ["config", "parts", "3", "4"] in [line.split() for line in said.splitlines()]
    assert ["sum", "3", "3", "6", "4"] in [line.split() for line in said.splitlines()]
    shape = engram.json("compare", *found.runs)
    assert {"fields", "environment", "answers", "rows", "runs", "audits"} == shape.keys()
    assert json.loads(json.dumps(found.rows[0].a)) == shape["rows"][0]["a"]


def test_what_cannot_be_compared_is_one_line(store: Store, tmp_path: Path) -> None:
    run = journal(store, toys.Config(parts=2)).run
    engram = Shell(tmp_path)
    assert "unknown run 'nowhere'" in engram("compare", run, "nowhere", code=2).stderr
    assert "its name must end in .html" in engram("compare", run, run, "--out", "page.txt", code=2).stderr
