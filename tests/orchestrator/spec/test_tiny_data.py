"""scale=tiny with a data set that is smaller than the embedded one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from orchestrator.inspection.preview import preview
from orchestrator.spec.config_parts import flatten
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tests.tasks.datasets import scans


def examples_of(config: Any) -> list[int]:
    """The values of all fields named `examples` in a config."""
    result = []
    for path, value in flatten(config):
        if path.rpartition(".")[2] == "examples":
            result.append(value)
    return result


@pytest.mark.parametrize("audit", ["unique_feature", "membership", "density"])
def test_tiny_requests_at_most_the_available_examples(audit: str, tmp_path: Path) -> None:
    folder = scans.classes(tmp_path / "scans", 12)  # of 24 images, 18 are for training
    spec = Spec(audit, "quickstart", {"scale": "tiny", "data": f"folder:{folder}#8x8"}, store=str(tmp_path / "store"))
    (cell,) = pin_cells(resolve_cells(spec), {})
    assert examples_of(cell.config) == [18]
    assert preview(spec)["planned"] > 0


def test_explicit_number_of_examples_is_kept(tmp_path: Path) -> None:
    folder = scans.classes(tmp_path / "scans", 12)
    settings = {"scale": "tiny", "data": f"folder:{folder}#8x8", "examples": 300}
    (cell,) = pin_cells(resolve_cells(Spec("membership", "quickstart", settings)), {})
    assert examples_of(cell.config) == [300]


def test_selected_alternative_is_reduced(tmp_path: Path) -> None:
    folders = []
    for name in ("mine", "theirs"):
        folders.append(f"folder:{scans.classes(tmp_path / name, 12)}#8x8")
    for settings, count in (
        ({"data": "digits", "examples": 500, "canaries": 300}, 500),
        ({"data": folders[0], "question": "canaries"}, 18),
        ({"given.members": folders[0], "given.non_members": folders[1]}, 60),
    ):
        (cell,) = resolve_cells(Spec("membership", "quickstart", {"scale": "tiny", **settings}))
        if count == 18:
            (cell,) = pin_cells([cell], {})
        assert examples_of(cell.config) == [count]
        assert cell.config.training.epochs == 2


def test_texts_are_counted_like_images(tmp_path: Path) -> None:
    (tmp_path / "few.jsonl").write_text("".join(f'{{"id": "{row}", "text": "note {row}"}}\n' for row in range(6)))
    settings = {"scale": "tiny", "data": f"records:{tmp_path / 'few.jsonl'}"}
    (cell,) = pin_cells(resolve_cells(Spec("text", "quickstart", settings)), {})
    assert cell.config.question.examples == 6


@pytest.mark.parametrize("count", [24, 60])
def test_boxed_image_parts_fit_the_data(count: int, tmp_path: Path) -> None:
    lines = ["path,label,left,top,right,bottom"]
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (28, 28), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number % 2]},10,10,20,20")
    (tmp_path / "boxes.csv").write_text("\n".join(lines) + "\n")
    settings = {"scale": "tiny", "data": f"boxed:{tmp_path / 'boxes.csv'}"}
    spec = Spec("deja_vu", "quickstart", settings, store=str(tmp_path / "store"))
    (cell,) = pin_cells(resolve_cells(spec), {})
    assert cell.config.per_class * 4 * 2 + cell.config.public + cell.config.validation <= count
    assert preview(spec)["planned"] > 0


def test_questions_are_counted_by_part(tmp_path: Path) -> None:
    lines = []
    for number in range(10):
        fields = {"context": f"{number} chairs.", "question": "How many?", "answers": [str(number)]}
        lines.append(json.dumps({"id": str(number), "split": "train" if number < 7 else "validation", **fields}))
    (tmp_path / "few.jsonl").write_text("\n".join(lines) + "\n")
    settings = {"scale": "tiny", "data": f"records:{tmp_path / 'few.jsonl'}"}
    spec = Spec("relational", "quickstart", settings, store=str(tmp_path / "store"))
    (cell,) = pin_cells(resolve_cells(spec), {})
    assert cell.config.question.examples == 7
    assert cell.config.question.held_out == 3
    assert preview(spec)["planned"] > 0
