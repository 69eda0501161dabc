"""Membership audits of tables of features, from CSV files to answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import orchestrator

RUN: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}
TREE = "sklearn:sklearn.tree.DecisionTreeClassifier"
FEATURES = 6


def write_table(path: Path, seed: int, rows: int = 100) -> Path:
    """Write noise with random labels, which can only be memorised, and a column of text."""
    stream = np.random.default_rng(seed)
    header = ",".join([*(f"x{number}" for number in range(FEATURES)), "ward", "outcome"])
    lines = [header]
    for _ in range(rows):
        numbers = ",".join(map(str, stream.normal(size=FEATURES).round(4)))
        lines.append(f"{numbers},{stream.choice(['east', 'west'])},{stream.choice(['well', 'ill'])}")
    path.write_text("\n".join(lines) + "\n")
    return path


def settings_for(path: Path, **settings: Any) -> dict[str, Any]:
    return {"preset": "quickstart", "data": f"table:{path}#label=outcome", "examples": 0, **settings, **RUN}


@pytest.mark.parametrize("settings", [{"network": TREE}, {"network": "mlp1", "epochs": 40}], ids=["tree", "mlp1"])
def test_noise_labels_are_memorised(settings: dict[str, Any], tmp_path: Path) -> None:
    table = write_table(tmp_path / "records.csv", 1)
    run = orchestrator.run("membership", store=tmp_path / "store", **settings_for(table, **settings))
    assert run.verdict is not None
    assert run.verdict.answer == "memorised"
    assert run.table("records").num_rows == 79


@pytest.mark.parametrize(
    ("audit", "settings", "message"),
    [
        (
            "forgetting",
            {"query.data": "{table}"},
            "forgetting reads no tables, such as table:.*; tables are read by memb",
        ),
        ("membership", {"network": "cnn1"}, "network is cnn1, which takes images, and table:records.csv.* is a table"),
        ("membership", {"network": "sklearn:sklearn.svm.LinearSVC"}, "LinearSVC has no predict_proba"),
        ("membership", {"network": TREE, "augmentation": True}, "augmentation is on and network is sklearn:"),
        ("membership", {"network": TREE, "precision": "bfloat16"}, "precision is bfloat16 and network is sklearn:"),
        ("membership", {"network": "mlp1", "shift_pixels": 1}, "shift_pixels is 1, and the data are a table"),
        (
            "membership",
            {"network": "mlp1", "canaries": 20, "canary_images": "noise"},
            "canary_images is noise, and table:",
        ),
    ],
)
def test_settings_for_images_are_refused(audit: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    name = f"table:{write_table(tmp_path / 'records.csv', 1)}#label=outcome"
    if audit == "membership":
        settings = {"data": name, "examples": 40, **settings}
    settings = {key: value.format(table=name) if isinstance(value, str) else value for key, value in settings.items()}
    with pytest.raises(orchestrator.EngramError, match=message):
        orchestrator.plan(audit, preset="smoke", store=tmp_path / "store", **settings)


class Rows(torch.nn.Module):
    """Two logits of a row of features, for a file that takes the numbers as they are."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return 3 * rows[:, :2]


def write_numbers(path: Path, seed: int, features: int = 4) -> Path:
    stream = np.random.default_rng(seed)
    rows = stream.normal(size=(80, features)).round(4)
    lines = [",".join([*(f"x{number}" for number in range(features)), "outcome"])]
    for row in rows:
        lines.append(",".join([*map(str, row), str(int(row[1] > row[0]) if seed == 1 else stream.integers(2))]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_model_file_is_audited_on_two_csv_files(tmp_path: Path) -> None:
    torch.jit.script(Rows()).save(str(tmp_path / "model.pt"))
    members, others = (write_numbers(tmp_path / f"{name}.csv", seed) for seed, name in ((1, "members"), (2, "others")))
    model = tmp_path / "model.pt"
    run = orchestrator.audit(model, members, others, label="outcome", store=tmp_path / "store", **RUN)
    scores = run.table("loss_scores")
    assert np.bincount(scores["member"].to_numpy()).tolist() == [80, 80]
    is_member = scores["member"].to_numpy(zero_copy_only=False)
    assert scores["correct"].to_numpy(zero_copy_only=False)[is_member].all()
    assert run.verdict is not None
    wider = write_numbers(tmp_path / "wider.csv", 2, features=5)
    (tmp_path / "outputs.csv").write_text("image,loss\n")
    for audited in (model, tmp_path / "outputs.csv"):
        with pytest.raises(orchestrator.EngramError, match=r"has the columns x0, x1, x2, x3, and .* the same order"):
            orchestrator.audit(audited, members, wider, label="outcome", store=tmp_path / "store", **RUN)
    with pytest.raises(orchestrator.EngramError, match="a pickle, which is refused: reading it would run its code"):
        orchestrator.audit(tmp_path / "model.joblib", members, others, label="outcome", store=tmp_path, **RUN)
