"""The images or records under audit, shown only if the page may show them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
LONGEST = 600  # characters shown per record field
KIND = "records:"  # prefix of data set names
FEW = 20  # records shown per set
SETS = 10  # sets shown
PRINTED = 3  # records printed per group
OPENING = 6  # images at the top of the page
TITLE = "Records"
CAPTION = f"The first {FEW} records of each set in question."


@dataclass(frozen=True)
class Picture:
    """An image from the data at its own resolution, enlarged on the page without smoothing.

    `group` is the heading above consecutive images.
    """

    png: bytes
    title: str
    alt: str
    group: str = ""


@dataclass(frozen=True)
class Record:
    """A record from the data as text: its field names and values. `group` is a heading, as for an image."""

    title: str
    fields: tuple[tuple[str, str], ...]
    group: str = ""


@dataclass(frozen=True)
class Strip:
    """A labelled row of images that a model returned for one item."""

    label: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Item:
    """The images in a question, and one strip of images per answer. `group` is a heading, as for an image."""

    title: str
    pictures: tuple[Picture, ...]
    strips: tuple[Strip, ...]
    group: str = ""


@dataclass(frozen=True)
class Gallery:
    """The images, items or records of a run. If `shown` is false, a note replaces them.

    `opening_label` describes the first images, which are repeated at the top of the page. The default is the heading of
    their group.
    """

    caption: str
    shown: bool
    note: str = ""
    pictures: tuple[Picture, ...] = ()
    records: tuple[Record, ...] = ()
    items: tuple[Item, ...] = ()
    title: str = "Images"
    opening_label: str = ""

    @property
    def opening_strip(self) -> Strip | None:
        """The first images, for the top of the page. Returns None if the page shows no images.

        They belong to one group, whose heading is the label unless the gallery has its own `opening_label`.
        """
        entries: Sequence[Picture | Item] = self.pictures or self.items
        if not entries:
            return None
        pictures = []
        for entry in entries[:OPENING]:
            if entry.group == entries[0].group:
                pictures.append(entry.pictures[0] if isinstance(entry, Item) else entry)
        return Strip(self.opening_label or entries[0].group, tuple(pictures))

    @property
    def printed(self) -> int:
        """Number of records to print: the first few in each group."""
        group_sizes = Counter(record.group for record in self.records)
        return sum(min(PRINTED, count) for count in group_sizes.values())


def error_reason(run: Run, error: Exception) -> str:
    """Return the error message. Returns an empty string if the message might quote one of the run's private fields."""
    if run.withholds:
        return ""
    return f": {' '.join(str(error).split())}"


def text_records(records: Records, group: str = "") -> Iterator[Record]:
    """Yield each record, titled by id, with all other fields as text. Long values are truncated."""
    for record in records.as_dicts():
        fields = []
        for name, value in record.items():
            if name != ID:
                fields.append((name, format_field(value)))
        yield Record(record[ID], tuple(fields), group)


def format_field(value: Any) -> str:
    """Format a field value: text is kept, other values become JSON. Long values are truncated."""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} ... ({len(text):,} characters)"


def encode_png(image: Pixels) -> bytes:
    """Encode the image as PNG at its own resolution."""
    from PIL import Image

    buffer = BytesIO()
    Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def describe_withheld(subject: str, reason: str = "are your own data", option: str = "--show-images") -> str:
    """State that the page leaves out `subject`, such as a data set's images, and how to include it."""
    return f"{subject} {reason}. {option} adds them to the page."


def list_groups(groups: Mapping[str, Iterable[Any]]) -> str:
    """List the items of each group after its heading: `Most memorised: 3, 8. Least memorised: 5.`"""
    return " ".join(f"{heading}: {', '.join(map(str, items))}." for heading, items in groups.items())


def record_gallery(run: Run, show_images: bool) -> Gallery | None:
    """Return the first records of each set. Returns None if the audit has no probes or its data are not records.

    Records belong to the user. Without `show_images`, a note replaces them.
    """
    names = [data.name for data in configuration.data_sets(run) if data.name.startswith(KIND)]
    registered = audits.find_installed(run.audit)
    if registered is None:
        handout = None
    else:
        handout = registered.audit.handout
    if handout is None or not names:
        return None
    if not show_images:
        return Gallery(CAPTION, False, describe_withheld(f"Records of {', '.join(names)}"), title=TITLE)
    if run.private_config is None:
        changed = "The records cannot be shown: the audit has changed since the run was created."
        return Gallery(CAPTION, False, changed, title=TITLE)
    try:
        sets = [
            (name, records)
            for name, records in islice(handout.probes(run.private_config), SETS)
            if isinstance(records, Records)
        ]
        shown_records = [
            record
            for name, records in sets
            for record in text_records(records.rows(np.arange(min(FEW, len(records)))), name)
        ]
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(CAPTION, False, f"The records cannot be shown{error_reason(run, error)}.", title=TITLE)
    if shown_records:
        return Gallery(CAPTION, bool(shown_records), records=tuple(shown_records), title=TITLE)
    return None
