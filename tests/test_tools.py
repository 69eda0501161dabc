"""What the tools of this folder find: changes for users, bad command lines, mutants."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests import fuzz
from tests.frozen import Tree, compare, digest_table, take_inventory, without_prices
from tests.mutation import mutants
from tests.support.shell import ROOT, Here, Said


def test_tables_are_compared_by_their_values() -> None:
    table = pa.table({"x": [0.1, float("nan"), None], "name": ["a", "b", "c"]})
    again = pa.concat_tables([table.slice(0, 1), table.slice(1)]).replace_schema_metadata({"host": "another"})
    assert digest_table(table) == digest_table(again)
    others = [
        table.set_column(0, "x", pa.array([0.1 + 2**-56, float("nan"), None])),
        table.set_column(0, "x", pa.array([0.1, None, None])),
        table.rename_columns(["y", "name"]),
        table.set_column(0, "x", table["x"].cast(pa.float32())),
    ]
    assert len({digest_table(each) for each in (table, *others)}) == 5


def test_what_differs_is_named_by_kind() -> None:
    base = {"table 1": "a", "table 2": "b", "help run": "c"}
    assert {} == compare(base, dict(base))
    now = {"table 1": "x", "help run": "c", "help new": "d"}
    assert {"table": ["table 1: differs", "table 2: gone"], "help": ["help new: new"]} == compare(base, now)


def test_prices_are_left_out() -> None:
    told = {"presets": [{"name": "smoke", "price": {"time": "3 s"}}], "seconds_low": 1.0}
    assert {"presets": [{"name": "smoke"}]} == without_prices(told)


@pytest.mark.slow
def test_an_inventory_holds_the_plan_the_tables_and_the_figures_of_a_preset_and_the_help_of_commands(
    tmp_path: Path,
) -> None:
    found = take_inventory(Tree(ROOT, tmp_path / "tree"), ["unique_feature/smoke"])
    assert "0" == found["run unique_feature smoke"]
    assert '"planned": 18' in found["plan unique_feature smoke"]
    kinds = [name.split()[0] for name in found]
    assert 18 == kinds.count("table")
    assert kinds.count("figure") > 3
    assert {"help run", "help verify"} <= {*found}
    assert all("Usage: " in text for name, text in found.items() if name.startswith("help"))


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


def changed(source: str) -> list[tuple[int, str]]:
    held = source.encode()
    return [
        (each.line, (held[: each.start] + each.instead.encode() + held[each.end :]).decode())
        for each in mutants(source)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["(a <= b)", "(a >= b)"]),
        ("a in b", ["(a not in b)"]),
        ("x = 'é' + 3", ["x = ('é' - 3)", "x = 'é' + (2)", "x = 'é' + (4)"]),
        ("x = a and b", ["x = (a or b)", "x = (a)", "x = (b)"]),
        ("x = not a", ["x = (a)"]),
        ("x = True", ["x = (False)"]),
        ("x -= y", ["x += y"]),
        ("save(one, other)", ["pass", "(save(other, one))", "(one)"]),
        ("x = min(a, b)", ["x = (max(a, b))", "x = (a)"]),
        ("def f(n: int = 1) -> int:\n    return n", None),
        ("if held(x):\n    raise Held", ["if (not held(x)):\n    raise Held", "if held(x):\n    pass"]),
        ("'''1 < 2'''", []),
        ("x = f'{a + 1}'", []),
    ],
)
def test_a_module_is_changed_at_one_point_at_a_time(source: str, expected: list[str] | None) -> None:
    found = [text for _, text in changed(source)]
    if expected is None:
        head, body = source.split("\n")
        expected = [f"{head.replace('= 1', f'= ({n})')}\n{body}" for n in (0, 2)] + [f"{head}\n    return None"]
    assert sorted(expected) == sorted(found)


def test_a_change_has_the_line_where_it_starts() -> None:
    assert [1, 2, 2] == [line for line, _ in changed("x = not a\ny = b < c\n")]
