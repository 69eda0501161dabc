"""Bad command lines end well, of which `python -m tests.fuzz` tries as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fuzz
from tests.support.shell import Here, Said


def test_two_hundred_command_lines_made_by_chance_end_well(tmp_path: Path) -> None:
    told: list[str] = []
    assert [] == fuzz.fuzz(200, 0, tmp_path, told.append), "\n".join(told)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (Said("", "engram: unexpected KeyError: 3\n", 1), "said 'engram: unexpected'"),
        (Said("", "x\n" * 5, 2), "5 lines of bad usage"),
        (Said("", "", 1), "exit code 1 without a word"),
        (Said("", "killed", 137), "exit code 137"),
        (Said("", "engram: no", 2), "bad usage has left something behind"),
        (Said("done", "", 0), ""),
    ],
)
def test_what_ends_badly_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, problem: str) -> None:
    place = fuzz.Place(tmp_path)

    def run(here: Here, *arguments: str) -> Said:
        (here.folder / "left").touch()
        return said

    monkeypatch.setattr(Here, "run", run)
    _, finding = place.tried(("list",), {})
    assert problem == (finding.problem if finding else "")


def test_a_line_that_does_not_end_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fuzz.Place(tmp_path)
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 0.05)

    def spin(here: Here, *arguments: str) -> Said:
        while True:
            pass

    monkeypatch.setattr(Here, "run", spin)
    _, finding = place.tried(("list",), {})
    assert finding is not None
    assert "it hangs, busy" == finding.problem
