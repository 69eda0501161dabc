"""What programs return: every form becomes the same scores, and every violation is one line with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.programs.process import ProgramFailed
from tasks.programs.returned import Requested, score_numbers, score_result

P = np.array([0.9, 0.5, 0.1, 0.7])
PHI = np.log(P / (1 - P))
ROWS = np.array([2, 0, 3, 1])


def requested(total: int = 4) -> Requested:
    return Requested(ROWS, total, None, ROWS < 2)


@pytest.mark.parametrize(
    ("returns", "numbers"),
    [("probabilities", P), ("loss", -np.log(P)), ("log_odds", PHI), ("log_likelihood", PHI)],
)
def test_forms_of_numbers_agree(returns: Any, numbers: np.ndarray[Any, Any]) -> None:
    assert score_numbers(numbers, returns, None, "x").score == pytest.approx(PHI)
    assert np.isfinite(score_numbers(np.zeros(3), "loss", None, "x").score).all()


def test_files_agree_in_any_order(tmp_path: Path) -> None:
    order = np.argsort(ROWS)
    files = {}
    for name in ("npy", "csv", "parquet", "all"):
        files[name] = tmp_path / name
        files[name].mkdir()
    np.save(files["npy"] / "scores.npy", P)
    lines = "".join(f"{row},{p}\n" for row, p in zip(ROWS[order], P[order], strict=True))
    (files["csv"] / "scores.csv").write_text(f"row,probabilities\n{lines}")
    pq.write_table(pa.table({"row": ROWS[order], "p": P[order]}), files["parquet"] / "scores.parquet")
    everything = np.full(10, 0.2)
    everything[ROWS] = P
    np.save(files["all"] / "scores.npy", everything)  # of all rows of the data set
    for name, folder in files.items():
        total = 10 if name == "all" else 4
        assert score_result(None, folder, "probabilities", requested(total)).score == pytest.approx(PHI), name


def test_class_probabilities_and_models_use_the_labels(tmp_path: Path) -> None:
    images = load(Dataset("digits"))
    rows = np.arange(40)
    records = Requested(rows, len(images.train_images), images, rows < 20)
    p = np.full((40, 10), 0.02)
    p[rows, images.train_labels[rows]] = 0.82
    by_numbers = score_result(p, tmp_path, "probabilities", records)

    def model(batch: Any) -> Any:  # knows the label of each of these images by its content
        known = images.train_images[rows].reshape(40, -1).astype(np.float64)
        values = np.asarray(batch, np.float64).reshape(len(batch), -1)
        scale = 255 if values.max() <= 1 else 1
        places = [int(np.abs(known - scale * value).sum(axis=1).argmin()) for value in values]
        return np.log(p[places])

    by_model = score_result(model, tmp_path, "loss", records)
    for scored in (by_numbers, by_model):
        assert scored.score == pytest.approx(np.log(0.82 / 0.18))
        assert scored.correct is not None
        assert scored.correct.all()


@pytest.mark.parametrize(
    ("numbers", "returns", "message"),
    [
        ([0.1, np.nan, 0.2, 0.3], "loss", "number 1 is nan; expected a finite number"),
        ([0.1, -1, 0.2, 0.3], "loss", "log_likelihood"),
        ([0.1, 2, 0.2, 0.3], "probabilities", "a probability from 0 to 1"),
        ([0.1, 0.2, 0.3], "loss", "has the size 3; expected one number for each of the 4 requested records"),
        (np.full((4, 3), 0.3), "loss", "training.returns=probabilities"),
        (np.full((4, 3), 0.3), "probabilities", "Engram holds no labels"),
        ("text", "loss", "returned a str"),
        (lambda batch: batch, "loss", "give the data set as data=NAME"),
    ],
)
def test_impossible_results_are_one_line(tmp_path: Path, numbers: Any, returns: Any, message: str) -> None:
    with pytest.raises(ProgramFailed) as failure:
        score_result(numbers, tmp_path, returns, requested())
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "wrote no scores.parquet or scores.csv or scores.npy into {out}"),
        ({"scores.csv": "a,b\n1,2\n", "model.pt": ""}, "name the one with the numbers loss"),
        ({"scores.csv": "row,loss\n0,1\n1,2\n2,3\n", "x": ""}, "no line for row 3; 1 of 4"),
        ({"scores.csv": "row,loss\n0,1\n0,2\n2,3\n3,1\n"}, "two lines for row 0"),
        ({"scores.csv": "loss\nx\ny\nz\nw\n"}, "column loss is not numbers"),
        ({"scores.npy": "text"}, "scores.npy cannot be read"),
        ({"scores.csv": "loss\n1\n", "scores.npy": ""}, "write one"),
    ],
)
def test_unreadable_files_are_one_line(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ProgramFailed) as failure:
        score_result(None, tmp_path, "loss", requested())
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)
