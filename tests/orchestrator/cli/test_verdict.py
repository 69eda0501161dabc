"""What the commands tell of a search: one line in the list, its trials as a table, its answer, and how it goes on.

Two runs side by side, for a person and for a program.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from orchestrator.cli import verdict
from orchestrator.inspection.compare import Comparison, Difference, Pair
from orchestrator.quantities import jsonable
from tasks.contract.verdict import Verdict
from tests.orchestrator.inspection.test_search_results import journal, rewritten, rows
from tests.support.searches import Made
from tests.support.shell import Here

SENTENCE = "rate=0.006, wide=false: memory falls from "
A = {"metric": "M", "setting": "{}", "estimate": 0.25, "low": 0.1, "high": 0.4, "n": 3, "null": 0.0}
B = {"metric": "M", "setting": "{}", "estimate": 0.5, "low": None, "high": None, "n": 1, "null": None}
ANSWER = Verdict("yes", "It is remembered.", "Of this network.", (("M", "{}"),))


def engram(made: Made) -> Here:
    return Here(made.store.parent)


def test_the_list_of_runs_has_a_search_in_one_line_and_says_how_its_trials_are_seen(searched: Made) -> None:
    said = engram(searched)("runs")
    (_, line) = said.stdout.splitlines()
    assert [searched.name, "recommended", "finished", "search", "over", "rate,", "wide"] == line.split()[:7]
    assert "not listed: 6 trials of searches; engram runs --all lists all runs" in said.stderr
    listed = engram(searched)("runs", "--all")
    assert len(listed.stdout.splitlines()) == 8
    told = engram(searched).json("runs")["runs"]
    assert len(told) == 7
    (search,) = (run for run in told if "trials" in run)
    assert searched.told | {"answer": "recommended"} == {name: search[name] for name in search if name != "created"}


def test_a_run_says_of_which_search_it_is_a_trial(searched: Made, tmp_path: Path) -> None:
    made = searched.copied(tmp_path)
    table = rows(made)
    (again,) = (row for row in table if row["part"] == "fresh" and row["trial"])
    trial = next(row for row in table if row["part"] == "search" and row["trial"] == again["trial"])
    for row, named in (
        (table[0], "the start and trial 2"),
        (trial, f"trial {trial['trial']}"),
        (again, ", fresh seeds"),
    ):
        assert (
            f"{named} of {made.name}; for the search: engram status {made.name}"
            in engram(made)("status", row["run"]).stdout
        )
    told = engram(made).json("status", again["run"])
    assert [{"search": made.name, "trials": [{"trial": again["trial"], "part": "fresh"}]}] == told["trial_of"]
    assert "trial_of" not in engram(made).json("status", made.name)
    # One that was cut off is not in the table; its log tells whose trial it is, and so do the commands without a name.
    rewritten(made, table[:3], cells=[table[0]["run"]], settings=[{}])
    os.utime(made.store / "runs" / again["run"] / "events.jsonl")
    said = engram(made)("status", again["run"]).stdout
    assert f"a trial that has not ended of {made.name}" in said
    assert engram(made)("status").stdout.startswith(made.name)
    assert again["run"] not in engram(made)("runs").stdout


def test_a_run_that_was_there_before_its_search_stays_in_the_list(searched: Made, tmp_path: Path) -> None:
    made = searched.copied(tmp_path)
    first = rows(made)[0]["run"]
    log = made.store / "runs" / first / "events.jsonl"
    event = {"time": "2020-01-01T00:00:00.000+00:00", "event": "started", "planned": 1, "stored": 0}
    log.write_text(f"{json.dumps(event)}\n{log.read_text()}")
    assert first in engram(made)("runs").stdout


def test_its_status_tells_how_many_trials_are_made_and_what_is_recommended(searched: Made, tmp_path: Path) -> None:
    said = engram(searched)("status", searched.name).stdout
    assert said.startswith(f"{searched.name} finished: 4 of 4 trials done, ")
    assert SENTENCE in said
    told = engram(searched).json("status", "tunable-search")
    assert searched.told == told  # as the search told it itself
    assert told["trials"] == {"planned": 4, "made": 4}
    assert {"answer", "sentence", "winner", "difference"} == told["recommendation"].keys()
    made = searched.copied(tmp_path)
    search = {name: value for name, value in journal(made).about()["search"].items() if name != "recommendation"}
    rewritten(made, rows(made)[:3], search=search)
    said = engram(made)("status").stdout
    assert said.startswith(f"{made.name} interrupted: 2 of 4 trials done, ")
    assert "interrupted, 2 of 4 trials done" in engram(made)("runs").stdout


def test_its_tables_are_shown_and_taken_out_with_a_column_for_every_choice(searched: Made, tmp_path: Path) -> None:
    said = engram(searched)("results", searched.name, "trials").stdout
    assert len(said.splitlines()) == 8
    assert "rate=0.006, wide=false, fresh seeds" in said
    told: list[dict[str, Any]] = engram(searched).json("results", searched.name, "front")
    assert all(row["front"] and row["search"] == searched.name for row in told)
    out = tmp_path / "trials.parquet"
    engram(searched)("results", searched.name, "trials", "--out", str(out))
    table = pq.read_table(out)
    assert table.schema.names[:8] == [
        "search",
        "trial",
        "part",
        "setting",
        "setting.rate",
        "setting.wide",
        "state",
        "run",
    ]
    assert {"0.006", "0.01", None} == set(table["setting.rate"].to_pylist())
    summaries = engram(searched).json("results", searched.name)
    assert {row["run"] for row in rows(searched) if row["run"]} == {row["run"] for row in summaries}


def test_it_is_not_compared_and_takes_no_options_of_runs_when_it_goes_on(searched: Made) -> None:
    said = engram(searched)("compare", searched.name, rows(searched)[0]["run"], code=2).stderr
    assert f"{searched.name} is a search; compare two of its runs" in said
    for option, *value in (("--stop-after", "1h"), ("--same-code",)):
        said = engram(searched)("resume", searched.name, option, *value, code=2).stderr
        refusal = f"{option} is not an option of searches, and {searched.name} is a search: see engram search --help"
        assert said == f"engram: {refusal}\n"


def test_resume_goes_on_with_a_search_and_trains_nothing_anew(searched: Made, tmp_path: Path, ray_cluster: Any) -> None:
    made = searched.copied(tmp_path)
    before = rows(made)
    search = {name: value for name, value in journal(made).about()["search"].items() if name != "recommendation"}
    rewritten(made, before[:3], search=search)
    stored = sorted(made.store.glob("results/*/*.arrow"))
    told = engram(made).json("resume", "--report", "--address", ray_cluster.address)
    assert (made.name, "finished", "recommended") == (told["run"], told["state"], told["recommendation"]["answer"])
    assert before == rows(made)
    assert stored == sorted(made.store.glob("results/*/*.arrow"))
    # Its page and those of the runs behind its answer lead to one another.
    page = Path(told["report"])
    behind = {row["run"] for row in before if row["trial"] in (0, told["recommendation"]["winner"])}
    links = set(re.findall(r'href="(\.\./[^"]+)"', page.read_text()))
    assert {f"../{run}/report.html" for run in behind} == links
    for link in links:
        assert [f"../{made.name}/report.html"] == re.findall(r'href="(\.\./[^"]+)"', (page.parent / link).read_text())


def found(**fields: object) -> Comparison:
    rows = (Pair("M", '{"rank": 1}', A, B), Pair("P", "{}", None, A))
    whole = {
        "runs": ("first-1", "second-2"),
        "audits": ("unique_feature", "toys"),
        "fields": (Difference("epochs", 3, 4), Difference("label", None, "b")),
        "environment": (Difference("torch", "2.1", "2.2"),),
        "answers": (None, ANSWER),
        "rows": rows,
    }
    return Comparison(**(whole | fields))  # type: ignore[arg-type]


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_person_reads_what_differs_then_the_rows_then_the_answers(capsys: pytest.CaptureFixture[str]) -> None:
    verdict.display_comparison(found())
    interval, n = (
        ["a:", "95", "%", "interval", "b:", "95", "%", "interval"],
        ["a:", "n", "a:", "null", "b", "b:", "95", "%", "interval", "b:", "n", "b:", "null"],
    )
    assert [
        ["a", "first-1", "(unique_feature)"],
        ["b", "second-2", "(toys)"],
        [],
        ["differs", "name", "a", "b"],
        ["config", "epochs", "3", "4"],
        ["config", "label", "b"],
        ["made", "with", "torch", "2.1", "2.2"],
        [],
        ["metric", "setting", "a", *interval[:4], *n],
        ["M", "rank=1", "0.25", "[0.10,", "0.40]", "3", "0", "0.5", "1"],
        ["P", "0.25", "[0.10,", "0.40]", "3", "0"],
        [],
        ["a", "no", "answer", "yet"],
        ["b", "It", "is", "remembered."],
    ] == words(capsys.readouterr().out)


def test_runs_that_were_asked_alike_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    verdict.display_comparison(found(fields=(), environment=()))
    assert "same configuration and same environment\n" in capsys.readouterr().out


def test_a_program_gets_all_of_it() -> None:
    shape = json.loads(json.dumps(jsonable(verdict.comparison_shape(found())), allow_nan=False))
    assert sorted(shape) == ["answers", "audits", "environment", "fields", "rows", "runs"]
    assert shape["rows"] == [
        {"metric": "M", "setting": '{"rank": 1}', "a": A, "b": B},
        {"metric": "P", "setting": "{}", "a": None, "b": A},
    ]
    assert shape["fields"][1] == {"name": "label", "a": None, "b": "b"}
    assert [each and each["sentence"] for each in shape["answers"]] == [None, "It is remembered."]
