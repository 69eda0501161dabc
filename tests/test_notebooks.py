"""The notebooks in examples/ run completely in a kernel, and are committed with outputs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.shell import PATHS, ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
ANSWERS = ("Memorised", "Not detected", "Undecided", "Distinguishable")
LIMIT = 3000  # seconds of a cell, which the machine's load may stretch


def read_notebook(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_committed_with_outputs_and_linked(path: Path) -> None:
    cells = [cell for cell in read_notebook(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert re.search(r"/(?:home|root|tmp|work)/", path.read_text()) is None
    for page in ("README.md", "docs/results.md"):
        assert path.name in (ROOT / page).read_text()


# The tests run the same cells on less data, in seconds instead of minutes.
LESS = {
    "first_audit": {'preset="quickstart"': 'preset="quickstart", scale="tiny"'},
    "own_model": {"range(150)": "range(60)", "range(8)": "range(2)"},
    "hospital": {
        '--name "JANE DOE"': '--name "JANE DOE" --train 60 --test 10 --elsewhere 10',
        "--out clean --seed 20": "--out clean --seed 20 --train 60 --test 10 --elsewhere 10",
        ".pt --seed 20": ".pt --seed 20 --epochs 2",
        '"model_file.yaml"': '"model_file.yaml", probes=8, family={"count": 12, "look_alikes": 3}',
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "runs"), [("first_audit", 1), ("hospital", 2), ("own_model", 1)])
def test_notebook_shows_its_answers_and_a_figure(
    name: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = read_notebook(ROOT / "examples" / f"{name}.ipynb")
    for much, little in LESS[name].items():
        assert any(much in cell.source for cell in notebook.cells), much
        for cell in notebook.cells:
            cell.source = cell.source.replace(much, little)
    resources = {"metadata": {"path": str(tmp_path / "examples")}}
    NotebookClient(notebook, timeout=LIMIT, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert runs == len(re.findall(rf"^(?:{'|'.join(ANSWERS)})\b.*: ", printed, flags=re.M)), printed
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
