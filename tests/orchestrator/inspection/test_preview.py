"""Previews of a specification: nothing runs and no store is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.inspection import preview
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.run_files import unseal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store

HERE = Execution(address="none", mlflow="off", report=False)


def toys_spec(folder: Path, address: str = "none", **options: Any) -> Spec:
    return Spec("toys", store=str(folder / "store"), execution={"address": address}, **options)


def test_without_a_store_everything_is_missing(tmp_path: Path) -> None:
    previewed = preview.preview(toys_spec(tmp_path, set={"parts": 3}))
    assert previewed["tasks"] == [
        {"task": "toys.part", "planned": 3, "stored": 0, "missing": 3},
        {"task": "toys.total", "planned": 1, "stored": 0, "missing": 1},
    ]
    assert tuple(previewed[name] for name in ("expected_seconds", "slots", "audit", "preset")) == (
        None,
        1,
        "toys",
        None,
    )
    assert list(tmp_path.iterdir()) == []


def test_stored_jobs_are_skipped_and_predict_time(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    done = start(resolve_cells(toys_spec(tmp_path, set={"parts": 3})), store, HERE)
    timings = Journal(store.folder("runs", done.run)).folder / "timings.json"
    timings.write_text('{"toys.part": [2.0], "toys.total": [1.0], "around, none": [10.0]}')
    previewed = preview.preview(toys_spec(tmp_path, set={"parts": 5}))
    assert previewed["planned"] == 6
    assert previewed["stored"] == 3
    assert previewed["missing"] == 3
    sealed_plan = unseal((timings.parent / "plan.json").read_bytes())
    assert len(sealed_plan["jobs"]) == 4
    repeated = preview.preview(toys_spec(tmp_path, set={"parts": 3}))
    assert repeated["missing"] == 0
    assert repeated["expected_seconds"] == 0.0
    assert repeated["cells"][0]["run"] == done.run


def test_shared_jobs_are_counted_once(tmp_path: Path) -> None:
    previewed = preview.preview(toys_spec(tmp_path, set={"parts": 3}, sweep={"label": ("a", "b")}))
    assert previewed["planned"] == 5
    assert [cell["setting"] for cell in previewed["cells"]] == [{"label": "a"}, {"label": "b"}]
    assert [cell["planned"] for cell in previewed["cells"]] == [4, 4]


@pytest.mark.parametrize(("address", "slots", "gpus"), [("none", 1, 1), ("local", 3, 4), (None, 3, 4)])
def test_slots_are_processors_unless_address_is_none(
    monkeypatch: pytest.MonkeyPatch, address: str | None, slots: int, gpus: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 5}, raising=False)
    monkeypatch.setattr(preview.environment, "count_gpus", lambda: 4)
    assert slots == preview.slots_at(address)
    assert gpus == preview.gpus_at(address)


def test_machine_speed_is_kept_in_an_existing_store(tmp_path: Path) -> None:
    open_store(tmp_path / "store")
    previewed = preview.preview(Spec("unique_feature", "smoke", store=str(tmp_path / "store")))
    assert previewed["seconds_low"] < previewed["expected_seconds"] < previewed["seconds_high"]
    assert len(list((tmp_path / "store" / "speed").iterdir())) == 1
    assert (previewed["unknown"], " here, " in previewed["time"]) == ([], True)
