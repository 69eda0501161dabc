"""Images in an uninformative order: all of them, a tenth twice, at positions known only with the secret."""

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


def test_every_image_occurs_and_a_tenth_twice() -> None:
    blinded = blind_images(["a"], 200, seed=3)
    times = Counter(blinded.order.tolist())
    assert sorted(times) == list(range(200))
    assert sum(count == 2 for count in times.values()) == 20
    assert len(set(blinded.ids)) == 200
    assert {image for image, count in times.items() if count == 2} == set(blinded.repeats)
    for image, repeated_id in blinded.repeats.items():
        places = []
        for name in (blinded.ids[image], repeated_id):
            places.append(int(name.split("/")[1].removesuffix(".png")))
        assert [image, image] == blinded.order[places].tolist()


def test_order_depends_on_seed_and_content() -> None:
    first = blind_images(["a"], 50, seed=3)
    repeated = blind_images(["a"], 50, seed=3)
    assert first.name == repeated.name
    assert first.order.tolist() == repeated.order.tolist()
    assert first.order.tolist() != blind_images(["a"], 50, seed=4).order.tolist()
    assert first.name != blind_images(["b"], 50, seed=3).name


def test_order_reveals_nothing_about_the_image() -> None:
    """The first position of image 0 is equally likely in each third of the folder."""
    places = np.array(
        [blind_images(["a"], 30, seed).ids[0].split("/")[1].removesuffix(".png") for seed in range(600)], int
    )
    counts = np.bincount(np.minimum(places // 11, 2), minlength=3)
    # Only the first of two positions counts, so repeated images are slightly earlier.
    assert abs(counts / 600 - 1 / 3).max() < 0.07


def test_different_answers_exceed_precision_and_tolerance() -> None:
    p = np.array([0.5, 0.5, 0.5])
    q = np.array([0.5001, 0.51, 0.6])
    first, second = (p, np.log(p / (1 - p))), (q, np.log(q / (1 - q)))
    assert different(first, second, 0.0).tolist() == [False, True, True]
    assert different(first, second, 0.01).tolist() == [False, False, True]


ROWS = [
    {"set": "query", "data": "folder:a,b", "row": 3, "file": "a,b/3.png", "image": "p/000001.png", "again": None},
    {"set": "control", "data": "folder:a,b", "row": 4, "file": None, "image": "p/000000.png", "again": "x.png"},
]
KEY = key_of([("p/000001.png", "query"), ("p/000000.png", "control")])


def test_private_files_are_outside_the_shared_folder(tmp_path: Path) -> None:
    private_files = Split(KEY, pa.Table.from_pylist(ROWS, SPLIT_SCHEMA)).files_beside(tmp_path / "probes")
    key = tmp_path / "probes-key.csv"
    split = tmp_path / "probes-split.csv"
    assert [key, split] == list(private_files)
    write_private(private_files)
    with split.open(newline="") as file:
        rows_read = list(csv.DictReader(file))
    assert [{name: str(value or "") for name, value in row.items()} for row in ROWS] == rows_read
    assert key.read_text() == '"image","set"\n"p/000000.png","control"\n"p/000001.png","query"\n'
    assert [stat.S_IMODE(path.stat().st_mode) for path in private_files] == [0o600, 0o600]


def test_commitment_is_sha256_of_the_key_file(tmp_path: Path) -> None:
    split = Split(KEY)
    write_private(split.files_beside(tmp_path / "probes"))
    assert hashlib.sha256((tmp_path / "probes-key.csv").read_bytes()).hexdigest() == split.commitment
    assert [tmp_path / "probes-key.csv"] == list(tmp_path.iterdir())
    other_key = key_of([("p/000001.png", "control"), ("p/000000.png", "query")])
    assert split.commitment != Split(other_key).commitment


def test_private_files_are_rewritten_only_if_equal(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS, SPLIT_SCHEMA)
    write_private(Split(KEY, table).files_beside(tmp_path / "probes"))
    write_private(Split(KEY, table).files_beside(tmp_path / "probes"))
    with pytest.raises(DatasetError, match=r"probes-split\.csv exists with different content; choose a new"):
        Split(KEY, table.slice(1)).files_beside(tmp_path / "probes")
    with pytest.raises(DatasetError, match=r"probes-key\.csv exists with different content; choose a new"):
        Split(KEY.slice(1)).files_beside(tmp_path / "probes")
