"""A search is read as it stands in its folder: how far it has come, what it recommends, and nothing that is private."""

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
from tests.support.searches import Made


def journal(made: Made) -> Journal:
    return Journal(made.store / "runs" / made.name)


def rewritten(made: Made, rows: list[dict[str, Any]], **about: Any) -> Journal:
    """The search with other rows of its table of trials, and other entries in its `run.json`."""
    there = journal(made)
    pq.write_table(pa.Table.from_pylist(rows, trials.TRIALS), there.folder / "tables" / "trials" / "trials.parquet")
    there.rewrite({**there.about(), **about})
    return there


def rows(made: Made) -> list[dict[str, Any]]:
    return pq.read_table(journal(made).folder / "tables" / "trials" / "trials.parquet").to_pylist()


def test_its_words_are_those_that_stored_searches_have() -> None:
    assert (SEARCHED, FRESH, search_results.START) == ("search", "fresh", 0)
    assert (CUT, search_results.RECOMMENDED) == ("interrupted", "recommended")


def test_a_search_that_has_ended_has_its_trials_and_its_answer(searched: Made) -> None:
    found = search_results.read_search(journal(searched))
    assert (searched.name, "tunable", 4, 4, True) == (found.name, found.audit, found.made, found.planned, found.ended)
    assert found.answer is not None
    assert searched.told["recommendation"] == found.answer.as_json()
    assert (found.answer.answer, found.answer.tone) == ("recommended", "cleared")
    assert found.answer.low is not None
    assert found.answer.low > 0
    best = found.trial(found.answer.winner or 0)
    assert best is not None
    assert search_results.setting(best) == {"rate": "0.006", "wide": "false"}
    assert search_results.trial_name(best) == "rate=0.006, wide=false"
    assert [search_results.trial_name(row) for row in found.trials if row["part"] == FRESH] == [
        "start, fresh seeds",
        "rate=0.006, wide=false, fresh seeds",
    ]


@pytest.mark.parametrize("missing", ["a trial", "the fresh audit", "the answer"])
def test_a_search_without_all_of_them_has_not_ended(searched: Made, tmp_path: Path, missing: str) -> None:
    made = searched.copied(tmp_path)
    kept, search = rows(made), dict(journal(made).about()["search"])
    if missing == "a trial":
        kept = [row for row in kept if row["trial"] != 4]
    elif missing == "the fresh audit":
        kept[-1]["state"] = CUT
    else:
        del search["recommendation"]
    there = rewritten(made, kept, search=search)
    assert not search_results.read_search(there).ended
    seen = status.status(there, open_store(str(made.store)))
    assert seen.state == "interrupted"


def test_a_search_that_has_just_begun_has_no_trials(searched: Made, tmp_path: Path) -> None:
    made = searched.copied(tmp_path)
    there = journal(made)
    for name in search_results.TABLES:
        (there.folder / "tables" / name / f"{name}.parquet").unlink()
    found = search_results.read_search(there)
    assert (found.trials, found.made) == ((), 0)
    assert results.export(there, open_store(str(made.store)), "front").table.num_rows == 0


def test_a_damaged_table_is_told_in_one_line(searched: Made, tmp_path: Path) -> None:
    there = journal(searched.copied(tmp_path))
    (there.folder / "tables" / "trials" / "trials.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(StoreError, match=r"cannot read .*trials\.parquet: .*--resume") as told:
        search_results.read_search(there)
    assert "\n" not in str(told.value)


def test_of_a_private_choice_others_see_what_stands_for_it(searched: Made, tmp_path: Path) -> None:
    """A folder of the user's, in a trial, in one that was refused, in what varies and in the sentence."""
    made = searched.copied(tmp_path)
    there = journal(made)
    about, own = there.about(), rows(made)
    for number in (1, 3):
        own[number]["setting"] = json.dumps({"folder": "/home/ann/scans"})
    own[3] |= {"run": "", "state": "refused", "note": "/home/ann/scans is refused"}
    search = {**about["search"], "over": {"folder": "/home/ann/scans,/home/ann/more", "rate": "log(0.1..1)"}}
    search["recommendation"] = {**search["recommendation"], "sentence": "folder=/home/ann/scans: memory falls."}
    rewritten(made, own, search=search)
    start = there.sibling(own[0]["run"])
    start.rewrite({**start.about(), "audit": "gone"})  # so that nobody knows what is private
    public = search_results.read_search(Disclosure().journal(there.folder))
    assert "ann" not in json.dumps([public.trials, public.settings, vars(public.answer)], default=str)
    assert public.settings["over"] == {"folder": "<withheld>,<withheld>", "rate": "log(0.1..1)"}
    assert public.answer is not None
    assert public.answer.sentence == "folder=<withheld>: memory falls."
    assert "ann" not in str(public.table("trials").to_pylist())
    assert "/home/ann/scans" in json.dumps(search_results.read_search(there).trials)


def test_what_is_not_private_is_told_as_it_is(searched: Made) -> None:
    public: SearchResults = search_results.read_search(Disclosure().journal(journal(searched).folder))
    assert vars(search_results.read_search(journal(searched))) == vars(public) | {"settings": dict(public.settings)}
