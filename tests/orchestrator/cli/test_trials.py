"""What the commands tell of a search: one line in the list, its trials as a table, its answer, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.orchestrator.inspection.test_search_results import journal, rewritten, rows
from tests.support.searches import Made
from tests.support.shell import Here, Shell

SENTENCE = "rate=0.006, wide=false: memory falls from "


def engram(made: Made) -> Here:
    return Here(made.store.parent)


def test_the_list_of_runs_has_a_search_in_one_line_and_says_how_its_trials_are_seen(searched: Made) -> None:
    said = engram(searched)("runs")
    (_, line) = said.stdout.splitlines()
    assert [searched.name, "recommended", "finished", "search", "over", "rate,", "wide"] == line.split()[:7]
    assert "not listed: 6 trials of searches; engram runs --all lists them, too" in said.stderr
    listed = engram(searched)("runs", "--all")
    assert 8 == len(listed.stdout.splitlines())
    told = engram(searched).json("runs")["runs"]
    assert 7 == len(told)
    (search,) = (run for run in told if "trials" in run)
    assert ({"planned": 4, "made": 4}, "recommended") == (search["trials"], search["answer"])


def test_a_run_that_was_there_before_its_search_stays_in_the_list(searched: Made, tmp_path: Path) -> None:
    made = searched.copied(tmp_path)
    first = rows(made)[0]["run"]
    log = made.store / "runs" / first / "events.jsonl"
    event = {"time": "2020-01-01T00:00:00.000+00:00", "event": "started", "planned": 1, "stored": 0}
    log.write_text(f"{json.dumps(event)}\n{log.read_text()}")
    assert first in engram(made)("runs").stdout


def test_its_status_tells_how_many_trials_are_made_and_what_is_recommended(searched: Made, tmp_path: Path) -> None:
    said = engram(searched)("status", searched.name).stdout
    assert said.startswith(f"{searched.name} finished: 4 of 4 trials made, ")
    assert SENTENCE in said
    told = engram(searched).json("status", "tunable-search")
    assert (searched.told["recommendation"], {"planned": 4, "made": 4}) == (told["recommendation"], told["trials"])
    made = searched.copied(tmp_path)
    search = {name: value for name, value in journal(made).about()["search"].items() if name != "recommendation"}
    rewritten(made, rows(made)[:3], search=search)
    said = engram(made)("status").stdout
    assert said.startswith(f"{made.name} interrupted: 2 of 4 trials made, ")
    assert "interrupted, 2 of 4 trials made" in engram(made)("runs").stdout


def test_its_tables_are_shown_and_taken_out_with_a_column_for_every_choice(searched: Made, tmp_path: Path) -> None:
    said = engram(searched)("results", searched.name, "trials").stdout
    assert 8 == len(said.splitlines())
    assert "rate=0.006, wide=false, fresh seeds" in said
    told: list[dict[str, Any]] = engram(searched).json("results", searched.name, "front")
    assert all(row["front"] and row["search"] == searched.name for row in told)
    out = tmp_path / "trials.parquet"
    engram(searched)("results", searched.name, "trials", "--out", str(out))
    table = pq.read_table(out)
    assert ["search", "trial", "part", "setting", "setting.rate", "setting.wide", "state", "run"] == table.schema.names[
        :8
    ]
    assert {"0.006", "0.01", None} == set(table["setting.rate"].to_pylist())
    summaries = engram(searched).json("results", searched.name)
    assert {row["run"] for row in rows(searched) if row["run"]} == {row["run"] for row in summaries}


def test_it_is_not_compared_and_takes_no_options_of_runs_when_it_goes_on(searched: Made) -> None:
    said = engram(searched)("compare", searched.name, rows(searched)[0]["run"], code=2).stderr
    assert f"{searched.name} is a search; compare two of its runs" in said
    said = engram(searched)("resume", searched.name, "--stop-after", "1h", code=2).stderr
    assert said == f"engram: --stop-after is given, and {searched.name} is a search: see engram search --help\n"


def test_resume_goes_on_with_a_search_and_trains_nothing_anew(searched: Made, tmp_path: Path, ray_cluster: Any) -> None:
    made = searched.copied(tmp_path)
    before = rows(made)
    search = {name: value for name, value in journal(made).about()["search"].items() if name != "recommendation"}
    rewritten(made, before[:3], search=search)
    stored = sorted(made.store.glob("results/*/*.arrow"))
    told = Shell(tmp_path).json("resume", "--address", ray_cluster.address)
    assert (made.name, "finished", "recommended") == (told["search"], told["state"], told["recommendation"]["answer"])
    assert before == rows(made)
    assert stored == sorted(made.store.glob("results/*/*.arrow"))
