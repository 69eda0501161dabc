"""Each option is declared once; the command line, Python and YAML files have the same ones."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

import orchestrator
from orchestrator import python_stub
from orchestrator.cli.commands import app
from orchestrator.cli.options import RunOptions
from orchestrator.errors import SpecError
from orchestrator.spec import options, spec_file
from orchestrator.spec.options import EXECUTION, SEARCH, Option
from orchestrator.spec.specification import Spec

ROOT = Path(__file__).resolve().parents[3]
OWN_OF_PYTHON = {"audit", "preset", "store", "sweep", "observe", "over", "fields"}
VALUES = {
    **{name: {str: "x", int: 3, float: 1.5, bool: True}.get(option.kind, "90") for name, option in EXECUTION.items()},
    "address": "none",
    "gpus": "none",
    "way": "loop",
    "keep": "state",
    "gpus_per_job": 1,
    "processes_per_job": 2,
}


def command_line_options(command: str) -> dict[str, Any]:
    """The parameters of a command, as typer reads them, by name."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {parameter.name: parameter for parameter in commands[command].params}


def python_arguments(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - OWN_OF_PYTHON


def taken_by(command: str, declared: Mapping[str, Option] = EXECUTION) -> set[str]:
    return {name for name, option in declared.items() if command not in option.not_of}


@pytest.mark.parametrize("command", ["plan", "run", "resume", "search", "submit"])
def test_command_lines_have_the_declared_options(command: str) -> None:
    parameters = command_line_options(command)
    assert set(parameters) & set(EXECUTION) == taken_by(command)
    for name in taken_by(command):
        assert parameters[name].help == EXECUTION[name].help


def test_python_has_the_options_of_the_command_line() -> None:
    assert python_arguments(orchestrator.run) == taken_by("run")
    assert python_arguments(orchestrator.search) == taken_by("search") | set(SEARCH)
    assert set(command_line_options("search")) >= set(SEARCH)


def test_yaml_files_have_the_declared_options() -> None:
    assert set(spec_file.EXECUTION_KEYS) - {"store"} == set(EXECUTION) - {"again", "all_cells", "same_code", "download"}
    assert set(spec_file.SEARCH_KEYS) - {"over"} == set(SEARCH)


@pytest.mark.parametrize("name", sorted(EXECUTION))
def test_every_surface_reads_the_same_value(name: str, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("cpu: 1\n")
    value = str(tmp_path / "prices.yaml") if name == "prices" else VALUES[name]
    expected = options.read_options(EXECUTION, {name: value})
    assert RunOptions(**{name: value}).settings() == expected
    if EXECUTION[name].is_in_file:
        path = tmp_path / "audit.yaml"
        path.write_text(f"audit: toys\nexecution: {{{name}: {str(value).lower() if value is True else value}}}\n")
        assert spec_file.read(path) == Spec("toys", execution=expected)


def test_signatures_for_type_checkers_are_up_to_date() -> None:
    assert python_stub.STUB.read_text() == python_stub.format_stub()
    assert python_stub.ENGRAM_STUB.read_text() == python_stub.format_engram_stub()


CALLS = """
from typing import Any
import engram
fields: dict[str, Any] = {"family.count": 3}
engram.run("toys", parts=3, tolerate=1, stop_after="3h", timeout=4.0, together="auto", **fields)
engram.run(engram.UniqueFeature("smoke", canaries=4, question="pairs"))
engram.search("toys", over={"rate": "0.1..1"}, trials=3, rungs=(1, 2), noise=0.1)
engram.run("toys", parts=3, tolerate="many")
engram.run("toys", together="many")
engram.search("toys", trials="many")
engram.plan("toys", address=3)
engram.UniqueFeature(canaries="many")
engram.Membership(question="neither")
"""


def test_type_checkers_know_options_and_allow_fields(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(tmp_path / "calls.py")]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    errors = checked.stdout.splitlines()
    arguments = ("tolerate", "together", "trials", "address", "canaries", "question")
    for line, argument in enumerate(arguments, start=8):
        [error] = [error for error in errors if f"calls.py:{line}: " in error]
        assert f'Argument "{argument}"' in error
    assert len(errors) == len(arguments)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3h50m", 13_800.0), ("90s", 90.0), ("1d", 86_400.0), ("1d2h3m4s", 93_784.0), ("2.5", 2.5), (7, 7.0)],
)
def test_durations_are_read_as_seconds(text: str | float, seconds: float) -> None:
    assert EXECUTION["stop_after"].read(text, "stop_after") == seconds


@pytest.mark.parametrize("text", ["", "soon", "5x", "-3h", "0", "h", "3m2h"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(SpecError, match="write it like 3h50m"):
        EXECUTION["stop_after"].read(text, "stop_after")
