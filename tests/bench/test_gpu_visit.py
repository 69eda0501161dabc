"""The GPU visit measures every section without a GPU or extras, and continues after it was killed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.measuring import Row, read_report, write
from bench.sections import IN_PROGRESS, Section, Sitting
from tests.support.shell import ROOT
from tests.support.waiting import HANGING, wait_until

SUBJECTS = (
    "ceiling: copy on the device",
    "mlp1, 2 stacked, captured: model-step",
    "2 canaries of mlp1 on digits x 2 epochs, all in",
    "mlp1 by graphs on 2 streams",
    "autoencoders, 2 stacked: model-step",
    "log p of 2 models, TF32",
    "100 autoencoders x 100 epochs with log p (bfloat16) every 5: computed from the rates above",
    "neighbours, 30 x 400 x 16, k = 5, rows from arrays",
    "neighbours, 30 x 400 x 16, k = 5, faiss",
    "mlp1, 2 stacked: model-step in whole epochs",
    "memory of mlp1 in a stack of 2, captured",
    "cnn1 in float32, stack 2",
    "cnn2 in float32, stack 2",
    "airbench in float32, stack 2 channels last",
    "airbench, 2 models on halves of 512 images, 1 epochs",
)
SETTING = {"date": "2026-11-29", "device": "CPU", "code": "abc"}


@pytest.mark.slow
def test_killed_visit_continues_without_extras(tmp_path: Path) -> None:
    for absent in ("ray", "mlflow", "pydantic", "faiss"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError('absent')\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    environment.pop("ENGRAM_DATA", None)
    out = tmp_path / "visit.md"
    command = [sys.executable, "-m", "bench.gpu_visit", "--device", "cpu", "--tiny", "--out", str(out)]
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path, env=environment)
    wait_until(lambda: out.exists() and f"- {IN_PROGRESS}: log p" in out.read_text())
    killed.kill()
    killed.wait()
    earlier = [row for row in read_report(out)[1] if row.section != "log p"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=HANGING)
    assert done.returncode == 0, done.stderr
    assert "ceilings: measured earlier" in done.stderr
    setting, rows = read_report(out)
    assert [str(row) for row in rows[: len(earlier)]] == [str(row) for row in earlier]
    assert rows[-1].section == "log p"
    assert IN_PROGRESS not in setting
    assert [row for row in rows if "failed" in row.engram or "left out" in row.engram] == [], done.stderr
    assert [subject for subject in SUBJECTS if not any(row.subject.startswith(subject) for row in rows)] == []
    assert sorted(row.required for row in rows if not math.isnan(row.required)) == [2, 2, 12, 12, 12, 40]


def rows_of(name: str) -> Iterator[Row]:
    yield Row(name, "1 us", "3 us", 3.0, 2.0, 4.0)
    yield Row(f"time of {name}", "3.5 s", "", 3.5, 2.0, 0.5, "s")


@pytest.mark.parametrize("name", ["out.md", "out.json"])
@pytest.mark.parametrize("section", ["", "ceilings"])
def test_report_is_read_as_written(name: str, section: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = [*rows_of("one"), Row("ceiling", "1 GB/s", section=section)]
    write("title", SETTING, rows, path)
    setting, read = read_report(path)
    assert setting == SETTING
    assert [str(row) for row in read] == [str(row) for row in rows]


def sitting_of(out: Path, names: str, **changes: str) -> Sitting:
    """Measure these sections, of which `c` fails."""
    sitting = Sitting("title", SETTING | changes, out)
    sitting.take_over()
    sitting.measure([Section(name, lambda name=name: rows_of(name)) for name in names])  # type: ignore[misc]
    return sitting


def test_only_missing_sections_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "out.md"
    incomplete = [*rows_of("a"), Row("b", "1"), Row("c", "failed: X"), Row("d", "left out: it may take 9 s")]
    rows = [Row(row.subject, row.engram, section=row.subject.removeprefix("time of ")) for row in incomplete]
    write("title", SETTING | {IN_PROGRESS: "b", "took": "7 s"}, rows, out)
    sitting = sitting_of(out, "abcd", date="2026-11-30")
    assert [row.section for row in sitting.rows] == [*"aaccddbb"]
    assert sitting.setting == SETTING | {"continued": "2026-11-30", "took": "7 s"}
    assert math.isnan(sitting.rows[0].ratio)  # as in the file
    assert sitting.rows[-1].ratio == 3.5


@pytest.mark.parametrize("changed", ["device", "code"])
def test_rows_of_other_hardware_or_code_are_replaced(changed: str, tmp_path: Path) -> None:
    out = tmp_path / "out.md"
    sitting_of(out, "ab")
    assert [row.section for row in sitting_of(out, "b", **{changed: "other"}).rows] == ["b", "b"]
    assert read_report(out)[0][changed] == "other"
