"""Every function that the product defines or documents has a caller outside tests."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.callers import Module, Target, find_unused, read_module

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("tasks", "orchestrator", "dashboards")
OTHERS = ("engram", "bench", "studies", "measurement", "examples", "recipe")
# Exceptions without a caller, and their reasons.
ALLOWED = {
    "tasks.contract.extras.NeedsExtras": "documents the method by which planning asks a config for its extras",
    "tasks.external.loading.log_probabilities": "asks a model file in one call, for audits of users' own",
}
LOOKED_UP = ("figures", "gallery", "sweep")  # functions of an audit's module in dashboards, found by name
CALL = re.compile(r"`([a-z_][\w.]*)(?:\(.*?\))?`")


def modules(folders: tuple[str, ...]) -> list[Module]:
    result = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            result.append(read_module(path, ROOT))
    return result


def looked_up() -> Iterator[Target]:
    """Entry points of the package, and the functions that a report looks up in the module of an audit."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group in (project["scripts"], *project["entry-points"].values()):
        for value in group.values():
            module, _, name = value.partition(":")
            yield module, name
    yield "orchestrator.executors.nodes", "answer_question"  # imported by name on another node
    for path in (ROOT / "dashboards" / "audits").iterdir():
        for name in LOOKED_UP:
            yield f"dashboards.audits.{path.name}", name


@pytest.fixture(scope="module")
def unused() -> list[str]:
    product = modules(PRODUCT)
    command = read_module(ROOT / "engram_command.py", ROOT)
    return find_unused(product, [*product, *modules(OTHERS), command], looked_up())


def test_every_public_function_has_a_caller_outside_tests(unused: list[str]) -> None:
    assert sorted(unused) == sorted(ALLOWED)


def test_documents_promise_nothing_without_a_caller(unused: list[str]) -> None:
    """A documented capability without a caller is a defect."""
    promised = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for name in CALL.findall(page.read_text(encoding="utf-8")):
            matching = [path for path in unused if path == name or path.endswith(f".{name}")]
            if "." in name and matching:
                promised[name] = page.name
    assert promised == {}


def parsed(name: str, source: str, imports: dict[str, Target] | None = None) -> Module:
    targets = {}
    for local_name, target in (imports or {}).items():
        targets[local_name] = frozenset({target})
    return Module(name, ast.parse(source), targets)


@pytest.mark.parametrize(
    ("source", "imports", "is_used"),
    [
        ("run()", {"run": ("a", "run")}, True),
        ("a.run()", {"a": ("a", "")}, True),
        ("start()", {"start": ("passing", "run")}, True),
        ("'a:run'", {}, True),
        ("run = 3", {}, False),
        ("b.run()", {"b": ("b", "")}, False),
        ("", {"run": ("a", "run")}, False),
    ],
)
def test_caller_is_found_under_any_name(source: str, imports: dict[str, Target], is_used: bool) -> None:
    defining = parsed("a", "def run():\n    return run()\n")
    passing = parsed("passing", "", {"run": ("a", "run")})
    unused = find_unused([defining], [defining, passing, parsed("user", source, imports)])
    assert unused == ([] if is_used else ["a.run"])


def test_registered_function_needs_no_caller() -> None:
    module = parsed("a", "@task(version=1)\ndef run():\n    pass\n\n@cache\ndef load():\n    pass\n")
    assert find_unused([module], [module]) == ["a.load"]
