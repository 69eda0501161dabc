"""The page of the Python API is current, and its examples run in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import engram
from orchestrator import python_reference
from orchestrator.cli import reference
from tests.support.searches import FinishedSearch
from tests.support.shell import ROOT, Shell

# The test runs the same calls with less to compute, and continues a finished search.
LESS = {
    'preset="smoke", canaries=4': 'preset="smoke", canaries=4, scale="tiny"',
    '"unique_feature", preset="quickstart", over={"dropout": [True, False]}': (
        '"tunable", over={"rate": [0.006, 0.01], "wide": [False, True]}, noise=0.01, sampler="grid", give_up=0.1'
    ),
}


def test_page_of_python_api_is_current() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert python_reference.update_page(page, reference.BEGIN, reference.END) == page, "run `make docs`"


def test_examples_run_in_order(searched: FinishedSearch, tmp_path: Path, ray_cluster: Any) -> None:
    searched.copy_to(tmp_path)
    names = python_reference.public_names()
    assert {*engram.__all__, "open"} <= {*names}
    program = "\n".join(["import engram", *map(python_reference.example, names), "print(best.verdict.answer)"])
    for much, little in LESS.items():
        assert much in program
        program = program.replace(much, little)
    shell = Shell(tmp_path)
    shell.env["RAY_ADDRESS"] = ray_cluster.address
    done = shell.script(program)
    assert done.stdout.splitlines()[-1:] == ["recommended"], done.stderr
    assert "did you mean 'feature'" in done.stdout
