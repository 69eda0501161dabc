"""The notes of `engram run --dry-run` about class numbers and data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from orchestrator.inspection.class_numbers import describe_classes
from orchestrator.inspection.preview import preview
from orchestrator.spec.specification import Spec


def write_scans(folder: Path) -> None:
    """Four classes of six 12-bit scans in 16-bit files each."""
    generator = np.random.default_rng(0)
    for name in ("0", "1", "2", "10"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            levels = generator.integers(0, 4096, (8, 8)).astype(np.uint16)
            Image.fromarray(levels).save(folder / name / f"{number}.png")


def test_plan_names_requested_classes_and_unused_bits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    write_scans(tmp_path / "scans")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4)).eval()
    torch.jit.trace(network, torch.zeros(1, 1, 8, 8)).save(tmp_path / "model.pt")
    model_settings = {"models": str(tmp_path / "model.pt"), "label": 3, "shape": "8,8,1"}
    name = f"folder:{tmp_path}/scans"
    fields = {**{f"given.{field}": value for field, value in model_settings.items()}, "probe": name, "probes": 3}
    previewed = preview(Spec("unique_feature", None, fields, store=str(tmp_path / "store")))
    field = "question.source.judged_by.label"
    row = {"field": field, "number": 3, "data": name, "names": ["0", "1", "2", "10"]}
    assert json.loads(json.dumps(previewed["classes"])) == [row]
    (line,) = describe_classes(previewed["classes"])
    assert line == f"{field}=3 is '10' of {name}, whose classes are 0: 0, 1: 1, 2: 2, 3: 10"
    (note,) = previewed["warnings"]
    assert "add #bits12 to the data set's name" in note
    fields["probe"] = f"{name}#bits12"
    assert preview(Spec("unique_feature", None, fields, store=str(tmp_path / "store")))["warnings"] == []


def test_long_class_lists_are_cut() -> None:
    names = [f"c{number}" for number in range(30)]
    row = {"field": "given.label", "number": 30, "data": "mine", "names": names}
    (line,) = describe_classes([row])
    assert line.startswith("given.label=30 is no class of mine, whose classes are 0: c0, 1: c1")
    assert line.endswith("19: c19 and 10 more")
