"""The benches of whole audits and prices, and the harness of benches: sections, rows, reference timings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench.audit import data_for, describe_parts, has_data, idx, write_random
from bench.measuring import Row
from bench.prices import SETTINGS, price_and_measure
from bench.reference_timings import AROUND, Timed, merge_timings, points, rates, replaces, trainings
from bench.sections import Section, Sitting, first_line
from orchestrator.pricing.reference import Speed, load_reference, parse_reference
from orchestrator.spec.specification import Spec
from tasks.contract.job import Job, marks
from tasks.datasets.benchmark_files import parse_idx
from tasks.datasets.places import find


def test_images_are_written_in_idx_format() -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(values, parse_idx(idx(values), "train-images-idx3-ubyte"))
    assert np.array_equal(values[0, 0], parse_idx(idx(values[0, 0]), "train-labels-idx1-ubyte"))


def test_random_images_replace_absent_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    monkeypatch.setattr("bench.audit.write_random", lambda folder: write_random(folder, 20, 10))
    assert not has_data("mnist")
    with data_for("mnist", tmp_path) as words:
        assert words == "random images of mnist's shape"
        images = find("mnist")[1].read().images()
    assert images.train_images.shape == (20, 28, 28, 1)
    assert images.test_images.shape == (10, 28, 28, 1)
    assert "ENGRAM_DATA" not in os.environ


def test_existing_data_are_used_unchanged(tmp_path: Path) -> None:
    with data_for("digits", tmp_path) as words:
        assert words == "digits"
    assert list(tmp_path.iterdir()) == []


def test_seconds_are_assigned_to_their_work() -> None:
    records = [
        {"task": "train", "way": "stack", "seconds": 5.0},
        {"task": "unique_feature.score", "seconds": 2.0},
        {"task": "unique_feature.summary", "seconds": 0.5},
    ]
    assert describe_parts(records, 9.0) == "training 5.0, scoring 2.0, tables 0.5, rest 1.5"


SLOW = set(SETTINGS) - {"unique_feature"}
APART = 5  # a machine that does other things at once makes processor time longer by a factor of two and more


@pytest.mark.parametrize(
    "audit", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SETTINGS]
)
def test_small_preset_takes_about_its_predicted_time(audit: str) -> None:
    price, actual_seconds = price_and_measure(audit)
    assert price.unknown == ()
    assert 1 / APART < price.here.expected / actual_seconds < APART, (price.here, actual_seconds)
    assert price.here.low <= price.here.expected <= price.here.high


HERE = Speed(1e-3, 2e-3)
ROWS = [
    Timed("fit", 0, {"train a": 100.0, "ask a": 10.0}, 100 * 2e-2 + 10 * 5e-1),
    Timed("fit", 0, {"train a": 400.0, "ask a": 10.0}, 400 * 2e-2 + 10 * 5e-1),
    Timed("fit", 0, {"train a": 100.0, "ask a": 50.0}, 100 * 2e-2 + 50 * 5e-1),
    Timed("sums", 4, None, 1.0),
    Timed("sums", 4, None, 3.0),
    Timed("sums", 9, None, 5.0),
]


def test_rates_follow_from_jobs_of_several_sizes() -> None:
    assert rates(ROWS) == pytest.approx({"ask a": 0.5, "train a": 0.02})
    assert points(ROWS) == {"sums": {4: 2.0, 9: 5.0}}


def test_timings_of_another_machine_are_scaled() -> None:
    first = merge_timings(None, ROWS, HERE)
    reloaded = {**first, "tasks": {task: dict(map(tuple, task_points)) for task, task_points in first["tasks"].items()}}
    slower = [Timed("fit", 0, {"train b": 10.0}, 4.0), Timed(AROUND[0], 0, None, 6.04)]
    merged_timings = merge_timings(reloaded, slower, Speed(2e-3, 4e-3))
    assert merged_timings["units"] == pytest.approx({"ask a": 0.5, "train a": 0.02, "train b": 0.2})
    assert merged_timings["around"] == {AROUND[0]: 6.0}
    assert merged_timings["tasks"] == first["tasks"]
    assert parse_reference(merged_timings).speed == HERE


def test_private_trainings_replace_only_their_own_timings() -> None:
    first = merge_timings(None, ROWS, HERE)
    reloaded = {**first, "tasks": {task: dict(map(tuple, task_points)) for task, task_points in first["tasks"].items()}}
    rows = [
        Timed("fit", 0, {"train a": 10.0}, 9.0),
        Timed("fit", 0, {"privately train a": 10.0}, 2.0),
        Timed("sums", 4, None, 9.0),
        Timed("unique_feature.private_rank", 2, None, 0.5),
    ]
    merged_timings = merge_timings(reloaded, rows, HERE, partial(replaces, "private"))
    assert first["units"] | {"privately train a": 0.2} == pytest.approx(merged_timings["units"])
    assert first["tasks"] | {"unique_feature.private_rank": [[2, 0.5]]} == merged_timings["tasks"]


def test_one_training_of_each_kind_is_timed() -> None:
    timed_units = []
    for job in trainings(Spec("density", "ladder")):
        timed_units.extend(units(job))
    assert sorted(unit for unit in timed_units if "train" in unit) == [
        "privately train vae on 8x8x1",
        "train vae on 8x8x1",
    ]


def units(job: Job) -> list[str]:
    work = marks(job.function).work
    assert work is not None
    return list(work(job.config).amounts)


def test_shipped_timings_cover_networks_and_embedded_presets() -> None:
    reference = load_reference()
    for network in ("mlp1", "cnn1", "resnet18", "densenet100"):
        assert reference.units[f"train {network} on 28x28x1"] > 0
    assert reference.units["train airbench on 32x32x3"] > reference.units["train cnn2 on 32x32x3"] > 0
    assert set(reference.tasks) >= {"density.scores", "forgetting.power", "deja_vu.scores", "relational.score"}
    assert reference.executor_seconds[AROUND[0]] > 1
    assert reference.executor_seconds[AROUND[1]] >= 0


def rows(*names: str) -> Iterator[Row]:
    yield from (Row(name, "1") for name in names)


def breaking() -> Iterator[Row]:
    yield Row("before", "1")
    raise RuntimeError("no | way\nand more of it")


def names(sitting: Sitting) -> list[tuple[str, str]]:
    return [(row.subject, row.engram) for row in sitting.rows]


def test_failing_section_is_reported_and_others_continue() -> None:
    sitting = Sitting("title", {})
    sitting.measure([Section("one", breaking), Section("two", lambda: rows("after"))])
    assert names(sitting) == [("before", "1"), ("one", "failed: RuntimeError: no / way"), ("after", "1")]


def test_section_without_enough_time_is_left_out() -> None:
    sitting = Sitting("title", {}, seconds=30)
    sitting.measure([Section("long", lambda: rows("never"), 40), Section("short", lambda: rows("this"), 10)])
    assert [row_name for row_name, _ in names(sitting)] == ["long", "this"]
    assert names(sitting)[0][1].startswith("left out: it may take 40 s, and ")


def test_section_ends_when_the_time_is_over() -> None:
    sitting = Sitting("title", {}, seconds=1e9)

    def slow() -> Iterator[Row]:
        yield Row("first", "1")
        sitting.seconds = 0
        yield Row("second", "1")
        yield Row("third", "1")

    sitting.measure([Section("slow", slow)])
    assert names(sitting) == [("first", "1"), ("second", "1"), ("slow", "the rest left out: 0 s were over")]


def test_rows_are_written_before_the_next_measurement(tmp_path: Path) -> None:
    out = tmp_path / "results" / "out.json"

    def looking() -> Iterator[Row]:
        yield Row("first", "1")
        assert [row["subject"] for row in json.loads(out.read_text())["rows"]] == ["first"]
        yield Row("second", "2")

    sitting = Sitting("title", {"data": "none"}, out)
    sitting.measure([Section("looking", looking)])
    assert [row["subject"] for row in json.loads(out.read_text())["rows"]] == ["first", "second"]
    assert [path.name for path in out.parent.iterdir()] == ["out.json"]


def test_table_shows_which_goals_were_met(capsys: pytest.CaptureFixture[str]) -> None:
    def judged() -> Iterator[Row]:
        yield Row("speed", "1 us", "3 us", 3.0, 2.0, 4.0)
        yield Row("time", "3 s", "", 3.0, 2.0, 1.0, "s")
        yield Row("told", "1 GB/s")

    Sitting("title", {}).measure([Section("judged", judged)])
    printed = capsys.readouterr().out
    assert "| speed | 1 us | 3 us | 3.00x | 2x | 4x | yes |" in printed
    assert "| time | 3 s |  | 3.00 s | 2 s | 1 s | no |" in printed
    assert "| told | 1 GB/s |  |  |  |  |  |" in printed


def test_error_without_text_has_its_type() -> None:
    assert first_line(KeyError()) == "KeyError"
