"""What a run's audit is about, as far as it may be shown: images, and records as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboards.run import Run
from tasks.datasets.records import ID, Records

Pixels = NDArray[np.uint8]  # (height, width, channels)
LONGEST = 600  # characters of a record's field


@dataclass(frozen=True)
class Picture:
    """An image of the data in its own resolution, to be enlarged without smoothing.

    `group` is the heading of the pictures it belongs to, which are consecutive.
    """

    png: bytes
    title: str
    alt: str
    group: str = ""


@dataclass(frozen=True)
class Record:
    """A record of the data as text: each field's name and what it holds; `group` is that of a picture."""

    title: str
    fields: tuple[tuple[str, str], ...]
    group: str = ""


@dataclass(frozen=True)
class Strip:
    """Pictures side by side that answer to something, and what they are."""

    label: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Item:
    """What was asked about, in pictures, beside strips of what was answered; `group` is that of a picture."""

    title: str
    pictures: tuple[Picture, ...]
    strips: tuple[Strip, ...]
    group: str = ""


@dataclass(frozen=True)
class Gallery:
    """A run's pictures, items or records, or, if `shown` is false, the note in their place."""

    caption: str
    shown: bool
    note: str = ""
    pictures: tuple[Picture, ...] = ()
    records: tuple[Record, ...] = ()
    items: tuple[Item, ...] = ()
    title: str = "Images"


def error_reason(run: Run, error: Exception) -> str:
    """The error's message; empty if the run has private fields, which it might quote."""
    return "" if run.withholds else f": {' '.join(str(error).split())}"


def text_records(records: Records, group: str = "") -> Iterator[Record]:
    """The records, each with all its fields but the id, which is the title; a long value is cut."""
    for each in records.as_dicts():
        fields = [(name, format_field(value)) for name, value in each.items() if name != ID]
        yield Record(each[ID], tuple(fields), group)


def format_field(value: Any) -> str:
    """What a field holds: text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def encode_png(image: Pixels) -> bytes:
    """The image as PNG in its own resolution."""
    from PIL import Image

    written = BytesIO()
    Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(written, "PNG", optimize=True)
    return written.getvalue()
