"""The cache of decoded images: complete or written again, written once, in a configurable folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets import picture_cache
from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images
from tasks.datasets.picture_cache import CacheFile, open_cache, path_of
from tests.support.shell import PATHS

DIGEST = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(picture_cache, "TOGETHER", 64)  # four images per part
    return tmp_path / "cache"


def make_images() -> Images:
    stream = np.random.default_rng(0)
    pixels = stream.integers(0, 256, (18, 4, 4, 1), dtype=np.uint8)
    labels = np.arange(18) % 3
    return Images(pixels[:11], labels[:11], pixels[11:], labels[11:], 3, ("a", "b", "c"))


class Counted:
    """The images, and the number of times that they were requested."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Images:
        self.times += 1
        return make_images()


def assert_same(cache: picture_cache.Opened) -> None:
    images = make_images()
    assert (images.train_images == cache.train.pixels(np.arange(11))).all()
    assert (images.test_images[::-1] == cache.test.pixels(np.arange(6, -1, -1))).all()
    assert images.train_labels.tolist() == cache.train.labels.tolist()
    assert images.test_labels.tolist() == cache.test.labels.tolist()
    assert cache.classes == 3
    assert cache.names == ("a", "b", "c")
    assert cache.shape == (4, 4, 1)


def test_images_are_written_once_and_read_from_disk(folder: Path) -> None:
    pictures = Counted()
    assert_same(open_cache(DIGEST, pictures))
    assert_same(open_cache(DIGEST, pictures))
    assert pictures.times == 1
    assert {path.name for path in folder.iterdir()} == {f"{DIGEST}.pixels", f"{DIGEST}.lock"}


def cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def rename_digest(content: bytes) -> bytes:
    return content.replace(DIGEST.encode(), b"cd" * 32)


def flip_bit_in(values: np.ndarray) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        offset = content.index(values.tobytes())
        return content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :]

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        cut_in_half,
        rename_digest,
        lambda content: b"",
        flip_bit_in(make_images().train_images[6]),
        flip_bit_in(make_images().train_labels[:4]),
    ],
    ids=["cut", "of another", "empty", "a pixel", "a label"],
)
def test_damaged_file_is_written_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    pictures = Counted()
    open_cache(DIGEST, pictures)
    path = path_of(DIGEST)
    original = path.read_bytes()
    path.write_bytes(damage(original))
    assert original != path.read_bytes()
    assert_same(open_cache(DIGEST, pictures))
    assert pictures.times == 2
    assert path.read_bytes() == original


def test_files_of_a_killed_process_are_removed(folder: Path) -> None:
    folder.mkdir()
    partial_file = folder / f".{DIGEST}.pixels.1"
    partial_file.write_bytes(b"half")
    assert_same(open_cache(DIGEST, make_images))
    assert not partial_file.exists()


def test_concurrent_processes_write_one_file(folder: Path) -> None:
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
    processes = [subprocess.Popen(command, env=env, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0] for process in processes) == ["0\n", "1\n"]
    assert {path.name for path in folder.iterdir()} == {f"{DIGEST}.pixels", f"{DIGEST}.lock"}


def test_damage_during_use_renews_the_file(folder: Path) -> None:
    pictures = Counted()
    file = CacheFile(path_of(DIGEST), DIGEST, pictures)
    parts = file.parts()
    parts.checksums[3] ^= 1  # a wrong checksum
    assert (make_images().train_images[2:5] == picture_cache.MappedRows(file, 0, 11).pixels(np.arange(2, 5))).all()
    assert pictures.times == 2
    assert file.parts() is file.renew(parts)


def test_unwritable_folder_is_reported(folder: Path) -> None:
    folder.write_bytes(b"")
    with pytest.raises(DatasetError, match=r"cannot be written: .*; set ENGRAM_CACHE to a folder with free space"):
        open_cache(DIGEST, make_images)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ENGRAM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert tmp_path / ".cache" / "engram" == cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert Path("/somewhere/engram") == cache_folder()
    monkeypatch.setenv("ENGRAM_CACHE", "~/here")
    assert tmp_path / "here" == cache_folder()


def test_rows_are_read_without_other_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_cache, "TOGETHER", 1 << 20)
    pixels = np.random.default_rng(0).integers(0, 256, (2000, 64, 64, 1), dtype=np.uint8)  # 8 MB
    labels = np.zeros(2000, np.int64)
    images = Images(pixels[:1900], labels[:1900], pixels[1900:], labels[1900:], 1)
    tracemalloc.start()
    try:
        cache = open_cache(DIGEST, lambda: images)
        write_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert (pixels[5:1500:50] == cache.train.pixels(np.arange(5, 1500, 50))).all()
        read_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert write_peak < 5 << 20  # a few parts of the file at a time
    assert read_peak < 2 << 20
