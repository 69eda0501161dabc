"""File names that UTF-8 or the locale cannot represent are escaped in all written text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from orchestrator.quantities import encodable, printable
from orchestrator.sqlite_uri import sqlite_uri
from tests.support.mlflow_server import client
from tests.support.shell import Shell

BYTE = os.fsdecode(b"gr\xe4ser")  # as an old Windows wrote it into a zip
TINY = (
    "unique_feature",
    "--preset",
    "smoke",
    "scale=tiny",
    "canaries=1",
    "epochs=1",
    "examples=20",
    "--address",
    "none",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ü", "plain ü"),
        (BYTE, "gr\\xe4ser"),
        ("gr\udcc3\udca4ser", "gräser"),  # UTF-8 that was read under LC_ALL=C
        ("half \ud800", "half \\ud800"),
    ],
)
def test_text_without_utf8_form_is_escaped(text: str, expected: str) -> None:
    assert encodable(text) == expected
    assert printable(text) == expected


def images(folder: Path, file: str = "{}.png") -> None:
    """A folder of two classes, twenty images each for training and four for tests."""
    random = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 4)):
        for label in ("a", "b"):
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 255, (8, 8)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / label / file.format(number))


@pytest.mark.parametrize("where", ["the data's path", "a file of the data"])
def test_run_with_undecodable_names_is_reported_and_tracked(where: str, shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / (BYTE if where == "the data's path" else "data")
    images(folder, f"{BYTE}-{{}}.png" if where == "a file of the data" else "{}.png")
    del shell.env["MLFLOW_TRACKING_URI"]
    shell.env["ENGRAM_REPORT"] = "yes"
    completed = shell("run", *TINY, f"data=folder:{folder}", "--json")
    ended = json.loads(completed.stdout)
    assert "cannot" not in completed.stderr
    page = Path(ended["report"]).read_text(encoding="utf-8")
    assert ("gr\\xe4ser" in page) == (where == "the data's path")
    mlflow = client(sqlite_uri(tmp_path / "engram-store" / "mlflow" / "mlflow.db"))
    (experiment,) = (entry for entry in mlflow.search_experiments() if entry.name == "engram")
    (run,) = mlflow.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    for command in (("status",), ("logs",), ("report", "--card"), ("verify", ended["report"], "--json")):
        assert shell(*command).stdout.encode()


def test_umlaut_under_another_locale_is_reported(shell: Shell, tmp_path: Path) -> None:
    images(tmp_path / "gräser")
    shell.fresh = True
    shell.env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "ENGRAM_REPORT": "yes"}
    ended = shell.json("run", *TINY, f"data=folder:{tmp_path / 'gräser'}")
    assert "gräser" in Path(ended["report"]).read_text(encoding="utf-8")
