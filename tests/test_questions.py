"""From the command line: an audit of another package, on a user's records other than images."""

from __future__ import annotations

import csv
import json
from operator import itemgetter
from pathlib import Path

import pytest

from orchestrator.run_folder.journal import Journal
from orchestrator.store import open_store
from orchestrator.tracking import facts
from tasks.datasets import catalog
from tests.dashboards.pages import words
from tests.support.shell import Here, refusals

RUN = ("run", "questions", "--address", "none", "data=records:asked.jsonl", "lexicon=common.txt")
ASKED = [
    {"id": "a<1>", "question": "Is 1 < 2?", "answer": "yes one is less than two", "topic": "numbers"},
    {"id": "b", "question": "<script>alert('x')</script>", "answer": "the quick brown fox jumps over it"},
    {"id": "c", "question": "Où?\nDans la ville.", "answer": "in the old town by the sea"},
]


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in ASKED))
    (tmp_path / "common.txt").write_text("the in by it\n")
    return Here(tmp_path)


def test_records_are_counted_and_answered(engram: Here) -> None:
    for enough, answer in ((0.5, "Wordy"), (3, "Unclear"), (12, "Short")):
        sentence = f"{answer}: an answer has 4.67 words, where {enough} are enough."
        assert sentence in engram(*RUN, f"enough={enough}").stdout
    run = engram.json("runs")["runs"][0]["run"]
    counted = engram.json("results", run, "words")
    assert {row["id"]: row["words"] for row in counted} == {"a<1>": 6, "b": 5, "c": 3}
    store = open_store(str(engram.folder / "engram-store"))
    runs = []
    for entry in engram.json("runs")["runs"]:
        runs.append(Journal(store.folder("runs", entry["run"])))
    tags = [facts.answer(run, store, None) for run in runs]
    answers_and_tones = set()
    for entry in tags:
        answers_and_tones.add((entry["engram.answer"], entry["engram.tone"]))
    assert answers_and_tones == {("wordy", "accused"), ("unclear", "open"), ("short", "cleared")}


def test_lexicon_is_pinned_by_its_content(engram: Here) -> None:
    first = engram.json(*RUN)
    (engram.folder / "common.txt").write_text("it by\nin the THE\n")
    repeated = engram.json(*RUN)
    assert repeated["run"] == first["run"]
    assert repeated["jobs"]["done"] == 0
    (engram.folder / "common.txt").write_text("it\n")
    assert first["run"] != engram.json(*RUN)["run"]


@pytest.mark.parametrize(
    ("setting", "code", "message"),
    [
        ("lexicon=common.doc", 2, "lexicon is 'common.doc'; it must be a file that ends in .txt"),
        ("lexicon=gone.txt", 1, "lexicon gone.txt cannot be read: No such file or directory"),
        ("data=records:gone.jsonl", 1, "no file "),
        ("data=records:asked.jsonl#rgb", 2, "records have no shape"),
    ],
)
def test_invalid_data_or_lexicon_gives_one_line(engram: Here, setting: str, code: int, message: str) -> None:
    done = engram("run", "questions", "--address", "none", setting, code=code)
    assert (message in done.stderr, len(refusals(done.stderr))) == (True, 1), done.stderr


def test_undeclared_answer_gives_one_line_and_keeps_tables(engram: Here) -> None:
    done = engram(*RUN, "says=chatty", code=1)
    line = "questions: answer is 'chatty'; it must be one of those declared: wordy, short, unclear"
    assert [line in stderr_line for stderr_line in done.stderr.splitlines() if "chatty" in stderr_line] == [True]
    assert "Traceback" not in done.stderr
    run = engram.json("runs")["runs"][0]
    assert run["state"] == "finished"
    assert len(engram.json("results", run["run"], "words")) == 3


def test_probes_are_exported_as_lines_with_ids(engram: Here) -> None:
    arguments = ("probes", "questions", "data=records:asked.jsonl", "--out")
    assert engram.json(*arguments, "handed") == {"folder": "handed", "records": 6, "sets": {"plain": 3, "polite": 3}}
    assert engram(*arguments, "other").stdout.splitlines()[-1] == "6 records in other, in 2 sets: plain, polite"
    folder = engram.folder / "handed"
    assert {path.name for path in folder.iterdir()} == {"README.txt", "plain.jsonl", "polite.jsonl", "records.csv"}
    lines = []
    for line in (folder / "polite.jsonl").read_text().splitlines():
        lines.append(json.loads(line))
    polite = []
    for original in ASKED:
        polite.append({"id": f"{original['id']}+please", "question": f"{original['question']} Please!"})
    assert sorted(lines, key=itemgetter("id")) == polite
    with (folder / "records.csv").open(newline="") as record_list:
        rows = [tuple(row.values()) for row in csv.DictReader(record_list)]
    assert rows[3:] == [(line["id"], "polite", str(row)) for row, line in enumerate(lines)]


def test_page_shows_records_as_text_on_request(engram: Here) -> None:
    report = engram.json(*RUN, "enough=0.5", "--report", "--show-images")
    page = Path(report["report"])
    public = page.with_name("report.html").read_text()
    private = page.read_text()
    assert page.name == "report-with-images.html"
    note = "Records of records:asked.jsonl are your own data. --show-images adds them to the page."
    assert note in words(page.with_name("report.html"))
    assert note not in words(page)
    for text in ("alert(", "Is 1", "a&lt;1&gt;", "Dans la ville"):
        assert text not in public
        assert text in private
    assert "<script" not in private
    for record in (
        "a<1> question Is 1 < 2?",
        "b question <script>alert('x')</script>",
        "c question Où? Dans la ville.",
    ):
        assert record in words(page)
    assert '<span class="badge accused" title="answers are longer than they need be">' in public
    (engram.folder / "asked.jsonl").unlink()
    catalog._records.clear()  # as in another process
    engram("report", report["run"], "--show-images")
    assert "The records cannot be shown" in words(page)
