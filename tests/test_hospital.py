"""The example of the hospital: its three routes end alike, and its own scripts know nothing of Engram."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tasks.audits.unique_feature.measures.output_checks import TWICE
from tasks.datasets.features import Words, burn
from tests.support.shell import ROOT, Here

HOSPITAL = ROOT / "examples" / "hospital"
THEIRS = ("make_xrays", "train_model", "answer")
PACKAGES = {"tasks", "orchestrator", "dashboards"}
SMALL = ("probes=8", "family.count=12")


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HOSPITAL / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def engram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.syspath_prepend(HOSPITAL)  # where the network that is trained here is found
    for file in HOSPITAL.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    return Here(tmp_path)


def script(engram: Here, name: str, *arguments: str) -> str:
    return engram.script(HOSPITAL / f"{name}.py", *arguments)


@pytest.mark.parametrize("name", THEIRS)
def test_what_the_hospital_runs_imports_nothing_of_engram(name: str) -> None:
    tree = ast.parse((HOSPITAL / f"{name}.py").read_text())
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert set() == imported & (PACKAGES | {"engram"})


@pytest.mark.parametrize(
    ("name", "size", "top", "left"), [("JANE DOE", 10, 1, 1), ("Jyq, Ty", 14, 5, 9), ("WILL", 8, 0, 0)]
)
def test_the_name_is_drawn_as_engram_draws_words(name: str, size: int, top: int, left: int) -> None:
    image = np.random.default_rng(5).integers(0, 256, (64, 64), dtype=np.uint8)
    drawn = module("make_xrays").with_name(image, name, size, top, left)
    burnt = burn(image[None, ..., None], Words(name, size=size, top=top, left=left))
    assert burnt[0, ..., 0].tolist() == drawn.tolist()


def test_with_and_without_a_name_one_training_image_differs(engram: Here) -> None:
    small = ("--seed", "3", "--train", "8", "--test", "2", "--elsewhere", "2")
    said = script(engram, "make_xrays", "--out", "with", "--name", "JANE DOE", *small)
    assert "" == script(engram, "make_xrays", "--out", "without", *small)
    files = sorted(path.relative_to(engram.folder / "with") for path in (engram.folder / "with").rglob("*.png"))
    pixels = {
        side: [np.array(Image.open(engram.folder / side / file)) for file in files] for side in ("with", "without")
    }
    pairs = zip(files, pixels["with"], pixels["without"], strict=True)
    differing = [file for file, one, other in pairs if not np.array_equal(one, other)]
    assert [f"with/{file} shows JANE DOE\n" for file in differing] == [said]
    assert "train" == differing[0].parts[0]


@pytest.mark.slow
def test_the_three_routes_reach_a_verdict_and_a_table_says_what_its_model_says(engram: Here) -> None:
    few = ("--train", "60", "--test", "10", "--elsewhere", "10")
    script(engram, "make_xrays", "--out", "xrays", "--seed", "1", "--name", "JANE DOE", *few)
    script(engram, "train_model", "xrays", "--out", "model.pt", "--seed", "1", "--epochs", "4")
    by_file = summary(engram, "model_file.yaml", *SMALL)

    secret = "given.secret=0123456789abcdef"
    engram("probes", "outputs.yaml", "--out", "probes", secret, *SMALL)
    script(engram, "answer", "model.pt", "probes", "--out", "outputs.csv")
    by_table = summary(engram, "outputs.yaml", "given.outputs=outputs.csv", secret, *SMALL)
    (twice,) = (each for each in by_table if each[0] == TWICE)
    assert (0.0, round(0.1 * 15 * 8)) == (twice[3], twice[2])
    by_table.remove(twice)
    assert [each[:3] for each in by_file] == [each[:3] for each in by_table]
    numbers = [[value for value in each[3:] if value is not None] for each in by_file]
    expected = [[value for value in each[3:] if value is not None] for each in by_table]
    for one, other in zip(numbers, expected, strict=True):
        # The table has nine digits of each log-probability, and the means over them at least six.
        assert one == pytest.approx(other, rel=1e-5, abs=1e-8)

    trained = summary(engram, "trained_here.yaml", "seeds=2", "epochs=2", *SMALL)
    assert ("push towards a label", 2) in {(each[0], each[2]) for each in trained}


def summary(engram: Here, *arguments: str) -> list[tuple[Any, ...]]:
    """The rows of a run's summary, whose p-value is one of the ranks that there are."""
    run = engram.json("run", *arguments)["run"]
    rows = engram.json("results", run, "--store", "store")
    names = ("metric", "setting", "n", "estimate", "low", "high", "null", "p_value")
    found = [tuple(row[name] for name in names) for row in rows]
    p_value = next(row["p_value"] for row in rows if row["metric"] == "push towards a label")
    assert p_value in [rank / 13 for rank in range(1, 14)]
    return found
