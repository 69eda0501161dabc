"""CelebA's aligned images in torchvision's folder layout, cropped to the face and resized.

FOLDER/img_align_celeba/000001.jpg ...    202,599 images, 178 pixels wide and 218 high
FOLDER/list_eval_partition.txt            per image, its name and 0 (train), 1 (validation) or 2 (test)

Partition 0 is the training split and partition 1 (validation) is the test split. Partition 2 is not read: van den Burg
& Williams 2021, "On memorization in probabilistic deep generative models", compare with the validation images and use
no test images. As in the published preparation, images are cropped to columns 15 to 162 and rows 40 to 187 (148 x 148)
and resized with Pillow's bilinear filter (with antialiasing), like torchvision's Resize. The data set has no classes.

On one core, hashing a thousand images takes a thirtieth of a second and decoding them half a second. Large sets are
decoded once per machine (`tasks.datasets.large_images`).

Liu, Luo, Wang & Tang 2015, "Deep learning face attributes in the wild".
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.datasets.dataset import DatasetError, file_bytes, unreadable
from tasks.datasets.images import Images, Pixels, as_shape
from tasks.datasets.labelled import FileRows, Labelled
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.picture_index import Indexed, PictureIndex
from tasks.datasets.pictures import PictureError, map_in_threads, pixels
from tasks.datasets.source import EncodedSplits, Extent, Hashes, Source, digest_of
from tasks.datasets.splits import Split

RULE = "celeba 1"
INDEX_RULE = "index of celeba 1"
PICTURES = "img_align_celeba"
PARTITIONS = "list_eval_partition.txt"
SPLITS = {"0": "train", "1": "validation", "2": "test"}
HEIGHT = 218
WIDTH = 178
# crop around the face, in pixels
TOP = 40
LEFT = 15
SIDE = 148
SIZE = (32, 32)


@dataclass(frozen=True)
class CelebaContent:
    """Image files, read on demand because they exceed a gigabyte."""

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    size: tuple[int, int] = SIZE

    def digest(self) -> str:
        """Return the digest of the file bytes in order, the splits and the size, without paths. No file is decoded."""
        return digest_of_hashes(hash_files(self.train), hash_files(self.validation), self.size)

    def images(self) -> Images:
        train = self.decode_faces(self.train)
        validation = self.decode_faces(self.validation)
        labels = [np.zeros(len(split), np.int64) for split in (train, validation)]
        return Images(train, labels[0], validation, labels[1], classes=1)

    def decode_faces(self, files: Sequence[Path]) -> Pixels:
        """Decode the faces in these files (n, h, w, 3), with at most `pictures.TOGETHER` full images in memory."""
        out = np.empty((len(files), *self.size, 3), np.uint8)
        for row, face_pixels in enumerate(map_in_threads(lambda path: decode_face(path, self.size), files)):
            out[row] = face_pixels
        return out


def hash_files(files: Sequence[Path]) -> Hashes:
    """Return the SHA-256 of each file, (n, 32)."""
    hashes = b"".join(hashlib.sha256(content).digest() for content in map_in_threads(file_bytes, files))
    return np.frombuffer(hashes, np.uint8).reshape(-1, 32)


def digest_of_hashes(train: Hashes, validation: Hashes, size: tuple[int, int]) -> str:
    """Return the digest of files with these hashes."""
    digests = [[row.tobytes().hex() for row in hashes] for hashes in (train, validation)]
    return digest_of(RULE, [json.dumps([digests, size]).encode()])


@dataclass(frozen=True, eq=False)
class CelebaFiles(Indexed):
    """The same images, which are decoded on demand. `stamp` returns the state of the files."""

    content: CelebaContent
    stamp: Callable[[], str]

    @property
    def count(self) -> int:
        return len(self.content.train) + len(self.content.validation)

    def extent(self) -> Extent:
        return Extent(self.count, (*self.content.size, 3))

    def _index_size(self) -> int:
        return self.count

    def _index_key(self) -> str:
        return digest_of(INDEX_RULE, [json.dumps([self.stamp(), self.content.size]).encode()])

    def _read_index(self) -> PictureIndex:
        """Hash each file, training images first."""
        train, validation = (hash_files(files) for files in (self.content.train, self.content.validation))
        digest = digest_of_hashes(train, validation, self.content.size)
        return PictureIndex(np.concatenate([train, validation]), (*self.content.size, 3), digest)

    def open_rows(self) -> EncodedSplits:
        count = len(self.content.train)
        train = self._rows(self.content.train, "train", self.index.hashes[:count])
        return EncodedSplits(train, self._rows(self.content.validation, "test", self.index.hashes[count:]), 1)

    def _rows(self, files: Sequence[Path], split: Split, hashes: Hashes) -> FileRows:
        entries = tuple(Labelled(path, 0, split) for path in files)
        return FileRows(entries, hashes, np.zeros(len(files), np.int64), (*self.content.size, 3), self._decode)

    def _decode(self, encoded: bytes, entry: Labelled) -> Pixels:
        return crop_face(encoded, entry.path, self.content.size)


def source(folder: Path, options: Options = AS_THEY_ARE) -> Source | None:
    """Return the folder's faces, at the size in the options if one is set, or None unless both list and images exist.

    Raises DatasetError for the first malformed line of the list.
    """
    list_path = folder / PARTITIONS
    pictures = folder / PICTURES
    if not (list_path.is_file() and pictures.is_dir()):
        return None
    names = read_partitions(list_path, pictures)
    train = tuple(pictures / name for name in names["train"])
    validation = tuple(pictures / name for name in names["validation"])
    content = CelebaContent(train, validation, options.size or SIZE)
    found = Source(
        RULE,
        (list_path, *train, *validation),
        lambda: content,
        lambda: CelebaFiles(content, found.stamp),
        tables=1,
    )
    return found


def read_partitions(list_path: Path, pictures: Path) -> dict[str, list[str]]:
    """Return the image names of each split, in list order. All of these images exist in the image folder."""
    try:
        lines = list_path.read_text(encoding="utf-8").splitlines()
        existing_names = {entry.name for entry in os.scandir(pictures)}
    except OSError as error:
        raise unreadable(error.filename, error) from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{list_path} is not text in UTF-8: {error}") from None
    names: dict[str, list[str]] = {split: [] for split in SPLITS.values()}
    earlier_names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, *partition = line.split()
        split = SPLITS.get(" ".join(partition))
        where = f"{list_path}, line {number}"
        if split is None:
            allowed = ", ".join(f"{digit} ({split_name})" for digit, split_name in SPLITS.items())
            raise DatasetError(f"{where} is {line!r}; expected an image's name and one of {allowed}")
        if name in earlier_names:
            raise DatasetError(f"{where} names {name} again; list each image once")
        # Images of the test split are not read, so they may be missing.
        if name not in existing_names and split != "test":
            raise DatasetError(f"{where} names {name}, but there is no file {pictures / name}")
        earlier_names.add(name)
        names[split].append(name)
    for split in ("train", "validation"):
        if not names[split]:
            raise DatasetError(f"{list_path} names no image of the {split} split")
    return names


def decode_face(path: Path, size: tuple[int, int]) -> Pixels:
    """Decode the face (h, w, 3) in one image."""
    return crop_face(file_bytes(path), path, size)


def crop_face(encoded: bytes, path: Path, size: tuple[int, int]) -> Pixels:
    """Decode an image and return its face (h, w, 3). `path` is named in errors."""
    try:
        picture = pixels(encoded, channels=3)
    except PictureError as error:
        raise DatasetError(f"{path} {error}") from None
    if picture.shape[:2] != (HEIGHT, WIDTH):
        high, wide = picture.shape[:2]
        raise DatasetError(f"{path} is {high} x {wide}; CelebA's aligned images are {HEIGHT} x {WIDTH}")
    cut = np.ascontiguousarray(picture[TOP : TOP + SIDE, LEFT : LEFT + SIDE])
    resized_face: Pixels = as_shape(cut[None], (*size, 3))[0]
    return resized_face
