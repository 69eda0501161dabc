"""The size of the image cache that a run needs, known before work begins."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.datasets import catalog
from tasks.datasets.cache_folder import SIZE_VARIABLE, cache_folder, gigabytes, measure_room
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.picture_cache import file_size, path_of
from tasks.datasets.places import find


def cache_need(datasets: Iterable[Dataset]) -> tuple[list[str], int]:
    """Return the pinned data sets whose images are still to be written to the cache, and their size in bytes."""
    names = []
    needed = 0
    for dataset in datasets:
        if catalog.large_content(find(dataset.name)[1]) is None or path_of(dataset.digest).is_file():
            continue
        names.append(dataset.named().name)
        needed += file_size(catalog.load(dataset))
    return names, needed


def cache_notes(datasets: Iterable[Dataset]) -> list[str]:
    """Return a line on the cache that these data sets need, or on why it has no room for them."""
    names, needed = cache_need(datasets)
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


def check_cache(datasets: Iterable[Dataset]) -> None:
    """Raise DatasetError, before work begins, if the cache of this machine has no room for these data sets."""
    _, needed = cache_need(datasets)
    if needed:
        measure_room().check(needed)
