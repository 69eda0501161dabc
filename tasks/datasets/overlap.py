"""Which training images of two data sets are the same image, or were made of the same image."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Images, Pixels
from tasks.datasets.mixtures import Rows, groups_of

Digests = NDArray[np.uint8]  # (n, 32): a SHA-256 in each row


def overlap(first: Images, first_rows: Rows, second: Images, second_rows: Rows) -> list[tuple[int, int]]:
    """The images of `first` that are in `second` too: the row of each, and the first of the other rows that holds it.

    Two are the same where the content or the origin of the one is the content or the origin of the other: shape and
    every pixel, no less. In the order of `first_rows`, each of them once at most, however often `second` repeats it.

    Picture files that are decoded into a shape (`folder:scans#64x64`) have no origin: they are found where both data
    sets have them in one shape, which is what a model is trained on.
    """
    row_of: dict[bytes, int] = {}
    for row, known_as in zip(second_rows.tolist(), identities(second, second_rows), strict=True):
        for digest in known_as:
            row_of.setdefault(digest, row)
    shared = []
    for row, known_as in zip(first_rows.tolist(), identities(first, first_rows), strict=True):
        others = [row_of[digest] for digest in known_as if digest in row_of]
        if others:
            shared.append((row, min(others)))
    return shared


def find_repeats(images: Images, rows: Rows) -> list[tuple[int, int]]:
    """The images that are the same as an earlier one of another group: the row of each, and the first such row."""
    groups = dict(zip(rows.tolist(), groups_of(images, rows).tolist(), strict=True))
    rows_of: dict[bytes, list[int]] = {}
    found = []
    for row, known_as in zip(rows.tolist(), identities(images, rows), strict=True):
        others = [other for digest in known_as for other in rows_of.get(digest, []) if groups[other] != groups[row]]
        if others:
            found.append((row, min(others)))
        for digest in known_as:
            there = rows_of.setdefault(digest, [])
            if len(there) < 2 and all(groups[other] != groups[row] for other in there):  # of two groups, one is another
                there.append(row)
    return found


def identities(images: Images, rows: Rows) -> list[tuple[bytes, ...]]:
    """The digests that identify each training image: that of its content and, where it has one, its origin's."""
    shown = [digest.tobytes() for digest in digests(images, rows)]
    if images.train_origins is None:
        return [(content,) for content in shown]
    made_of = [origin.tobytes() for origin in images.train_origins[rows]]
    return list(zip(shown, made_of, strict=True))


def digests(images: Images, rows: Rows) -> Digests:
    """The SHA-256 of each of these training images' content, (n, 32): of its shape and its pixels."""
    return contents(images.train_images, rows)


def origins(images: Images) -> Digests:
    """The digest of what each training image was made of, (n, 32): the image's own where it was made of no other."""
    return contents(images.train_images) if images.train_origins is None else images.train_origins


def contents(pixels: Pixels, rows: Rows | None = None) -> Digests:
    """The SHA-256 of each image (n, h, w, c), or of those in some rows: height, width and channels, and its bytes.

    600,000 colour images of 32x32 take four seconds of one core.
    """
    chosen = range(len(pixels)) if rows is None else rows
    shape = hashlib.sha256(np.array(pixels.shape[1:], "<u4").tobytes())
    out = bytearray()
    for row in chosen:
        sha = shape.copy()
        sha.update(np.ascontiguousarray(pixels[row]).data)
        out += sha.digest()
    return np.frombuffer(bytes(out), np.uint8).reshape(-1, 32)
