"""The cache of decoded pictures: whole or made anew, written once, wherever it is wished."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.datasets import picture_cache
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images
from tasks.datasets.picture_cache import CacheFile, cache_folder, open_cache, path_of
from tests.support.shell import PATHS

DIGEST = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(picture_cache, "TOGETHER", 64)  # four pictures in a part
    return tmp_path / "cache"


def made() -> Images:
    stream = np.random.default_rng(0)
    pixels = stream.integers(0, 256, (18, 4, 4, 1), dtype=np.uint8)
    labels = np.arange(18) % 3
    return Images(pixels[:11], labels[:11], pixels[11:], labels[11:], 3, ("a", "b", "c"))


class Counted:
    """The pictures, and how often they were asked for."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Images:
        self.times += 1
        return made()


def assert_same(found: picture_cache.Opened) -> None:
    images = made()
    assert (images.train_images == found.train.pixels(np.arange(11))).all()
    assert (images.test_images[::-1] == found.test.pixels(np.arange(6, -1, -1))).all()
    assert (images.train_labels.tolist(), images.test_labels.tolist()) == (
        found.train.labels.tolist(),
        found.test.labels.tolist(),
    )
    assert (found.classes, found.names, found.shape) == (3, ("a", "b", "c"), (4, 4, 1))


def test_pictures_are_written_once_and_then_read_from_the_disk(folder: Path) -> None:
    pictures = Counted()
    assert_same(open_cache(DIGEST, pictures))
    assert_same(open_cache(DIGEST, pictures))
    assert pictures.times == 1
    assert {f"{DIGEST}.arrow", f"{DIGEST}.lock"} == {path.name for path in folder.iterdir()}


def cut(held: bytes) -> bytes:
    return held[: len(held) // 2]


def of_another(held: bytes) -> bytes:
    return held.replace(DIGEST.encode(), b"cd" * 32)


def flipped(what: np.ndarray) -> Callable[[bytes], bytes]:
    def flip(held: bytes) -> bytes:
        at = held.index(what.tobytes())
        return held[:at] + bytes([held[at] ^ 1]) + held[at + 1 :]

    return flip


@pytest.mark.parametrize(
    "damage",
    [cut, of_another, lambda held: b"", flipped(made().train_images[6]), flipped(made().train_labels[:4])],
    ids=["cut", "of another", "empty", "a pixel", "a label"],
)
def test_a_damaged_file_is_made_anew(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    pictures = Counted()
    open_cache(DIGEST, pictures)
    path = path_of(DIGEST)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert whole != path.read_bytes()
    assert_same(open_cache(DIGEST, pictures))
    assert (2, whole) == (pictures.times, path.read_bytes())


def test_what_a_killed_process_has_left_is_cleared_away(folder: Path) -> None:
    folder.mkdir()
    left = folder / f".{DIGEST}.arrow.1"
    left.write_bytes(b"half")
    assert_same(open_cache(DIGEST, made))
    assert not left.exists()


def test_processes_that_come_at_once_write_one_file(folder: Path) -> None:
    script = """
import sys
import tracemalloc
from pathlib import Path
from tests.tasks.datasets.test_picture_cache import DIGEST, Counted, assert_same
from tasks.datasets.picture_cache import open_cache
pictures = Counted()
print("ready", flush=True)
sys.stdin.readline()
assert_same(open_cache(DIGEST, pictures))
print(pictures.times)
"""
    command = [sys.executable, "-c", script]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    env = os.environ | {"PYTHONPATH": PATHS}
    both = [subprocess.Popen(command, env=env, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for each in both:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in both:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    assert sorted(each.communicate()[0] for each in both) == ["0\n", "1\n"]
    assert {f"{DIGEST}.arrow", f"{DIGEST}.lock"} == {path.name for path in folder.iterdir()}


def test_pictures_found_damaged_in_use_are_made_anew_while_they_are_read(folder: Path) -> None:
    pictures = Counted()
    file = CacheFile(path_of(DIGEST), DIGEST, pictures)
    parts = file.parts()
    parts.checksums[3] ^= 1  # as if the pixels had another
    assert (made().train_images[2:5] == picture_cache.MappedRows(file, 0, 11).pixels(np.arange(2, 5))).all()
    assert pictures.times == 2
    assert file.parts() is file.renew(parts)


def test_a_folder_that_cannot_be_written_is_said_in_a_line(folder: Path) -> None:
    folder.write_bytes(b"")
    with pytest.raises(DatasetError, match=r"cannot be written: .*; set ENGRAM_CACHE to a folder with free space"):
        open_cache(DIGEST, made)


def test_the_folder_is_the_named_one_or_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ENGRAM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert tmp_path / ".cache" / "engram" == cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert Path("/somewhere/engram") == cache_folder()
    monkeypatch.setenv("ENGRAM_CACHE", "~/here")
    assert tmp_path / "here" == cache_folder()


def test_rows_are_read_without_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_cache, "TOGETHER", 1 << 20)
    pixels = np.random.default_rng(0).integers(0, 256, (2000, 64, 64, 1), dtype=np.uint8)  # 8 MB
    labels = np.zeros(2000, np.int64)
    images = Images(pixels[:1900], labels[:1900], pixels[1900:], labels[1900:], 1)
    allocated = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    try:
        found = open_cache(DIGEST, lambda: images)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert (pixels[5:1500:50] == found.train.pixels(np.arange(5, 1500, 50))).all()
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written < 5 << 20  # a few parts of the file at a time
    assert read < 2 << 20
    assert pa.default_memory_pool().max_memory() - allocated < 5 << 20
