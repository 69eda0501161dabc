"""The benches of whole audits and prices, and how benches are held: sections, rows, reference timings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench.audit import data_for, idx, parts, there, write_random
from bench.measuring import Row
from bench.prices import SETTINGS, said_and_taken
from bench.reference_timings import AROUND, Timed, merged, points, rates, replaces, trainings
from bench.sections import Section, Sitting, first_line
from orchestrator.pricing.reference import Speed, load_reference, parse_reference
from orchestrator.spec.specification import Spec
from tasks.contract.job import Job, marks
from tasks.datasets.benchmark_files import parse_idx
from tasks.datasets.places import find


def test_images_are_written_as_idx_readers_read_them() -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(values, parse_idx(idx(values), "train-images-idx3-ubyte"))
    assert np.array_equal(values[0, 0], parse_idx(idx(values[0, 0]), "train-labels-idx1-ubyte"))


def test_random_images_take_the_place_of_absent_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    monkeypatch.setattr("bench.audit.write_random", lambda folder: write_random(folder, 20, 10))
    assert not there("mnist")
    with data_for("mnist", tmp_path) as words:
        assert words == "random images of mnist's shape"
        images = find("mnist")[1].read().images()
    assert images.train_images.shape == (20, 28, 28, 1)
    assert images.test_images.shape == (10, 28, 28, 1)
    assert "ENGRAM_DATA" not in os.environ


def test_what_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    with data_for("digits", tmp_path) as words:
        assert words == "digits"
    assert list(tmp_path.iterdir()) == []


def test_seconds_are_told_by_what_they_went_into() -> None:
    records = [
        {"task": "train", "way": "stack", "seconds": 5.0},
        {"task": "unique_feature.score", "seconds": 2.0},
        {"task": "unique_feature.summary", "seconds": 0.5},
    ]
    assert parts(records, 9.0) == "training 5.0, scoring 2.0, tables 0.5, rest 1.5"


SLOW = set(SETTINGS) - {"unique_feature"}
APART = 5  # a machine that does other things at once makes processor time longer by a factor of two and more


@pytest.mark.parametrize(
    "audit", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SETTINGS]
)
def test_a_small_preset_takes_about_what_it_was_said_to(audit: str) -> None:
    price, taken = said_and_taken(audit)
    assert price.unknown == ()
    assert 1 / APART < price.here.expected / taken < APART, (price.here, taken)
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


def test_seconds_per_unit_are_told_apart_by_jobs_of_several_sizes() -> None:
    assert pytest.approx(rates(ROWS)) == {"ask a": 0.5, "train a": 0.02}
    assert points(ROWS) == {"sums": {4: 2.0, 9: 5.0}}


def test_timings_of_a_slower_machine_are_brought_to_the_speed_of_the_file() -> None:
    first = merged(None, ROWS, HERE)
    again = {**first, "tasks": {task: dict(map(tuple, of)) for task, of in first["tasks"].items()}}
    slower = [Timed("fit", 0, {"train b": 10.0}, 4.0), Timed(AROUND[0], 0, None, 6.04)]
    both = merged(again, slower, Speed(2e-3, 4e-3))
    assert pytest.approx(both["units"]) == {"ask a": 0.5, "train a": 0.02, "train b": 0.2}
    assert ({AROUND[0]: 6.0}, first["tasks"]) == (both["around"], both["tasks"])
    assert parse_reference(both).speed == HERE


def test_private_trainings_replace_their_own_timings_and_no_others() -> None:
    first = merged(None, ROWS, HERE)
    again = {**first, "tasks": {task: dict(map(tuple, of)) for task, of in first["tasks"].items()}}
    rows = [
        Timed("fit", 0, {"train a": 10.0}, 9.0),
        Timed("fit", 0, {"privately train a": 10.0}, 2.0),
        Timed("sums", 4, None, 9.0),
        Timed("unique_feature.private_rank", 2, None, 0.5),
    ]
    both = merged(again, rows, HERE, partial(replaces, "private"))
    assert first["units"] | {"privately train a": 0.2} == pytest.approx(both["units"])
    assert first["tasks"] | {"unique_feature.private_rank": [[2, 0.5]]} == both["tasks"]


def test_of_every_kind_of_training_in_a_ladder_one_is_timed() -> None:
    found = [unit for job in trainings(Spec("density", "ladder")) for unit in units(job)]
    assert sorted(unit for unit in found if "train" in unit) == ["privately train vae on 8x8x1", "train vae on 8x8x1"]


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
    assert reference.executor_seconds[AROUND[0]] > 1
    assert reference.executor_seconds[AROUND[1]] >= 0


def rows(*names: str) -> Iterator[Row]:
    yield from (Row(name, "1") for name in names)


def breaking() -> Iterator[Row]:
    yield Row("before", "1")
    raise RuntimeError("no | way\nand more of it")


def names(sitting: Sitting) -> list[tuple[str, str]]:
    return [(row.what, row.ours) for row in sitting.rows]


def test_a_section_that_fails_says_so_in_a_line_and_the_others_go_on() -> None:
    sitting = Sitting("title", {})
    sitting.hold([Section("one", breaking), Section("two", lambda: rows("after"))])
    assert names(sitting) == [("before", "1"), ("one", "failed: RuntimeError: no / way"), ("after", "1")]


def test_a_section_for_which_too_little_time_is_left_is_left_out_with_a_word() -> None:
    sitting = Sitting("title", {}, seconds=30)
    sitting.hold([Section("long", lambda: rows("never"), 40), Section("short", lambda: rows("this"), 10)])
    assert [what for what, _ in names(sitting)] == ["long", "this"]
    assert names(sitting)[0][1].startswith("left out: it may take 40 s, and ")


def test_a_section_ends_when_the_time_is_over() -> None:
    sitting = Sitting("title", {}, seconds=1e9)

    def slow() -> Iterator[Row]:
        yield Row("first", "1")
        sitting.seconds = 0
        yield Row("second", "1")
        yield Row("third", "1")

    sitting.hold([Section("slow", slow)])
    assert names(sitting) == [("first", "1"), ("second", "1"), ("slow", "the rest left out: 0 s were over")]


def test_what_has_been_measured_is_on_the_disk_before_the_next_row_is(tmp_path: Path) -> None:
    out = tmp_path / "results" / "out.json"

    def looking() -> Iterator[Row]:
        yield Row("first", "1")
        assert [row["what"] for row in json.loads(out.read_text())["rows"]] == ["first"]
        yield Row("second", "2")

    sitting = Sitting("title", {"data": "none"}, out)
    sitting.hold([Section("looking", looking)])
    assert [row["what"] for row in json.loads(out.read_text())["rows"]] == ["first", "second"]
    assert [path.name for path in out.parent.iterdir()] == ["out.json"]


def test_the_table_says_what_was_met(capsys: pytest.CaptureFixture[str]) -> None:
    def judged() -> Iterator[Row]:
        yield Row("speed", "1 us", "3 us", 3.0, 2.0, 4.0)
        yield Row("time", "3 s", "", 3.0, 2.0, 1.0, "s")
        yield Row("told", "1 GB/s")

    Sitting("title", {}).hold([Section("judged", judged)])
    printed = capsys.readouterr().out
    assert "| speed | 1 us | 3 us | 3.00x | 2x | 4x | yes |" in printed
    assert "| time | 3 s |  | 3.00 s | 2 s | 1 s | no |" in printed
    assert "| told | 1 GB/s |  |  |  |  |  |" in printed


def test_an_error_without_a_text_has_its_type() -> None:
    assert first_line(KeyError()) == "KeyError"
