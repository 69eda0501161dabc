"""Details of a certificate: stored with the run, shown with a place to sign, and part of no key."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import Damaged, SpecError
from orchestrator.run_folder import notes
from orchestrator.run_folder.notes import LONGEST_DETAIL, Details
from tests.dashboards import pages
from tests.support.shell import Here

TITLE = "Audit of <b>a</b> model"
AUDITOR = "Jane Roe"
CLIENT = "Ward & Sons"
PURPOSE = "file 12/26"


def test_details_are_stored_shown_and_sealed(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    engram("run", "toys", "parts=2", "--address", "none")
    result_names = sorted(path.name for path in engram.results())
    file = tmp_path / "details.yaml"
    file.write_text(f"title: other\nclient: {CLIENT}\npurpose: {PURPOSE}\n")
    bare = pages.words(Path(engram.json("report")["report"]))
    assert "date signature" not in bare
    page = Path(engram.json("report", "--title", TITLE, "--auditor", AUDITOR, "--details", str(file))["report"])
    details = f" auditor {AUDITOR} client {CLIENT} purpose {PURPOSE} "
    assert f" {TITLE} " in pages.words(page)
    assert details in pages.words(page)
    assert " name date signature " in pages.words(page)
    assert TITLE not in page.read_text()  # it is escaped, never markup
    assert details in pages.words(Path(engram.json("report")["report"]))  # drawn again, nothing given
    checked = engram.json("verify", str(page))
    assert {check["state"] for check in checked["checks"]} == {"agrees"}
    assert engram.json("verify", page.parent.name) == checked
    assert "there is no file toys-none, and unknown run 'toys-none'" in engram("verify", "toys-none", code=2).stderr
    engram("run", "toys", "parts=2", "--address", "none")  # computes no job
    assert result_names == sorted(path.name for path in engram.results())
    page.write_text(page.read_text().replace(AUDITOR, "John Roe"))
    assert "changed" in engram("verify", page.parent.name, code=1).stdout
    assert "changed" in {check["state"] for check in engram.json("verify", str(page), code=1)["checks"]}
    engram("report", "--title", "", "--auditor", "", "--client", "", "--purpose", "")
    remaining_words = pages.words(page)
    assert not [text for text in (TITLE, AUDITOR, CLIENT, PURPOSE, "date signature") if text in remaining_words]
    page.unlink()
    run = page.parent.name
    assert f"run {run} has no page; create it with `engram report {run}`" in engram("verify", run, code=2).stderr
    message = engram("report", "--client", "a\x1b[2Jb", code=2).stderr
    assert message == "engram: client contains \\x1b; it must be one line without control characters\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("title: a\nclent: b\n", "unknown key 'clent'; valid keys are title, auditor, client, purpose; did you"),
        ("title: 12\n", "title is 12; it must be text"),
        ("title: [a]\n", 'title is ["a"]; it must be text'),
        ('title: "a\\nb"\n', "title contains \\n; it must be one line without control characters"),
        ('title: "a\\u202eb"\n', "title contains \\u202e; it must be one line without control characters"),
        (f"title: {'a' * (LONGEST_DETAIL + 1)}\n", "title has 201 characters; it must have at most 200"),
        ("- a\n", "it must be a mapping with title, auditor, client, purpose"),
        ("", "contains nothing; it must be a mapping"),
    ],
)
def test_invalid_details_file_is_refused_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "details.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as refused:
        notes.load_details(path)
    assert str(refused.value).startswith(str(path))
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_changed_details_file_is_detected_and_replaceable(tmp_path: Path) -> None:
    assert Details() == notes.read_details(tmp_path)
    notes.give_details(tmp_path, {"title": " a "})
    assert Details("a", client="b") == notes.give_details(tmp_path, {"client": "b"})
    path = tmp_path / notes.DETAILS_FILE
    path.write_text(path.read_text().replace('"b"', '"c"'))
    with pytest.raises(Damaged, match=r"its digest does not match its content; delete the file and give"):
        notes.read_details(tmp_path)
    every = {"title": "d", "auditor": "", "client": "", "purpose": ""}
    assert Details("d") == notes.give_details(tmp_path, every) == notes.read_details(tmp_path)
