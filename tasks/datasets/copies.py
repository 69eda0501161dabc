"""Detect exact copies among training images, which every audit treats as one record with one coin in one split.

Two images are copies if they have the same pixels in training or come from the same original. Their labels may differ.
Images of a data set that is not in memory (`tasks.datasets.large_images`) are copies if their encoded bytes are equal,
since comparing pixels would require decoding all of them.

Without this rule, copies hide memorisation: a model trained without a record would still be trained on its copies.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Images, PictureSet
from tasks.datasets.large_images import LargeImages
from tasks.datasets.picture_rows import Altered, Selected, Sliceable, slices, whole_split

Rows = NDArray[np.int64]
Digests = NDArray[np.uint8]  # (n, 32): one SHA-256 per row

_first_copies: WeakKeyDictionary[PictureSet, Rows] = WeakKeyDictionary()
_groups: WeakKeyDictionary[PictureSet, Rows] = WeakKeyDictionary()


@dataclass(frozen=True)
class CopyCount:
    """The number of groups of exact copies, of images in these groups, and of records.

    Copies count as one record. All numbers are 0 if there are no copies. `things` is the word for the items.
    """

    groups: int = 0
    images: int = 0
    records: int = 0
    things: str = "images"


def groups_of(images: PictureSet, rows: Rows) -> Rows:
    """Return the group of each of these training images, for example the images of one patient. Copies share a group.

    A group's number is the smallest of its `train_groups`, or without these, the row of the first copy.
    """
    if images not in _groups:
        _groups[images] = _join_groups(images)
    return _groups[images][rows]


def _join_groups(images: PictureSet) -> Rows:
    """Return the group of every training image (n,). A group connects images that share a group, content or origin."""
    count = len(images.train)
    all_rows = np.arange(count)
    if images.train_groups is None:
        given_groups = all_rows
    else:
        given_groups = images.train_groups
    of_content = first_copies(images)
    if images.train_origins is None:
        of_origin = all_rows
    else:
        of_origin = first_rows(images.train_origins)
    if np.array_equal(of_content, all_rows) and np.array_equal(of_origin, all_rows):
        return given_groups
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, of_group, group = np.unique(given_groups, return_index=True, return_inverse=True)
    linked_rows = np.concatenate([of_content, of_origin, of_group[group]])
    links = coo_array((np.ones(len(linked_rows), bool), (np.tile(all_rows, 3), linked_rows)), shape=(count, count))
    _, component = connected_components(links, directed=False)
    smallest: Rows = np.full(component.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, component, given_groups)
    groups: Rows = smallest[component]
    return groups


def first_copies(images: PictureSet) -> Rows:
    """Return, for each training image (n,), the first one with the same pixels, or bytes if it is not in memory."""
    if images not in _first_copies:
        if isinstance(images, Altered):  # only images without copies are altered
            _first_copies[images] = first_copies(images.original)
        elif is_outline(images):
            _first_copies[images] = np.arange(len(images.train))
        else:
            _first_copies[images] = first_rows(train_contents(images))
    return _first_copies[images]


def train_contents(images: PictureSet, rows: Rows | None = None) -> Digests:
    """Return a digest of each training image (n, 32), or of some: of its pixels, or its bytes if not in memory."""
    if isinstance(images, LargeImages):
        return images.train_hashes if rows is None else images.train_hashes[rows]
    return contents(whole_split(images.train) if rows is None else Selected(images.train, rows))


def test_contents(images: PictureSet) -> Digests:
    """Return a digest of each test image (n, 32), as in `train_contents`."""
    if isinstance(images, LargeImages):
        return images.test_hashes
    return contents(whole_split(images.test))


def is_outline(images: PictureSet) -> bool:
    """Return whether the images are blank because the data set is only planned and priced, without its files."""
    return isinstance(images, Images) and images.train_images.strides[0] == 0


def first_rows(digests: Digests) -> Rows:
    """Return, for each row (n,), the first row with the same digest."""
    digest_values = np.ascontiguousarray(digests).view(np.dtype((np.void, digests.shape[1])))[:, 0]
    _, first, inverse = np.unique(digest_values, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int64)


def distinct_rows(images: PictureSet, rows: Rows) -> Rows:
    """Return one row per record: the first row of each set of exact copies among these rows, in order."""
    _, places = np.unique(first_copies(images)[rows], return_index=True)
    return rows[np.sort(places)]


def distinct_numbers(numbers: Rows) -> Rows:
    """Return the distinct numbers, ascending. Ascending distinct numbers, as of sets without copies, are not sorted."""
    if (numbers[1:] > numbers[:-1]).all():
        return numbers
    return np.unique(numbers)


def count_copies(images: PictureSet, rows: Rows) -> CopyCount:
    """Count the groups of exact copies among these training images."""
    return count_groups(first_copies(images)[rows])


def count_groups(groups: Iterable[Hashable], things: str = "images") -> CopyCount:
    """Count the groups with several records. Groups may be any hashable values (n,), such as texts."""
    # A text array would use the memory of its longest text for every element.
    sizes = Counter(groups.tolist() if isinstance(groups, np.ndarray) else groups)
    repeated = [size for size in sizes.values() if size > 1]
    if not repeated:
        return CopyCount()
    return CopyCount(len(repeated), sum(repeated), len(sizes), things)


def contents(images: Sliceable) -> Digests:
    """Return the SHA-256 (n, 32) of each image (n, h, w, c).

    The hash covers height, width, channels and bytes. It takes four seconds on one core for 600,000 colour images of
    32x32.
    """
    shape = hashlib.sha256(np.array(images.shape[1:], "<u4").tobytes())
    out = bytearray()
    for _, part in slices(images):
        for image in part:
            sha = shape.copy()
            sha.update(np.ascontiguousarray(image).data)
            out += sha.digest()
    return np.frombuffer(bytes(out), np.uint8).reshape(-1, 32)
