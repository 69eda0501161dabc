import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.measuring import Row
from bench.sections import Section, Sitting, first_line


def rows(*names: str) -> Iterator[Row]:
    yield from (Row(name, "1") for name in names)


def breaking() -> Iterator[Row]:
    yield Row("before", "1")
    raise RuntimeError("no | way\nand more of it")


def names(sitting: Sitting) -> list[tuple[str, str]]:
    return [(row.what, row.ours) for row in sitting.rows]


def test_a_section_that_fails_says_so_in_a_line_and_the_others_go_on() -> None:
    sitting = Sitting("title", {})
    sitting.hold([Section("one", breaking), Section("two", lambda: rows("after"))])
    assert [("before", "1"), ("one", "failed: RuntimeError: no / way"), ("after", "1")] == names(sitting)


def test_a_section_for_which_too_little_time_is_left_is_left_out_with_a_word() -> None:
    sitting = Sitting("title", {}, seconds=30)
    sitting.hold([Section("long", lambda: rows("never"), 40), Section("short", lambda: rows("this"), 10)])
    assert ["long", "this"] == [what for what, _ in names(sitting)]
    assert names(sitting)[0][1].startswith("left out: it may take 40 s, and ")


def test_a_section_ends_when_the_time_is_over() -> None:
    sitting = Sitting("title", {}, seconds=1e9)

    def slow() -> Iterator[Row]:
        yield Row("first", "1")
        sitting.seconds = 0
        yield Row("second", "1")
        yield Row("third", "1")

    sitting.hold([Section("slow", slow)])
    assert [("first", "1"), ("second", "1"), ("slow", "the rest left out: 0 s were over")] == names(sitting)


def test_what_has_been_measured_is_on_the_disk_before_the_next_row_is(tmp_path: Path) -> None:
    out = tmp_path / "results" / "out.json"

    def looking() -> Iterator[Row]:
        yield Row("first", "1")
        assert ["first"] == [row["what"] for row in json.loads(out.read_text())["rows"]]
        yield Row("second", "2")

    sitting = Sitting("title", {"data": "none"}, out)
    sitting.hold([Section("looking", looking)])
    assert ["first", "second"] == [row["what"] for row in json.loads(out.read_text())["rows"]]
    assert ["out.json"] == [path.name for path in out.parent.iterdir()]


def test_the_table_says_what_was_met(capsys: pytest.CaptureFixture[str]) -> None:
    def judged() -> Iterator[Row]:
        yield Row("speed", "1 us", "3 us", 3.0, 2.0, 4.0)
        yield Row("time", "3 s", "", 3.0, 2.0, 1.0, "s")
        yield Row("told", "1 GB/s")

    Sitting("title", {}).hold([Section("judged", judged)])
    printed = capsys.readouterr().out
    assert "| speed | 1 us | 3 us | 3.00x | 2x | 4x | yes |" in printed
    assert "| time | 3 s |  | 3.00 s | 2 s | 1 s | no |" in printed
    assert "| told | 1 GB/s |  |  |  |  |  |" in printed


def test_an_error_without_a_text_has_its_type() -> None:
    assert "KeyError" == first_line(KeyError())
