"""The size of the image cache that a run needs, known before work begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.datasets import catalog
from tasks.datasets.cache_folder import SIZE_VARIABLE, cache_folder, gigabytes, measure_room
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.large_images import LargeImages
from tasks.datasets.picture_cache import file_size
from tasks.datasets.places import find


@dataclass(frozen=True)
class CachedImages:
    """A file of images in the cache folder: what it contains, its path and its size in bytes.

    If `memory_share` is above 0, it is written only if the images exceed this share of the memory of a job's device.
    """

    content: str
    path: Path
    size: int
    memory_share: float = 0.0


def files_of(datasets: Iterable[Dataset]) -> Iterator[CachedImages]:
    """Yield the file of each pinned data set whose images are read by rows. No image is read."""
    for dataset in datasets:
        if catalog.large_content(find(dataset.name)[1]) is None:
            continue
        images = catalog.load(dataset)
        assert isinstance(images, LargeImages)
        yield CachedImages(dataset.named().name, images.cache.path, file_size(images))


def cache_need(files: Iterable[CachedImages], memory: int) -> tuple[list[str], int]:
    """Return the contents of the files that are still to be written, and their size in bytes.

    `memory` is the memory of a job's device, in bytes.
    """
    by_path = {}
    for file in files:
        if not file.path.is_file() and file.size > file.memory_share * memory:
            by_path[file.path] = file
    return [file.content for file in by_path.values()], sum(file.size for file in by_path.values())


def cache_notes(files: Iterable[CachedImages], memory: int) -> list[str]:
    """Return a line on the cache that these files need, or on why it has no room for them."""
    names, needed = cache_need(files, memory)
    if not needed:
        return []
    room = measure_room()
    try:
        room.check(needed)
    except DatasetError as error:
        return [str(error)]
    allowed = "" if room.allowed is None else f", of {gigabytes(room.allowed)} that {SIZE_VARIABLE} allows"
    return [
        f"image cache: {gigabytes(needed)} for {', '.join(names)} in {cache_folder()}{allowed}; the disk has "
        f"{gigabytes(room.free)} free"
    ]


def check_cache(files: Iterable[CachedImages], memory: int) -> None:
    """Raise DatasetError, before work begins, if the cache of this machine has no room for these files."""
    _, needed = cache_need(files, memory)
    if needed:
        measure_room().check(needed)
