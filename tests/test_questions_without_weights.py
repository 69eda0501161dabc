"""Questions are handed out, and answers planned for, on a machine without the weights of the published model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.shell import Here

SETTINGS = ("numeric=false", "secret=0123456789abcdef")


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    """A folder with DROP in its own layout: 20 passages in either part, each with a question about a number."""
    engram = Here(tmp_path)
    engram.env = {"ENGRAM_DATA": str(tmp_path / "data"), "HF_HOME": str(tmp_path / "hub")}
    folder = tmp_path / "data" / "drop"
    folder.mkdir(parents=True)
    for part in ("train", "dev"):
        (folder / f"drop_dataset_{part}.json").write_text(json.dumps(dict(passage(part, k) for k in range(20))))
    return engram


def passage(part: str, k: int) -> tuple[str, object]:
    nothing = {"day": "", "month": "", "year": ""}
    answer = {"number": str(k + 11), "date": nothing, "spans": []}
    pair = {"query_id": f"{part}-{k}", "question": "How many yards?", "answer": answer, "validated_answers": []}
    return f"{part}_{k}", {"passage": f"In game {part}-{k} he threw {k + 11} yards.", "qa_pairs": [pair]}


def test_the_questions_of_drop_are_written_and_its_answers_planned(engram: Here) -> None:
    written = engram.json("probes", "relational", "data=drop", *SETTINGS, "--out", "handed")
    (path,) = (engram.folder / "handed" / "questions").iterdir()
    ids = [p["query_id"] for each in json.loads(path.read_text()).values() for p in each["qa_pairs"]]
    assert len(ids) == written["questions"] >= 80  # 20 of either part, on the whole and on the corrupted context
    sent = engram.folder / "predictions" / f"{path.stem}.json"
    sent.parent.mkdir()
    sent.write_text(json.dumps(dict.fromkeys(ids, "11")))
    for asked in (("data=drop", "numeric=false"), ("--preset", "table2_drop")):
        plan = engram.json("plan", "relational", *asked, SETTINGS[1], "given=predictions")
        assert "fine_tuning.fine_tune" not in {task["task"] for task in plan["tasks"]}
        assert plan["missing"] == plan["planned"]


def test_a_training_needs_the_weights_all_the_same(engram: Here) -> None:
    said = engram("plan", "relational", "data=drop", code=1).stderr
    assert "the hub's cache has no model t5-small" in said
