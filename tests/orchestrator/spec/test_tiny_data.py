"""scale=tiny with a data set that is smaller than the embedded one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.inspection.preview import preview
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tests.tasks.datasets import scans


@pytest.mark.parametrize("audit", ["unique_feature", "membership", "density"])
def test_tiny_asks_for_no_more_examples_than_there_are(audit: str, tmp_path: Path) -> None:
    folder = scans.classes(tmp_path / "scans", 12)  # of 24 images, 18 are for training
    asked = Spec(audit, "quickstart", {"scale": "tiny", "data": f"folder:{folder}#8x8"}, store=str(tmp_path / "store"))
    (cell,) = pin_cells(resolve_cells(asked), {})
    assert cell.config.examples == 18
    assert preview(asked)["planned"] > 0


def test_examples_of_ones_own_stay(tmp_path: Path) -> None:
    folder = scans.classes(tmp_path / "scans", 12)
    given = {"scale": "tiny", "data": f"folder:{folder}#8x8", "examples": 300}
    (cell,) = pin_cells(resolve_cells(Spec("membership", "quickstart", given)), {})
    assert cell.config.examples == 300


def test_texts_are_counted_like_images(tmp_path: Path) -> None:
    (tmp_path / "few.jsonl").write_text("".join(f'{{"id": "{row}", "text": "note {row}"}}\n' for row in range(6)))
    given = {"scale": "tiny", "data": f"records:{tmp_path / 'few.jsonl'}"}
    (cell,) = pin_cells(resolve_cells(Spec("text", "quickstart", given)), {})
    assert cell.config.examples == 6
