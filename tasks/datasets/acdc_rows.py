"""ACDC's slices read by rows, since those of one field strength take more than half a gigabyte.

The number of slices comes from the headers of the volumes. Slices of two patients are copies if their volumes are equal
files, since comparing pixels would require decoding all volumes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.datasets import acdc
from tasks.datasets.acdc import (
    GROUPS,
    SIDE,
    AcdcContent,
    Patient,
    Tesla,
    digest_of_patients,
    hash_patients,
    open_volume,
    write_slices,
)
from tasks.datasets.dataset import file_sha256
from tasks.datasets.images import Labels, Pixels
from tasks.datasets.labelled import changed
from tasks.datasets.picture_index import Indexed, PictureIndex
from tasks.datasets.pictures import THREADS, map_in_threads
from tasks.datasets.sequential_rows import SequentialRows
from tasks.datasets.source import EncodedSplits, Extent, Hashes, Source, digest_of

INDEX_RULE = "index of acdc 1"
SHAPE = (SIDE, SIDE, 1)


@dataclass(frozen=True)
class Volume:
    """A patient, the number of slices and frames of its volume, and the SHA-256 of its file in hexadecimal digits."""

    patient: Patient
    slices: int
    frames: int
    sha256: str = ""

    @property
    def count(self) -> int:
        """The number of images."""
        return self.slices * self.frames

    def decode(self) -> Pixels:
        """Return all images. Raises DatasetError if the file cannot be read, or has changed."""
        path = self.patient.path
        if file_sha256(path) != self.sha256:
            raise changed(path)
        out = np.empty((self.count, *SHAPE), np.uint8)
        write_slices(self.patient, open_volume(path), out)
        return out


@dataclass(frozen=True, eq=False)
class AcdcFiles(Indexed):
    """The patients of a content, whose volumes are read on demand. `stamp` returns the state of the files."""

    content: AcdcContent
    stamp: Callable[[], str]

    @cached_property
    def volumes(self) -> tuple[list[Volume], list[Volume]]:
        """The volumes of the training patients and of the testing patients, without their hashes."""
        training, testing = (
            [_open_header(patient) for patient in patients]
            for patients in (self.content.training, self.content.testing)
        )
        return training, testing

    @cached_property
    def counts(self) -> tuple[int, int]:
        """The numbers of training and test images."""
        training, testing = self.volumes
        test = sum(volume.count for volume in testing) if testing else len(training)
        return sum(volume.count for volume in training), test

    def extent(self) -> Extent:
        return Extent(sum(self.counts), SHAPE)

    def _index_size(self) -> int:
        return len(self.content.training) + len(self.content.testing)

    def _index_key(self) -> str:
        return digest_of(INDEX_RULE, [self.stamp().encode()])

    def _read_index(self) -> PictureIndex:
        """Hash each volume, of training patients first."""
        hashes = [hash_patients(patients) for patients in (self.content.training, self.content.testing)]
        rows = np.frombuffer(bytes.fromhex("".join(hashes[0] + hashes[1])), np.uint8).reshape(-1, 32)
        return PictureIndex(rows, SHAPE, digest_of_patients(self.content, *hashes))

    def open_rows(self) -> EncodedSplits:
        volumes = []
        for volume, sha256 in zip([*self.volumes[0], *self.volumes[1]], self.index.hashes, strict=True):
            volumes.append(Volume(volume.patient, volume.slices, volume.frames, sha256.tobytes().hex()))
        training = volumes[: len(self.content.training)]
        testing = volumes[len(self.content.training) :]
        hashes, labels, groups = _describe_slices(training)
        train = SequentialRows(hashes, labels, SHAPE, lambda: _decode_all(training))
        if testing:
            test_hashes, test_labels, _ = _describe_slices(testing)
            test = SequentialRows(test_hashes, test_labels, SHAPE, lambda: _decode_all(testing))
        else:
            begins = np.cumsum([0, *(volume.count for volume in training)])[:-1]
            rows = begins + [volume.slices // 2 for volume in training]
            test = SequentialRows(hashes[rows], labels[rows], SHAPE, lambda: _decode_centres(training))
        return EncodedSplits(train, test, len(GROUPS), GROUPS, groups)


def source(folder: Path, tesla: Tesla) -> Source | None:
    """Return the folder's patients, as `tasks.datasets.acdc.source`, for reading whole or by rows."""
    whole = acdc.source(folder, tesla)
    if whole is None:
        return None

    @cache
    def by_rows() -> AcdcFiles:
        content = whole.read()
        assert isinstance(content, AcdcContent)
        return AcdcFiles(content, whole.stamp)

    return replace(whole, by_rows=by_rows)


def _open_header(patient: Patient) -> Volume:
    slices, frames = open_volume(patient.path).shape[2:]
    return Volume(patient, int(slices), int(frames))


def _describe_slices(volumes: Sequence[Volume]) -> tuple[Hashes, Labels, NDArray[np.int64]]:
    """Return the hash, the group index and the patient number of each image."""
    hashes = bytearray()
    for volume in volumes:
        for number in range(volume.count):
            hashes += hashlib.sha256(f"{volume.sha256} {number}".encode()).digest()
    counts = [volume.count for volume in volumes]
    labels = np.repeat(np.array([volume.patient.label for volume in volumes], np.int64), counts)
    numbers = np.repeat(np.array([volume.patient.number for volume in volumes], np.int64), counts)
    return np.frombuffer(bytes(hashes), np.uint8).reshape(-1, 32), labels, numbers


def _decode_all(volumes: Sequence[Volume]) -> Iterator[Pixels]:
    for first in range(0, len(volumes), THREADS):  # few, since a volume takes 120 MB while it is decoded
        yield from map_in_threads(Volume.decode, volumes[first : first + THREADS])


def _decode_centres(volumes: Sequence[Volume]) -> Iterator[Pixels]:
    """Yield the central slice of the first frame of each volume."""
    for volume, images in zip(volumes, _decode_all(volumes), strict=True):
        centre = volume.slices // 2
        yield images[centre : centre + 1]
