"""The commands' view of a search: one line in the list, its trials, its recommendation and how to continue.

A comparison of two runs, as text and as JSON.
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
from tests.support.searches import FinishedSearch
from tests.support.shell import Here

SENTENCE = "rate=0.006, wide=false: memory falls from "
A = {"metric": "M", "setting": "{}", "estimate": 0.25, "low": 0.1, "high": 0.4, "n": 3, "null": 0.0}
B = {"metric": "M", "setting": "{}", "estimate": 0.5, "low": None, "high": None, "n": 1, "null": None}
ANSWER = Verdict("yes", "It is remembered.", "Of this network.", (("M", "{}"),))


def engram(finished_search: FinishedSearch) -> Here:
    return Here(finished_search.store.parent)


def test_search_is_one_line_in_the_list(searched: FinishedSearch) -> None:
    completed = engram(searched)("runs")
    (_, line) = completed.stdout.splitlines()
    words = [
        searched.name,
        *["0.320", "nats", "less", "[0.292,", "0.348]", "recommended", "finished", "search", "over", "rate,", "wide"],
    ]
    assert line.split()[:12] == words
    assert "not listed: 6 trials of searches; engram runs --all lists all runs" in completed.stderr
    all_runs = engram(searched)("runs", "--all")
    assert len(all_runs.stdout.splitlines()) == 8
    run_rows = engram(searched).json("runs")["runs"]
    assert len(run_rows) == 7
    (search,) = (run for run in run_rows if "trials" in run)
    effect = search["effect"]
    assert (effect["text"], effect["unit"]) == ("0.320 nats less [0.292, 0.348]", "nats")
    assert search["answer"] == "recommended"
    assert searched.printed == {name: search[name] for name in search if name != "created"}


def test_run_names_the_search_of_its_trial(searched: FinishedSearch, tmp_path: Path) -> None:
    search_copy = searched.copy_to(tmp_path)
    table = rows(search_copy)
    (fresh_trial,) = (row for row in table if row["part"] == "fresh" and row["trial"])
    trial = next(row for row in table if row["part"] == "search" and row["trial"] == fresh_trial["trial"])
    for row, description in (
        (table[0], "the start and trial 2"),
        (trial, f"trial {trial['trial']}"),
        (fresh_trial, ", fresh seeds"),
    ):
        assert (
            f"{description} of {search_copy.name}; for the search: engram runs status {search_copy.name}"
            in engram(search_copy)("status", row["run"]).stdout
        )
    run_status = engram(search_copy).json("status", fresh_trial["run"])
    assert run_status["trial_of"] == [
        {"search": search_copy.name, "trials": [{"trial": fresh_trial["trial"], "part": "fresh"}]}
    ]
    assert "trial_of" not in engram(search_copy).json("status", search_copy.name)
    # A trial that was cut off is not in the table. Its log names its search, and commands without a name skip it.
    rewritten(search_copy, table[:3], cells=[table[0]["run"]], settings=[{}])
    os.utime(search_copy.store / "runs" / fresh_trial["run"] / "events.jsonl")
    output = engram(search_copy)("status", fresh_trial["run"]).stdout
    assert f"a trial that has not ended of {search_copy.name}" in output
    assert engram(search_copy)("status").stdout.startswith(search_copy.name)
    assert fresh_trial["run"] not in engram(search_copy)("runs").stdout


def test_run_older_than_its_search_stays_listed(searched: FinishedSearch, tmp_path: Path) -> None:
    search_copy = searched.copy_to(tmp_path)
    first = rows(search_copy)[0]["run"]
    log = search_copy.store / "runs" / first / "events.jsonl"
    event = {"time": "2020-01-01T00:00:00.000+00:00", "event": "started", "planned": 1, "stored": 0}
    log.write_text(f"{json.dumps(event)}\n{log.read_text()}")
    assert first in engram(search_copy)("runs").stdout


def test_search_status_shows_trials_and_recommendation(searched: FinishedSearch, tmp_path: Path) -> None:
    output = engram(searched)("status", searched.name).stdout
    assert output.startswith(f"{searched.name} finished: 4 of 4 trials done, ")
    assert SENTENCE in output
    search_status = engram(searched).json("status", "tunable-search")
    assert searched.printed == search_status  # as the search printed it
    assert search_status["trials"] == {"planned": 4, "made": 4}
    assert search_status["recommendation"].keys() == {"answer", "sentence", "winner", "difference"}
    search_copy = searched.copy_to(tmp_path)
    search = {}
    for name, value in journal(search_copy).about()["search"].items():
        if name != "recommendation":
            search[name] = value
    rewritten(search_copy, rows(search_copy)[:3], search=search)
    output = engram(search_copy)("status").stdout
    assert output.startswith(f"{search_copy.name} interrupted: 2 of 4 trials done, ")
    assert "interrupted, 2 of 4 trials done" in engram(search_copy)("runs").stdout


def test_search_tables_have_a_column_per_choice(searched: FinishedSearch, tmp_path: Path) -> None:
    output = engram(searched)("results", searched.name, "trials").stdout
    assert len(output.splitlines()) == 8
    assert "rate=0.006, wide=false, fresh seeds" in output
    front_rows: list[dict[str, Any]] = engram(searched).json("results", searched.name, "front")
    assert all(row["front"] and row["search"] == searched.name for row in front_rows)
    out = tmp_path / "trials.parquet"
    engram(searched)("results", searched.name, "trials", "--out", str(out))
    table = pq.read_table(out)
    assert table.schema.names[:8] == [
        "search",
        "trial",
        "part",
        "setting",
        "setting_rate",
        "setting_wide",
        "state",
        "run",
    ]
    assert set(table["setting_rate"].to_pylist()) == {"0.006", "0.01", None}
    summaries = engram(searched).json("results", searched.name)
    assert {row["run"] for row in rows(searched) if row["run"]} == {row["run"] for row in summaries}


def test_search_refuses_comparison_and_options_of_runs(searched: FinishedSearch) -> None:
    message = engram(searched)("compare", searched.name, rows(searched)[0]["run"], code=2).stderr
    assert f"{searched.name} is a search; compare two of its runs" in message
    for option, *value in (("--stop-after", "1h"), ("--same-code",)):
        message = engram(searched)("resume", searched.name, option, *value, code=2).stderr
        refusal = f"{option} is not available for searches, and {searched.name} is a search; see engram search --help"
        assert message == f"engram: {refusal}\n"


def test_resumed_search_trains_no_finished_trial_again(
    searched: FinishedSearch, tmp_path: Path, ray_cluster: Any
) -> None:
    search_copy = searched.copy_to(tmp_path)
    before = rows(search_copy)
    search = {}
    for name, value in journal(search_copy).about()["search"].items():
        if name != "recommendation":
            search[name] = value
    rewritten(search_copy, before[:3], search=search)
    result_files = sorted(search_copy.store.glob("results/*/*.arrow"))
    resumed = engram(search_copy).json("resume", "--report", "--address", ray_cluster.address)
    assert resumed["run"] == search_copy.name
    assert resumed["state"] == "finished"
    assert resumed["recommendation"]["answer"] == "recommended"
    assert before == rows(search_copy)
    assert result_files == sorted(search_copy.store.glob("results/*/*.arrow"))
    # Its page and the pages of the runs that its answer uses link to one another.
    page = Path(resumed["report"])
    behind = set()
    for row in before:
        if row["trial"] in (0, resumed["recommendation"]["winner"]):
            behind.add(row["run"])
    links = set(re.findall(r'href="(\.\./[^"]+)"', page.read_text()))
    assert {f"../{run}/report.html" for run in behind} == links
    for link in links:
        assert re.findall(r'href="(\.\./[^"]+)"', (page.parent / link).read_text()) == [
            f"../{search_copy.name}/report.html"
        ]


def comparison(**fields: object) -> Comparison:
    rows = (Pair("M", '{"rank": 1}', A, B), Pair("P", "{}", None, A))
    defaults = {
        "runs": ("first-1", "second-2"),
        "audits": ("toys", "toys"),
        "fields": (Difference("epochs", 3, 4), Difference("label", None, "b")),
        "environment": (Difference("torch", "2.1", "2.2"),),
        "answers": (None, ANSWER),
        "rows": rows,
    }
    return Comparison(**(defaults | fields))  # type: ignore[arg-type]


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_comparison_lists_differences_rows_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    verdict.display_comparison(comparison())
    interval = ["a:", "95", "%", "interval", "b:", "95", "%", "interval"]
    n = ["a:", "n", "a:", "null", "b", "b:", "95", "%", "interval", "b:", "n", "b:", "null"]
    assert words(capsys.readouterr().out) == [
        ["a", "first-1", "(toys)"],
        ["b", "second-2", "(toys):", "yes"],
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
    ]


def test_equal_configurations_are_reported_as_equal(capsys: pytest.CaptureFixture[str]) -> None:
    verdict.display_comparison(comparison(fields=(), environment=()))
    assert "same configuration and same environment\n" in capsys.readouterr().out


def test_comparison_as_json_is_complete() -> None:
    shape = json.loads(json.dumps(jsonable(verdict.comparison_shape(comparison())), allow_nan=False))
    assert sorted(shape) == ["answers", "audits", "effects", "environment", "fields", "rows", "runs"]
    assert shape["rows"] == [
        {"metric": "M", "setting": '{"rank": 1}', "a": A, "b": B},
        {"metric": "P", "setting": "{}", "a": None, "b": A},
    ]
    assert shape["fields"][1] == {"name": "label", "a": None, "b": "b"}
    assert [answer and answer["sentence"] for answer in shape["answers"]] == [None, "It is remembered."]
