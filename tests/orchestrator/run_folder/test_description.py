"""What `run.json` says of what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.run_folder.journal import Journal, cell_description, sweep_description
from orchestrator.spec.resolve import Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec

ASKED = Spec("toys", "three", {"label": "x"}, {"seconds": ("1", "2")}, {"tolerate": 1, "together": 4})


def test_a_cell_keeps_what_asks_for_it_alone() -> None:
    for cell in pin_cells(resolve_cells(ASKED), {}):
        asked = cell_description(cell)["asked"]
        assert ("three", {}, 1) == (asked["preset"], asked["sweep"], asked["tolerate"])
        assert {"label": "x", **cell.setting} == asked["set"]
        (again,) = resolve_cells(Spec("toys", asked["preset"], asked["set"]))
        assert cell.config == again.config


def test_a_sweep_keeps_what_asks_for_all_of_its_cells() -> None:
    cells = resolve_cells(ASKED)
    about = sweep_description(cells, [f"run {at}" for at in range(len(cells))])
    fields = {"set": {"label": "x"}, "sweep": {"seconds": ["1", "2"]}}
    assert {"preset": "three", **fields, "tolerate": 1} == about["asked"]
    assert [cell.setting for cell in cells] == about["settings"]


def test_cells_of_several_specifications_or_of_none_keep_nothing_of_one() -> None:
    cells = [*resolve_cells(Spec("toys", "few")), *resolve_cells(Spec("toys", "few", {"label": "x"}))]
    assert "asked" not in sweep_description(cells, ["a", "b"])
    assert "asked" not in cell_description(Cell("toys", cells[0].config))


@pytest.mark.parametrize(
    "asked", [[], {"set": 1}, {"sweep": {"a": "1,2"}}, {"preset": 3}, {"tolerate": "2"}, {"sweep": None}]
)
def test_what_is_no_specification_is_damage(tmp_path: Path, asked: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"audit": "toys", "config": {}, "asked": asked}))
    with pytest.raises(StoreError, match="'asked' has another form"):
        Journal(tmp_path).about()
