"""Data sets of labelled images that are listed when they are first read, such as the rows of shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tasks.datasets.labelled import Labelled, LabelledContent, LabelledFiles, Reader, read_labelled
from tasks.datasets.options import Options
from tasks.datasets.source import Source


@dataclass(frozen=True, eq=False)
class Listing:
    """The images of both splits, the class names, and notes. `read` returns an encoded image; threads call it."""

    entries: tuple[Labelled, ...]
    names: tuple[str, ...]
    read: Reader
    notes: tuple[str, ...] = ()


def listing_source(
    rule: str,
    files: tuple[Path, ...],
    make_listing: Callable[[], Listing],
    options: Options,
    notes: tuple[str, ...] = (),
) -> Source:
    """Return the source of images in these files. `make_listing` is called once, when the data set is read."""
    listed = cache(make_listing)

    def read() -> LabelledContent:
        listing = listed()
        content = read_labelled(listing.entries, listing.names, options, listing.read)
        return replace(content, notes=(*content.notes, *listing.notes))

    @cache
    def by_rows() -> LabelledFiles:
        listing = listed()
        return LabelledFiles(listing.entries, listing.names, options, listing.read, source.stamp, listing.notes)

    source = Source(rule, files, read, by_rows, notes)
    return source
