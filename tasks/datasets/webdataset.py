"""Read encoded images from tar archives in the layout of WebDataset: `webdataset:PATH`.

PATH is a folder with .tar files (shards), one such file, or a pattern in braces: `shards-{000000..000009}.tar`. A
sample is a group of consecutive members with one key, which is their name up to the first dot of its last component:
KEY.jpg and KEY.cls. The label is the text in KEY.cls or, if there is no such member, the field `label` of KEY.json. The
option `#label=NAME` names another member (KEY.NAME) or another field, and `#image=NAME` one of several images. Other
members are not read. The format defines no class names, so classes are named after their labels.

The names of shards or of their folders define the splits (`tasks.datasets.shards`). If they do not, the first, sixth,
eleventh, ... images of each class form the test split.

Planning reads the headers and the labels once (`read_index`), and images are read from their positions.

Format: github.com/webdataset/webdataset, "The WebDataset Format".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.classes import LabelError, name_label, number_classes
from tasks.datasets.dataset import DatasetError, unreadable
from tasks.datasets.labelled import Labelled, check_classes
from tasks.datasets.listing import Listing, listing_source
from tasks.datasets.options import Options
from tasks.datasets.pictures import SUFFIXES, map_in_threads
from tasks.datasets.shards import Shards, find_shards
from tasks.datasets.source import Source
from tasks.datasets.splits import Split, spread, unread_note
from tasks.datasets.tar_files import Member, TarError, read_at, read_members, show_name

RULE = "webdataset 1"
TEXT_LABEL = "cls"
JSON_LABEL = "json"
FIELD = "label"  # of KEY.json
MOST_LABEL = 1 << 20  # bytes of a member that holds a label
SHOWN = 5  # kinds of members in a note
NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
SCHEMA = pa.schema(
    [
        ("member", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("label", pa.string()),
    ]
)
DIGEST_BYTES = 32


def source(path: Path, options: Options) -> Source | None:
    """Return the images in these shards, or None if there are none. Raises DatasetError if the splits are unclear."""
    shards = find_shards(path)
    if shards is None:
        return None
    return listing_source(RULE, shards.paths, lambda: list_samples(shards, options), options)


@dataclass(frozen=True, eq=False)
class Positions:
    """The position of each image in its shard: offset and size, by row."""

    of_shards: Mapping[Path, tuple[NDArray[np.int64], NDArray[np.int64]]]

    def read(self, entry: Labelled) -> bytes:
        """Return an encoded image. Raises DatasetError if it cannot be read."""
        assert entry.row is not None
        offsets, sizes = self.of_shards[entry.path]
        try:
            return read_at(entry.path, int(offsets[entry.row]), int(sizes[entry.row]))
        except OSError as error:
            raise unreadable(entry.path, error) from None


def list_samples(shards: Shards, options: Options) -> Listing:
    """List the images of all shards. Raises DatasetError, naming shard and member, if a sample is invalid."""
    indexes = dict(zip(shards.paths, open_index(shards.paths, options), strict=True))
    labels: list[str] = []
    rows: list[tuple[Path, int, Split | None]] = []
    unread = sum(index.table.num_rows for index in indexes.values())
    for split, paths in shards.by_split():
        for path in paths:
            count = indexes[path].table.num_rows
            labels += indexes[path].table["label"].to_pylist()
            rows += ((path, row, split) for row in range(count))
            unread -= count
    try:
        classes = number_classes(labels)
    except LabelError as error:
        raise DatasetError(f"{shards.where} {error}") from None
    numbers = classes.labels.tolist()
    members = {path: index.table["member"].to_pylist() for path, index in indexes.items()}
    entries = []
    for (path, row, split), label, spread_split in zip(rows, numbers, spread(numbers), strict=True):
        entries.append(
            Labelled(path, label, split or spread_split, row, is_drawn=split is None, member=members[path][row])
        )
    check_classes(entries, classes.names, Path(shards.where))
    positions = {}
    for path, index in indexes.items():
        positions[path] = (index.table["offset"].to_numpy(), index.table["size"].to_numpy())
    notes = [*([unread_note(unread)] if unread else []), *_note_unread(indexes.values())]
    return Listing(tuple(entries), classes.names, Positions(positions).read, tuple(notes))


@dataclass(frozen=True, eq=False)
class Index:
    """The images of a shard: a table with the columns of SCHEMA, and how many other members have each extension."""

    table: pa.Table
    unread: Mapping[str, int]


def _note_unread(indexes: Iterable[Index]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for index in indexes:
        counts.update(index.unread)
    if counts:
        kinds = ", ".join(f"{count:,} .{show_name(extension)}" for extension, count in counts.most_common(SHOWN))
        yield f"these members of its shards are not read: {kinds}{', ...' if len(counts) > SHOWN else ''}"


def open_index(paths: Sequence[Path], options: Options) -> list[Index]:
    """Return the index of each shard, from the cache folder if the shards are unchanged. Reads no images."""
    states = []
    for path in paths:
        try:
            state = path.stat()
        except OSError as error:
            raise unreadable(path, error) from None
        states.append((str(path), state.st_size, state.st_mtime_ns))
    text = json.dumps([RULE, options.image, options.label, states])
    file = cache_folder() / f"{hashlib.sha256(text.encode()).hexdigest()}.webdataset"
    indexes = _load_indexes(file)
    if indexes is None:
        indexes = list(map_in_threads(lambda path: read_index(path, options), paths))
        with suppress(OSError):  # the cache is optional
            _write_indexes(file, indexes)
    return indexes


def _load_indexes(file: Path) -> list[Index] | None:
    """Load the indexes of all shards. Returns None if the file is missing or damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(content[DIGEST_BYTES:]).digest() != content[:DIGEST_BYTES]:
        return None
    with pa.ipc.open_stream(pa.py_buffer(content[DIGEST_BYTES:])) as stream:
        unread = json.loads(stream.schema.metadata[b"unread"])
        tables = [pa.Table.from_batches([batch.replace_schema_metadata(None)]) for batch in stream]
    return [Index(table, counts) for table, counts in zip(tables, unread, strict=True)]


def _write_indexes(file: Path, indexes: Sequence[Index]) -> None:
    """Write the indexes atomically, after the SHA-256 of their bytes."""
    sink = pa.BufferOutputStream()
    metadata = {"unread": json.dumps([index.unread for index in indexes])}
    with pa.ipc.new_stream(sink, SCHEMA.with_metadata(metadata)) as stream:
        for index in indexes:
            columns = [column.combine_chunks() for column in index.table.columns]
            stream.write_batch(pa.record_batch(columns, schema=SCHEMA.with_metadata(metadata)))
    content = sink.getvalue().to_pybytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.write_bytes(hashlib.sha256(content).digest() + content)
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)


def read_index(path: Path, options: Options) -> Index:
    """Read a shard's headers and labels. Raises DatasetError, naming the member, if a sample is invalid."""
    rows: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    unread: Counter[str] = Counter()
    try:
        with path.open("rb") as file:
            for sample in _samples(file):
                image = sample.choose_image(options.image)
                label = sample.choose_label(options.label)
                read_fields = (image, label)
                unread.update(field for field in sample.fields if field not in read_fields)
                member = sample.fields[image]
                text = sample.read_label(file, label, options.label)
                for name, value in zip(SCHEMA.names, (member.name, member.offset, member.size, text), strict=True):
                    rows[name].append(value)
    except TarError as error:
        raise DatasetError(f"{path} {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if not rows["member"]:
        raise DatasetError(f"{path} has no samples")
    return Index(pa.table(rows, schema=SCHEMA), unread)


@dataclass(frozen=True, slots=True)
class Sample:
    """The members with one key, by what follows the key in their names, in lower case."""

    key: str
    fields: dict[str, Member]

    def choose_image(self, name: str | None) -> str:
        """Return the field that holds the image. Raises TarError if there is none, or more than one."""
        if name is not None:
            images = [field for field in self.fields if field == name.casefold()]
        else:
            images = [field for field in self.fields if f".{field.rpartition('.')[2]}" in SUFFIXES]
        if len(images) == 1:
            return images[0]
        if not images:
            expected = f".{name}" if name is not None else f"an image ({', '.join(SUFFIXES)})"
            raise TarError(f"has the sample {show_name(self.key)} with {self._describe()}; expected {expected}")
        raise TarError(
            f"has the sample {show_name(self.key)} with several images; choose one, such as "
            f"#image={show_name(images[0])}"
        )

    def choose_label(self, name: str | None) -> str:
        """Return the field that holds the label: KEY.NAME, or KEY.json with a field NAME. Raises TarError."""
        text_field = TEXT_LABEL if name is None else name.casefold()
        for field in (text_field, JSON_LABEL):
            if field in self.fields:
                return field
        expected = f".{name or TEXT_LABEL}, or .{JSON_LABEL} with the field {name or FIELD}"
        raise TarError(f"has the sample {show_name(self.key)} with {self._describe()}; expected {expected}")

    def read_label(self, file: BinaryIO, field: str, name: str | None) -> str:
        """Return the label as text. Raises TarError if it is missing or cannot be read."""
        member = self.fields[field]
        where = f"has the member {show_name(member.name)}"
        if member.size > MOST_LABEL:
            raise TarError(f"{where} of {member.size:,} bytes; a label has at most {MOST_LABEL:,}")
        file.seek(member.offset)
        try:
            text = file.read(member.size).decode()
        except UnicodeDecodeError:
            raise TarError(f"{where}, which is not text in UTF-8") from None
        if field == JSON_LABEL and name != JSON_LABEL:
            label = _read_json(where, text, name or FIELD)
        else:
            label = text.strip()
        if not label:
            raise TarError(f"{where} without a label")
        if not label.isprintable():
            raise TarError(f"{where} with the label {label!r:.80}; a label must be on one line")
        return label

    def _describe(self) -> str:
        return ", ".join(f".{show_name(field)}" for field in self.fields)


def _read_json(where: str, text: str, name: str) -> str:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise TarError(f"{where}, which is not JSON") from None
    if not isinstance(record, dict) or name not in record:
        raise TarError(f"{where} without the field {name}")
    try:
        return name_label(record[name], ())
    except LabelError as error:
        raise TarError(f"{where}: {name} {error}") from None


def _samples(file: BinaryIO) -> Iterator[Sample]:
    """Yield the samples of a shard. Raises TarError if a key occurs again after another key, or has a field twice."""
    keys: set[str] = set()
    sample: Sample | None = None
    for member in read_members(file):
        if any(part.startswith(".") for part in member.name.removeprefix("./").split("/")):
            continue  # hidden
        match = NAME.fullmatch(member.name)
        if match is None:
            raise TarError(f"has the member {show_name(member.name)}; names must be KEY.jpg, KEY.cls and the like")
        key, field = match[1], match[2].casefold()
        if sample is None or key != sample.key:
            if sample is not None:
                yield sample
            if key in keys:
                raise TarError(f"has the key {show_name(key)} again after others; members of a sample must be together")
            keys.add(key)
            sample = Sample(key, {})
        if field in sample.fields:
            raise TarError(f"has {show_name(member.name)} twice; keys must differ")
        sample.fields[field] = member
    if sample is not None:
        yield sample
