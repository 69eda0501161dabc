"""What the tools of this folder find: changes for users, bad command lines, mutants."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from tests import fuzz
from tests.frozen import Tree, compare, digest_table, take_inventory, without_prices
from tests.mutation import mutants, replace
from tests.support.shell import ROOT, CommandResult, Here


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
    assert compare(base, dict(base)) == {}
    now = {"table 1": "x", "help run": "c", "help new": "d"}
    assert compare(base, now) == {"table": ["table 1: differs", "table 2: gone"], "help": ["help new: new"]}


def test_prices_are_left_out() -> None:
    told = {"presets": [{"name": "smoke", "price": {"time": "3 s"}}], "seconds_low": 1.0}
    assert without_prices(told) == {"presets": [{"name": "smoke"}]}


@pytest.mark.slow
def test_an_inventory_holds_the_plan_the_tables_and_the_figures_of_a_preset_and_the_help_of_commands(
    tmp_path: Path,
) -> None:
    found = take_inventory(Tree(ROOT, tmp_path / "tree"), ["unique_feature/smoke"])
    assert found["run unique_feature smoke"] == "0"
    assert '"planned": 18' in found["plan unique_feature/smoke"]
    kinds = [name.split()[0] for name in found]
    assert kinds.count("table") == 18
    assert kinds.count("figure") > 3
    assert {"help run", "help verify"} <= {*found}
    assert all("Usage: " in text for name, text in found.items() if name.startswith("help"))


def test_two_hundred_command_lines_made_by_chance_end_well(tmp_path: Path) -> None:
    told: list[str] = []
    assert fuzz.fuzz(200, 0, tmp_path, told.append) == [], "\n".join(told)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (CommandResult("", "engram: unexpected KeyError: 3\n", 1), "said 'engram: unexpected'"),
        (CommandResult("", "x\n" * 5, 2), "5 lines of bad usage"),
        (CommandResult("", "", 1), "exit code 1 without a word"),
        (CommandResult("", "killed", 137), "exit code 137"),
        (CommandResult("", "engram: no", 2), "bad usage has left something behind"),
        (CommandResult("done", "", 0), ""),
    ],
)
def test_what_ends_badly_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: CommandResult, problem: str
) -> None:
    place = fuzz.Place(tmp_path)

    def run(here: Here, *arguments: str) -> CommandResult:
        (here.folder / "left").touch()
        return said

    monkeypatch.setattr(Here, "run", run)
    _, finding = place.tried(("list",), {})
    assert problem == (finding.problem if finding else "")


def test_a_line_that_does_not_end_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fuzz.Place(tmp_path)
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 0.05)

    def spin(here: Here, *arguments: str) -> CommandResult:
        while True:
            pass

    monkeypatch.setattr(Here, "run", spin)
    _, finding = place.tried(("list",), {})
    assert finding is not None
    assert finding.problem == "it hangs, busy"


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


def test_what_decides_is_comparisons_numbers_logic_and_the_order_of_arguments() -> None:
    source = "def f(p, n):\n    assert n\n    log(p)\n    return g(p, n) if p < 0.05 else None\n"
    found = {(each.scope, each.instead) for each in mutants(source, decisions=True)}
    assert {
        ("f", instead) for instead in ("(p <= 0.05)", "(p >= 0.05)", "(0.025)", "(0.95)", "(g(n, p))", "(p)")
    } <= found
    assert not {instead for _, instead in found} & {"pass", "return None"}
    assert mutants("zip(a, strict=True)", decisions=True) == []
    assert mutants("f(None, None)", decisions=True)[1:] == []


MODULE = """
from dataclasses import dataclass
from functools import cache

LEVEL = 2
TWICE = 2 * LEVEL

@cache
def above(value, level=LEVEL):
    return value > level

@dataclass(frozen=True)
class Limits:
    low: int = 1

    @property
    def high(self):
        return self.low + TWICE
"""


def test_a_changed_module_is_met_by_those_who_imported_it_before(monkeypatch: pytest.MonkeyPatch) -> None:
    module, importer = ModuleType("tasks.changed"), ModuleType("tasks.importer")
    module.__file__ = "changed.py"
    for each in (module, importer):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    exec(MODULE, vars(module))
    vars(importer).update({name: vars(module)[name] for name in ("above", "Limits", "LEVEL", "TWICE")})
    limits, body = importer.Limits(), ast.parse(MODULE).body

    def change(index: int, before: str, after: str) -> None:
        replace(
            module,
            [*body[:index], *ast.parse(ast.unparse(body[index]).replace(before, after)).body, *body[index + 1 :]],
            index,
        )

    assert (importer.above(2), limits.high) == (False, 5)
    change(2, "2", "3")
    assert (importer.LEVEL, importer.TWICE, limits.high) == (3, 6, 7)
    change(4, "value > level", "value >= level")
    assert importer.above(3, 3)
    change(5, "+ TWICE", "- TWICE")
    change(5, "low: int = 1", "low: int = 9")
    assert (importer.Limits().low, importer.Limits is module.Limits) == (9, True)


def test_a_change_has_the_line_where_it_starts() -> None:
    assert [line for line, _ in changed("x = not a\ny = b < c\n")] == [1, 2, 2]
