"""Reading a search from its folder: its progress and its recommendation, without private values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import StoreError
from orchestrator.inspection import results, search_results, status
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.inspection.search_results import CUT, FRESH, SEARCHED, SearchResults
from orchestrator.run_folder.journal import Journal
from orchestrator.searches import trials
from orchestrator.store import open_store
from tests.support.searches import FinishedSearch


def journal(stored_search: FinishedSearch) -> Journal:
    return Journal(stored_search.store / "runs" / stored_search.name)


def rewritten(stored_search: FinishedSearch, rows: list[dict[str, Any]], **about: Any) -> Journal:
    """The search with other rows in its table of trials and other entries in its `run.json`."""
    search_journal = journal(stored_search)
    pq.write_table(
        pa.Table.from_pylist(rows, trials.TRIALS), search_journal.folder / "tables" / "trials" / "trials.parquet"
    )
    search_journal.rewrite({**search_journal.about(), **about})
    return search_journal


def rows(stored_search: FinishedSearch) -> list[dict[str, Any]]:
    return pq.read_table(journal(stored_search).folder / "tables" / "trials" / "trials.parquet").to_pylist()


def test_stored_wording_is_unchanged() -> None:
    assert SEARCHED == "search"
    assert FRESH == "fresh"
    assert search_results.START == 0
    assert CUT == "interrupted"
    assert search_results.RECOMMENDED == "recommended"


def test_finished_search_has_trials_and_answer(searched: FinishedSearch) -> None:
    search_state = search_results.read_search(journal(searched))
    assert (searched.name, "tunable", 4, 4, True) == (
        search_state.name,
        search_state.audit,
        search_state.made,
        search_state.planned,
        search_state.ended,
    )
    assert search_state.answer is not None
    assert searched.printed["recommendation"] == search_state.answer.as_json()
    assert search_state.answer.answer == "recommended"
    assert search_state.answer.tone == "cleared"
    assert search_state.answer.low is not None
    assert search_state.answer.low > 0
    best = search_state.trial(search_state.answer.winner or 0)
    assert best is not None
    assert search_results.setting(best) == {"rate": "0.006", "wide": "false"}
    assert search_results.trial_name(best) == "rate=0.006, wide=false"
    assert [search_results.trial_name(row) for row in search_state.trials if row["part"] == FRESH] == [
        "start, fresh seeds",
        "rate=0.006, wide=false, fresh seeds",
    ]


@pytest.mark.parametrize("missing_part", ["a trial", "the fresh audit", "the answer"])
def test_search_with_a_missing_part_is_unfinished(searched: FinishedSearch, tmp_path: Path, missing_part: str) -> None:
    stored_search = searched.copy_to(tmp_path)
    remaining_rows = rows(stored_search)
    search = dict(journal(stored_search).about()["search"])
    if missing_part == "a trial":
        remaining_rows = [row for row in remaining_rows if row["trial"] != 4]
    elif missing_part == "the fresh audit":
        remaining_rows[-1]["state"] = CUT
    else:
        del search["recommendation"]
    search_journal = rewritten(stored_search, remaining_rows, search=search)
    assert not search_results.read_search(search_journal).ended
    run_status = status.status(search_journal, open_store(str(stored_search.store)))
    assert run_status.state == "interrupted"


def test_new_search_has_no_trials(searched: FinishedSearch, tmp_path: Path) -> None:
    stored_search = searched.copy_to(tmp_path)
    search_journal = journal(stored_search)
    for name in search_results.TABLES:
        (search_journal.folder / "tables" / name / f"{name}.parquet").unlink()
    search_state = search_results.read_search(search_journal)
    assert search_state.trials == ()
    assert search_state.made == 0
    assert results.export(search_journal, open_store(str(stored_search.store)), "front").table.num_rows == 0


def test_damaged_table_is_reported_in_one_line(searched: FinishedSearch, tmp_path: Path) -> None:
    search_journal = journal(searched.copy_to(tmp_path))
    (search_journal.folder / "tables" / "trials" / "trials.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(StoreError, match=r"cannot read .*trials\.parquet: .*--resume") as caught:
        search_results.read_search(search_journal)
    assert "\n" not in str(caught.value)


def test_private_choice_is_replaced_by_a_placeholder(searched: FinishedSearch, tmp_path: Path) -> None:
    """A folder of the user appears in a trial, in a refused trial, in the varied fields and in the sentence."""
    stored_search = searched.copy_to(tmp_path)
    search_journal = journal(stored_search)
    about = search_journal.about()
    trial_rows = rows(stored_search)
    for number in (1, 3):
        trial_rows[number]["setting"] = json.dumps({"folder": "/home/ann/scans"})
    trial_rows[3] |= {"run": "", "state": "refused", "note": "/home/ann/scans is refused"}
    search = {**about["search"], "over": {"folder": "/home/ann/scans,/home/ann/more", "rate": "log(0.1..1)"}}
    search["recommendation"] = {**search["recommendation"], "sentence": "folder=/home/ann/scans: memory falls."}
    rewritten(stored_search, trial_rows, search=search)
    start = search_journal.sibling(trial_rows[0]["run"])
    start.rewrite({**start.about(), "audit": "gone"})  # then no audit declares its private fields
    public = search_results.read_search(Disclosure().journal(search_journal.folder))
    assert "ann" not in json.dumps([public.trials, public.settings, vars(public.answer)], default=str)
    assert public.settings["over"] == {"folder": "<withheld>,<withheld>", "rate": "log(0.1..1)"}
    assert public.answer is not None
    assert public.answer.sentence == "folder=<withheld>: memory falls."
    assert "ann" not in str(public.table("trials").to_pylist())
    assert "/home/ann/scans" in json.dumps(search_results.read_search(search_journal).trials)


def test_public_values_are_unchanged(searched: FinishedSearch) -> None:
    public: SearchResults = search_results.read_search(Disclosure().journal(journal(searched).folder))
    assert vars(search_results.read_search(journal(searched))) == vars(public) | {"settings": dict(public.settings)}
