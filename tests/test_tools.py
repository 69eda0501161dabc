"""The results of the tools in this folder: changes for users, bad command lines, mutants."""

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
    rewritten = pa.concat_tables([table.slice(0, 1), table.slice(1)]).replace_schema_metadata({"host": "another"})
    assert digest_table(table) == digest_table(rewritten)
    other_tables = [
        table.set_column(0, "x", pa.array([0.1 + 2**-56, float("nan"), None])),
        table.set_column(0, "x", pa.array([0.1, None, None])),
        table.rename_columns(["y", "name"]),
        table.set_column(0, "x", table["x"].cast(pa.float32())),
    ]
    assert len({digest_table(other_table) for other_table in (table, *other_tables)}) == 5


def test_differences_are_listed_by_kind() -> None:
    base = {"table 1": "a", "table 2": "b", "help run": "c"}
    assert compare(base, dict(base)) == {}
    now = {"table 1": "x", "help run": "c", "help new": "d"}
    assert compare(base, now) == {"table": ["table 1: differs", "table 2: gone"], "help": ["help new: new"]}


def test_prices_are_left_out() -> None:
    listing = {"presets": [{"name": "smoke", "price": {"time": "3 s"}}], "seconds_low": 1.0}
    assert without_prices(listing) == {"presets": [{"name": "smoke"}]}


@pytest.mark.slow
def test_inventory_has_plan_tables_figures_and_help(
    tmp_path: Path,
) -> None:
    inventory = take_inventory(Tree(ROOT, tmp_path / "tree"), ["unique_feature/smoke"])
    assert inventory["run unique_feature smoke"] == "0"
    assert '"planned": 18' in inventory["plan unique_feature/smoke"]
    kinds = [name.split()[0] for name in inventory]
    assert kinds.count("table") == 18
    assert kinds.count("figure") > 3
    assert {"help run", "help store"} <= {*inventory}
    assert all("Usage: " in text for name, text in inventory.items() if name.startswith("help"))


def test_two_hundred_random_command_lines_end_properly(tmp_path: Path) -> None:
    report_lines: list[str] = []
    assert fuzz.fuzz(200, 0, tmp_path, report_lines.append) == [], "\n".join(report_lines)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (CommandResult("", "engram: unexpected KeyError: 3\n", 1), "said 'engram: unexpected'"),
        (CommandResult("", "x\n" * 5, 2), "5 lines of bad usage"),
        (CommandResult("", "", 1), "exit code 1 without a word"),
        (CommandResult("", "killed", 137), "exit code 137"),
        (CommandResult("", "engram: no", 2), "bad usage has left something behind"),
        (CommandResult("done", "", 0), ""),
    ],
)
def test_lines_that_end_badly_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: CommandResult, problem: str
) -> None:
    workspace = fuzz.Workspace(tmp_path)

    def run(here: Here, *arguments: str) -> CommandResult:
        (here.folder / "left").touch()
        return result

    monkeypatch.setattr(Here, "run", run)
    _, finding = workspace.tried(("list",), {})
    assert problem == (finding.problem if finding else "")


def test_line_that_does_not_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = fuzz.Workspace(tmp_path)
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 0.05)

    def spin(here: Here, *arguments: str) -> CommandResult:
        while True:
            pass

    monkeypatch.setattr(Here, "run", spin)
    _, finding = workspace.tried(("list",), {})
    assert finding is not None
    assert finding.problem == "it hangs, busy"


def changed_sources(source: str) -> list[tuple[int, str]]:
    source_bytes = source.encode()
    sources = []
    for mutant in mutants(source):
        sources.append(
            (
                mutant.line,
                (source_bytes[: mutant.start] + mutant.instead.encode() + source_bytes[mutant.end :]).decode(),
            )
        )
    return sources


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
def test_module_is_changed_at_one_point_each(source: str, expected: list[str] | None) -> None:
    replaced = [text for _, text in changed_sources(source)]
    if expected is None:
        head, body = source.split("\n")
        expected = [f"{head.replace('= 1', f'= ({n})')}\n{body}" for n in (0, 2)] + [f"{head}\n    return None"]
    assert sorted(expected) == sorted(replaced)


def test_decisions_are_comparisons_numbers_logic_and_argument_order() -> None:
    source = "def f(p, n):\n    assert n\n    log(p)\n    return g(p, n) if p < 0.05 else None\n"
    replacements = set()
    for mutant in mutants(source, decisions=True):
        replacements.add((mutant.scope, mutant.instead))
    assert {
        ("f", instead) for instead in ("(p <= 0.05)", "(p >= 0.05)", "(0.025)", "(0.95)", "(g(n, p))", "(p)")
    } <= replacements
    assert not {instead for _, instead in replacements} & {"pass", "return None"}
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


def test_changed_module_reaches_earlier_importers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tasks.changed")
    importer = ModuleType("tasks.importer")
    module.__file__ = "changed.py"
    for fake_module in (module, importer):
        monkeypatch.setitem(sys.modules, fake_module.__name__, fake_module)
    exec(MODULE, vars(module))
    vars(importer).update({name: vars(module)[name] for name in ("above", "Limits", "LEVEL", "TWICE")})
    limits = importer.Limits()
    body = ast.parse(MODULE).body

    def change(index: int, before: str, after: str) -> None:
        replace(
            module,
            [*body[:index], *ast.parse(ast.unparse(body[index]).replace(before, after)).body, *body[index + 1 :]],
            index,
        )

    assert (importer.above(2), limits.high) == (False, 5)
    change(2, "2", "3")
    assert importer.LEVEL == 3
    assert importer.TWICE == 6
    assert limits.high == 7
    change(4, "value > level", "value >= level")
    assert importer.above(3, 3)
    change(5, "+ TWICE", "- TWICE")
    change(5, "low: int = 1", "low: int = 9")
    assert (importer.Limits().low, importer.Limits is module.Limits) == (9, True)


def test_change_has_the_line_of_its_start() -> None:
    assert [line for line, _ in changed_sources("x = not a\ny = b < c\n")] == [1, 2, 2]
