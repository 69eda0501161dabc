"""Which runs of a store are looks at one question, judged by their trainings, data and model."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.planning.identity import run_id
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.run_folder.journal import Journal, cell_description
from orchestrator.run_folder.looks import expected_look, read_look, read_past_runs, record_looks
from orchestrator.spec.resolve import Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec

Run = tuple[Cell, Plan, Journal]


def begin_run(runs: Path, audit: str = "unique_feature", preset: str = "smoke", **settings: str) -> Run:
    """A run and the folder that a start creates before it computes anything."""
    (cell,) = pin_cells(resolve_cells(Spec(audit, preset, settings)), {})
    plan = plan_of(cell)
    journal = Journal(runs / run_id(audit, list(plan.jobs), cell.config))
    journal.create(cell_description(cell), plan)
    return cell, plan, journal


def answer_run(*runs: Run) -> list[int]:
    """The looks of runs that are answered together."""
    record_looks([journal for _, _, journal in runs], [plan for _, plan, _ in runs])
    return [read_look(journal.about()).number for _, _, journal in runs]


@pytest.mark.parametrize(
    ("audit", "first", "second", "looks"),
    [
        ("unique_feature", {"canaries": "4"}, {"canaries": "6"}, [1, 2]),  # more pairs
        ("unique_feature", {"canaries": "4"}, {"canaries": "4", "seed": "9"}, [1, 2]),  # the same with another seed
        ("unique_feature", {"canaries": "4"}, {"canaries": "6", "seed": "9"}, [1, 2]),
        ("unique_feature", {"canaries": "4"}, {"canaries": "4", "family.count": "120"}, [1, 2]),  # shared trainings
        ("unique_feature", {"canaries": "4"}, {"canaries": "4", "network": "cnn1"}, [1, 1]),
        ("unique_feature", {"canaries": "4"}, {"canaries": "4", "examples": "280"}, [1, 1]),
        ("membership", {}, {"seed": "9"}, [1, 2]),
        ("membership", {}, {"negligible": "0.2"}, [1, 2]),  # a threshold that the answer alone reads, or a new plan
        ("membership", {}, {"network": "cnn1"}, [1, 1]),
        ("membership", {}, {"epochs": "3"}, [1, 1]),
        ("forgetting", {}, {"seed": "9"}, [1, 2]),
        ("forgetting", {}, {"permutations": "1999"}, [1, 2]),
        ("forgetting", {}, {"permutations": "1999", "replicates": "3", "seed": "9"}, [1, 2]),
        ("forgetting", {}, {"negligible": "0.2", "seed": "9"}, [1, 1]),
    ],
)
def test_runs_of_one_question_are_looks(
    audit: str, first: dict[str, str], second: dict[str, str], looks: list[int], tmp_path: Path
) -> None:
    runs = [begin_run(tmp_path, audit, **settings) for settings in (first, second)]
    assert [answer_run(run)[0] for run in runs] == looks


@pytest.mark.parametrize(("second", "looks"), [("a.onnx", [1, 2]), ("b.onnx", [1, 1])])
def test_given_models_are_part_of_the_question(tmp_path: Path, second: str, looks: list[int]) -> None:
    runs = []
    for name, seed in (("a.onnx", "0"), (second, "9")):
        (tmp_path / name).write_bytes(name.encode())
        settings = {"given.models": str(tmp_path / name), "seed": seed}
        runs.append(begin_run(tmp_path / "runs", "forgetting", **settings))
    assert [answer_run(run)[0] for run in runs] == looks


def test_resumed_run_keeps_its_look(tmp_path: Path) -> None:
    first = begin_run(tmp_path, canaries="4")
    second = begin_run(tmp_path, canaries="6")
    assert answer_run(first) + answer_run(second) == [1, 2]
    assert answer_run(first) + answer_run(second) == [1, 2]
    cell, plan, journal = second
    assert expected_look(cell, plan, journal, read_past_runs(cell.audit, journal.folder.parent)) == 2


def test_other_seeds_begin_another_stream(tmp_path: Path) -> None:
    for settings in ({"canaries": "4"}, {"canaries": "6"}, {"canaries": "6", "seed": "9"}):
        last = begin_run(tmp_path, **settings)
        answer_run(last)
    assert read_look(last[2].about()).number == 3
    assert read_look(last[2].about()).streams == 3
    more = begin_run(tmp_path, canaries="8")
    answer_run(more)
    assert read_look(more[2].about()).number == 4
    assert read_look(more[2].about()).streams == 2


def test_run_without_answer_is_no_look(tmp_path: Path) -> None:
    begin_run(tmp_path, canaries="4")
    second = begin_run(tmp_path, canaries="6")
    assert answer_run(second) == [1]


def test_look_is_counted_when_the_run_is_answered(tmp_path: Path) -> None:
    runs = [begin_run(tmp_path, canaries=count) for count in ("4", "6", "8")]
    assert [answer_run(run) for run in reversed(runs)] == [[1], [2], [3]]


def test_cells_of_sweep_count_each_other_as_cells(tmp_path: Path) -> None:
    earlier = begin_run(tmp_path, canaries="4")
    answer_run(earlier)
    cells = [begin_run(tmp_path, canaries="4", seed=seed) for seed in ("1", "2", "3")]
    assert answer_run(*cells) == [2, 2, 2]
    assert {read_look(journal.about()).cells for _, _, journal in cells} == {3}
    assert answer_run(begin_run(tmp_path, canaries="5")) == [5]


def test_null_is_no_look_at_the_audit(tmp_path: Path) -> None:
    null = begin_run(tmp_path, "membership", "null")
    assert answer_run(null) == [1]
    assert answer_run(begin_run(tmp_path, "membership", "null", seed="9")) == [2]
    assert answer_run(begin_run(tmp_path, "membership", "quickstart")) == [1]


def test_finished_run_of_earlier_version_is_a_look(tmp_path: Path) -> None:
    _, plan, journal = begin_run(tmp_path, canaries="4")
    jobs = {"planned": len(plan.jobs), "stored": len(plan.jobs)}
    journal.append([{"event": "started"}, {"event": "finished", "jobs": jobs}])
    assert answer_run(begin_run(tmp_path, canaries="6")) == [2]
