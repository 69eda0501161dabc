"""The reference timings as they are fitted and merged, from made-up seconds."""

from __future__ import annotations

import pytest

from bench.reference_timings import AROUND, Timed, is_own, merged, points, rates, trainings
from orchestrator.pricing.reference import Speed, load_reference, parse_reference
from orchestrator.spec.specification import Spec
from tasks.job import Job, marks

HERE = Speed(1e-3, 2e-3)
ROWS = [
    Timed("fit", 0, {"train a": 100.0, "ask a": 10.0}, 100 * 2e-2 + 10 * 5e-1),
    Timed("fit", 0, {"train a": 400.0, "ask a": 10.0}, 400 * 2e-2 + 10 * 5e-1),
    Timed("fit", 0, {"train a": 100.0, "ask a": 50.0}, 100 * 2e-2 + 50 * 5e-1),
    Timed("sums", 4, None, 1.0),
    Timed("sums", 4, None, 3.0),
    Timed("sums", 9, None, 5.0),
]


def test_seconds_per_unit_are_told_apart_by_jobs_of_several_sizes() -> None:
    assert {"ask a": 0.5, "train a": 0.02} == pytest.approx(rates(ROWS))
    assert {"sums": {4: 2.0, 9: 5.0}} == points(ROWS)


def test_timings_of_a_slower_machine_are_brought_to_the_speed_of_the_file() -> None:
    first = merged(None, ROWS, HERE)
    again = {**first, "tasks": {task: dict(map(tuple, of)) for task, of in first["tasks"].items()}}
    slower = [Timed("fit", 0, {"train b": 10.0}, 4.0), Timed(AROUND[0], 0, None, 6.04)]
    both = merged(again, slower, Speed(2e-3, 4e-3))
    assert {"ask a": 0.5, "train a": 0.02, "train b": 0.2} == pytest.approx(both["units"])
    assert ({AROUND[0]: 6.0}, first["tasks"]) == (both["around"], both["tasks"])
    assert HERE == parse_reference(both).speed


def test_private_trainings_replace_their_own_timings_and_no_others() -> None:
    first = merged(None, ROWS, HERE)
    again = {**first, "tasks": {task: dict(map(tuple, of)) for task, of in first["tasks"].items()}}
    rows = [
        Timed("fit", 0, {"train a": 10.0}, 9.0),
        Timed("fit", 0, {"privately train a": 10.0}, 2.0),
        Timed("sums", 4, None, 9.0),
        Timed("unique_feature.private_rank", 2, None, 0.5),
    ]
    both = merged(again, rows, HERE, is_own)
    assert first["units"] | {"privately train a": 0.2} == pytest.approx(both["units"])
    assert first["tasks"] | {"unique_feature.private_rank": [[2, 0.5]]} == both["tasks"]


def test_of_every_kind_of_training_in_a_ladder_one_is_timed() -> None:
    found = [unit for job in trainings(Spec("density", "ladder")) for unit in units(job)]
    assert ["privately train vae on 8x8x1", "train vae on 8x8x1"] == sorted(unit for unit in found if "train" in unit)


def units(job: Job) -> list[str]:
    work = marks(job.function).work
    assert work is not None
    return list(work(job.config).amounts)


def test_the_shipped_timings_know_the_networks_and_the_embedded_presets() -> None:
    reference = load_reference()
    for network in ("mlp1", "cnn1", "resnet18", "densenet100"):
        assert reference.units[f"train {network} on 28x28x1"] > 0
    assert reference.units["train cnn2 on 32x32x3"] > 0
    assert {"density.scores", "forgetting.power", "deja_vu.scores", "relational.score"} <= set(reference.tasks)
    assert reference.around[AROUND[0]] > 1
    assert reference.around[AROUND[1]] >= 0
