"""Pictures whose order says nothing: every one is there, a tenth twice, and the secret alone says where."""

from __future__ import annotations

import csv
import hashlib
import stat
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.datasets.dataset import DatasetError
from tasks.external.blinding import (
    SPLIT_SCHEMA,
    Split,
    blind_images,
    different,
    key_of,
    write_private,
)


def test_every_image_is_there_and_a_tenth_of_them_twice() -> None:
    handed = blind_images(["a"], 200, seed=3)
    times = Counter(handed.order.tolist())
    assert (list(range(200)), 20) == (sorted(times), sum(count == 2 for count in times.values()))
    assert len(set(handed.ids)) == 200
    assert {image for image, count in times.items() if count == 2} == set(handed.repeats)
    for image, again in handed.repeats.items():
        places = [int(name.split("/")[1].removesuffix(".png")) for name in (handed.ids[image], again)]
        assert [image, image] == handed.order[places].tolist()


def test_the_order_is_the_seeds_and_the_name_that_of_what_there_is() -> None:
    first, again = blind_images(["a"], 50, seed=3), blind_images(["a"], 50, seed=3)
    assert (first.name, first.order.tolist()) == (again.name, again.order.tolist())
    assert first.order.tolist() != blind_images(["a"], 50, seed=4).order.tolist()
    assert first.name != blind_images(["b"], 50, seed=3).name


def test_an_order_says_nothing_about_what_an_image_is() -> None:
    """The first place of image 0 is spread evenly over thirds of the folder: chi-squared with 2 degrees of freedom."""
    places = np.array(
        [blind_images(["a"], 30, seed).ids[0].split("/")[1].removesuffix(".png") for seed in range(600)], int
    )
    counts = np.bincount(np.minimum(places // 11, 2), minlength=3)
    # Of two places the first counts, so that it is a little earlier in the tenth that is there twice.
    assert abs(counts / 600 - 1 / 3).max() < 0.07


def test_answers_differ_beyond_the_last_place_and_beyond_what_devices_differ_in() -> None:
    p, q = np.array([0.5, 0.5, 0.5]), np.array([0.5001, 0.51, 0.6])
    one, other = (p, np.log(p / (1 - p))), (q, np.log(q / (1 - q)))
    assert different(one, other, 0.0).tolist() == [False, True, True]
    assert different(one, other, 0.01).tolist() == [False, False, True]


ROWS = [
    {"set": "query", "data": "folder:a,b", "row": 3, "file": "a,b/3.png", "image": "p/000001.png", "again": None},
    {"set": "control", "data": "folder:a,b", "row": 4, "file": None, "image": "p/000000.png", "again": "x.png"},
]
KEY = key_of([("p/000001.png", "query"), ("p/000000.png", "control")])


def test_they_lie_beside_the_folder_that_is_given_away_and_nobody_else_reads_them(tmp_path: Path) -> None:
    held = Split(KEY, pa.Table.from_pylist(ROWS, SPLIT_SCHEMA)).files_beside(tmp_path / "probes")
    key, split = tmp_path / "probes-key.csv", tmp_path / "probes-split.csv"
    assert [key, split] == list(held)
    write_private(held)
    with split.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [{name: str(value or "") for name, value in row.items()} for row in ROWS] == read
    assert key.read_text() == '"image","set"\n"p/000000.png","control"\n"p/000001.png","query"\n'
    assert [stat.S_IMODE(path.stat().st_mode) for path in held] == [0o600, 0o600]


def test_the_commitment_is_the_sha256_of_the_keys_file_whatever_order_it_was_made_in(tmp_path: Path) -> None:
    split = Split(KEY)
    write_private(split.files_beside(tmp_path / "probes"))
    assert hashlib.sha256((tmp_path / "probes-key.csv").read_bytes()).hexdigest() == split.commitment
    assert [tmp_path / "probes-key.csv"] == list(tmp_path.iterdir())
    other = key_of([("p/000001.png", "control"), ("p/000000.png", "query")])
    assert split.commitment != Split(other).commitment


def test_they_are_written_again_where_they_are_the_same_and_others_are_kept(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS, SPLIT_SCHEMA)
    write_private(Split(KEY, table).files_beside(tmp_path / "probes"))
    write_private(Split(KEY, table).files_beside(tmp_path / "probes"))
    with pytest.raises(DatasetError, match=r"probes-split\.csv exists with different content; choose a new"):
        Split(KEY, table.slice(1)).files_beside(tmp_path / "probes")
    with pytest.raises(DatasetError, match=r"probes-key\.csv exists with different content; choose a new"):
        Split(KEY.slice(1)).files_beside(tmp_path / "probes")
