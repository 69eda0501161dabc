"""The runner of studies and what every study has in common."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from measurement.files import write_whole
from studies.__main__ import main
from studies.interface import FOLDER, read_questions
from tests.support.shell import ROOT

QUESTIONS = read_questions()
HELPERS = {"__init__", "__main__", "example_scripts", "hospital", "interface"}


def test_every_module_is_a_study_or_helper() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - set(QUESTIONS) == HELPERS


def test_no_name_lists_all_studies(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: python -m studies NAME [options]"
    assert [line.split()[0] for line in lines[2:]] == list(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_study_asks_one_question(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(f"usage: python -m studies {name} ")
    assert QUESTIONS[name] in printed
    assert QUESTIONS[name].endswith("?")
    assert "--tiny" in printed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("evasion", "There is no study evasion. Did you mean text_evasion or deja_vu_evasion?"),
        ("zzz", "There is no study zzz. `python -m studies` lists all studies."),
    ],
)
def test_unknown_name_gives_one_line(name: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message.replace("?", r"\?")):
        main([name])


def test_unknown_audit_is_refused_before_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["decision_rates", "no_audit"])
    assert end.value.code == 2
    assert "unknown audit: no_audit" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["bench", "studies", "measurement"])
def test_no_module_changes_the_import_path(folder: str) -> None:
    changing = []
    for path in (ROOT / folder).rglob("*.py"):
        if "sys.path" in path.read_text(encoding="utf-8"):
            changing.append(path.name)
    assert changing == []


def test_repeated_testing_writes_its_tables(tmp_path: Path) -> None:
    out = tmp_path / "new" / "table.md"
    main(["unique_feature_repeated_testing", "--tiny", "--out", str(out)])
    table = out.read_text()
    assert "- seeds: from 9000 on" in table
    assert "| nothing memorised, 12: accused |" in table


def test_unfinished_file_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "kept.md"
    write_whole("first", path)
    with pytest.raises(UnicodeEncodeError):
        write_whole("\ud800", path)
    assert path.read_text() == "first"


def test_hospitals_scripts_are_loaded_by_path() -> None:
    hospital = importlib.import_module("studies.hospital")
    assert Path(hospital.make_xrays.__file__).parent == ROOT / "examples" / "hospital"
