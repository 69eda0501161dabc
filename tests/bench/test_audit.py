import os
from pathlib import Path

import numpy as np
import pytest

from bench.audit import data_for, idx, parts, there, write_random
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
        assert "random images of mnist's shape" == words
        images = find("mnist")[1].read().images()
    assert (20, 28, 28, 1) == images.train_images.shape
    assert (10, 28, 28, 1) == images.test_images.shape
    assert "ENGRAM_DATA" not in os.environ


def test_what_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    with data_for("digits", tmp_path) as words:
        assert "digits" == words
    assert [] == list(tmp_path.iterdir())


def test_seconds_are_told_by_what_they_went_into() -> None:
    records = [
        {"task": "train", "way": "stack", "seconds": 5.0},
        {"task": "unique_feature.score", "seconds": 2.0},
        {"task": "unique_feature.summary", "seconds": 0.5},
    ]
    assert "training 5.0, scoring 2.0, tables 0.5, rest 1.5" == parts(records, 9.0)
