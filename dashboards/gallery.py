"""What a run's audit is about, as far as it may be shown: images, and records as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboards import configuration
from dashboards.run import Run
from orchestrator.spec import audits
from tasks.datasets.records import ID, Records

Pixels = NDArray[np.uint8]  # (height, width, channels)
LONGEST = 600  # characters of a record's field
KIND = "records:"  # of a data set's name
FEW, SETS = 20, 10  # records of a set, and sets, that are shown
PRINTED = 3  # records of a group, in print
TITLE = "Records"
CAPTION = f"What the models were asked about: the first {FEW} records of each set."


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

    @property
    def printed(self) -> int:
        """The number of records that are printed: the first of each group."""
        return sum(min(PRINTED, count) for count in Counter(record.group for record in self.records).values())


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


def record_gallery(run: Run, show_images: bool) -> Gallery | None:
    """The first records of each set; None where the audit has no probes, or its data are no records.

    Records are the user's own: without `show_images` there is a note in their place.
    """
    names = [data.name for data in configuration.data_sets(run) if data.name.startswith(KIND)]
    registered = audits.find_installed(run.audit)
    handout = None if registered is None else registered.audit.handout
    if handout is None or not names:
        return None
    if not show_images:
        yours = f"Records of {', '.join(names)} are yours and are not shown unless asked for with --show-images."
        return Gallery(CAPTION, False, yours, title=TITLE)
    if run.private_config is None:
        changed = "The records cannot be shown: the audit has changed since the run was made."
        return Gallery(CAPTION, False, changed, title=TITLE)
    try:
        sets = [
            (name, held) for name, held in islice(handout.probes(run.private_config), SETS) if isinstance(held, Records)
        ]
        found = [each for name, held in sets for each in text_records(held.rows(np.arange(min(FEW, len(held)))), name)]
    except (ValueError, OSError, IndexError) as error:  # DatasetError among them
        return Gallery(CAPTION, False, f"The records cannot be shown{error_reason(run, error)}.", title=TITLE)
    return Gallery(CAPTION, bool(found), records=tuple(found), title=TITLE) if found else None
