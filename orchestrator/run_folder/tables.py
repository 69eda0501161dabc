"""A run's tables: the results behind each root, concatenated, and also written as Parquet parts for other readers.

The parts have additional columns, which this module adds to those in the results.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator import rounding
from orchestrator.errors import Absent, StoreError
from orchestrator.spec.fields import text
from orchestrator.store import Store, atomic_write, entry, files, read_each
from orchestrator.store.atomic_write import file_lock
from orchestrator.store.durability import is_stamping
from orchestrator.store.regular_file import regular_bytes

# In the metadata of a part: the keys of its results, and their run (missing in earlier versions). A part is sealed with
# a digest of its bytes, as results are, because Parquet readers do not notice a flipped bit in its values.
KEYS = b"engram.keys"
RUN = b"engram.run"
DIGEST = b"engram.digest"
MAGIC = b"PAR1"
PART = 64  # maximum number of results per part
LOCK = ".lock"  # ignored by readers of the folder
STALE = 3600.0  # seconds after which an unfinished part counts as abandoned
RUN_COLUMN = "run"
SETTING = "setting"  # summary column that contains the varied fields as JSON
# Meanings of the columns of a summary, in the metadata of their Arrow fields.
MEANING = b"meaning"
MEANINGS: Mapping[str, str] = {
    RUN_COLUMN: "the name of the run",
    "metric": "what the estimate measures",
    SETTING: "the varied fields of the row, as JSON",
    "estimate": "the number, in the unit that its metric names",
    "low": "lower end of the 95 % interval",
    "high": "upper end of the 95 % interval",
    "n": "sample size",
    "unit": "what n counts: the independent training run if there are several",
    "null": "expected estimate if nothing is memorised",
    "p_value": "p-value of the hypothesis that nothing is memorised",
    "published": "the paper's number, if data and network are those of the paper",
}


def read(store: Store, keys: Iterable[str]) -> pa.Table | None:
    """Concatenate the rows of those results that are stored. Returns None if no result is stored."""
    parts = []
    for _, table in read_each(store, keys):
        if isinstance(table, Absent):
            continue
        if isinstance(table, Exception):
            raise table
        parts.append(table)
    return pa.concat_tables(parts) if parts else None


class Publisher:
    """Maintains a folder of Parquet parts for one table. Each result behind the root is in exactly one part.

    This holds even if another driver of the same run writes there, such as the one from which the run was taken over:
    parts are written and removed under a lock, after listing the existing ones.
    """

    def __init__(self, folder: Path, run: str, store: Store, keys: Sequence[str]) -> None:
        self.folder = folder
        self.run = run
        self.store = store
        self.keys = keys
        self.published: set[str] = set()
        self.read_keys: set[str] = set()  # results that this publisher has read completely and verified
        self._parts: dict[str, frozenset[str]] | None = None  # keys of each part by name; None before the first read

    def publish(self, stored_keys: Container[str], reads_parts: bool = False) -> None:
        """Write parts for those of the table's stored results that are in no part yet.

        Existing parts are read if there are results to write, on the first call, or if `reads_parts` is set. Raises
        Unwritable, or the error from reading a result once all others are published.
        """
        new_keys = []
        for key in self.keys:
            if key in stored_keys and key not in self.published:
                new_keys.append(key)
        if not (new_keys or (self.folder.is_dir() and (reads_parts or self._parts is None))):
            return
        with atomic_write.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with file_lock(self.folder / LOCK):
                self._list_parts()
                new_keys = []
                for key in self.keys:
                    if key in stored_keys and key not in self.published:
                        new_keys.append(key)
                problems = []
                for start in range(0, len(new_keys), PART):
                    problems.append(self._write(new_keys[start : start + PART]))
        for problem in problems:
            if problem is not None:
                raise problem

    def stamps(self) -> dict[str, str]:
        """Return the stamp of each existing part, which is "" if it has none yet.

        Returns no stamps if the file system's stamps are unreliable.
        """
        paths = []
        if is_stamping(self.folder):
            paths = sorted(self.folder.glob("*.parquet"))
        result = {}
        for path, stamp in zip(paths, files.stamps(map(str, paths)), strict=True):
            result[path.name] = stamp
        return result

    def verified_stamps(self, earlier_stamps: Mapping[str, str]) -> dict[str, str]:
        """Return the stamp of each intact part, and "" for others. Parts with unchanged stamps are not read."""
        stamps = self.stamps()
        changed = set()
        for name, stamp in stamps.items():
            if stamp != earlier_stamps.get(name):
                changed.add(name)
        intact = {name for name in changed if self._part_keys(self.folder / name)}
        result = {}
        for name, stamp in stamps.items():
            result[name] = "" if name in changed - intact else stamp
        return result

    def _list_parts(self) -> None:
        """List the results in the parts. Remove parts that are damaged, stale or duplicates."""
        atomic_write.sweep(self.folder, STALE)
        known_parts = self._parts or {}
        parts = {
            part.name: known_parts.get(part.name) or self._part_keys(part) for part in self.folder.glob("*.parquet")
        }
        own_keys = set(self.keys)
        self.published = set()
        self._parts = {}
        for name, part_keys in sorted(parts.items(), key=lambda part: (-len(part[1]), part[0])):
            if part_keys and part_keys <= own_keys and self.published.isdisjoint(part_keys):
                self.published |= part_keys
                self._parts[name] = part_keys
            else:
                (self.folder / name).unlink(missing_ok=True)

    def _write(self, keys: list[str]) -> StoreError | OSError | None:
        """Write the readable results as one part. Returns the first error among the others, if any."""
        readable: dict[str, pa.Table] = {}
        problem: StoreError | OSError | None = None
        for key, table in read_each(self.store, keys):
            if isinstance(table, StoreError | OSError):
                problem = problem or table
            else:
                readable[key] = table
        self.read_keys.update(readable)
        if not readable:
            return problem
        text = ",".join(readable).encode()
        rows = flatten_table(pa.concat_tables(readable.values()), self.run)
        metadata = {KEYS: text, RUN: self.run.encode(), DIGEST: entry.MARKER + entry.ZEROS}
        sink = pa.BufferOutputStream()
        _parquet().write_table(rows.replace_schema_metadata(metadata), sink)
        data = b"".join(entry.insert_digest(memoryview(sink.getvalue()), MAGIC))
        name = f"{hashlib.sha256(text).hexdigest()[:16]}.parquet"  # determined by the part's keys
        path = self.folder / name
        with atomic_write.writing(path), atomic_write.put_in_place(path) as draft:
            draft.write_bytes(data)
        self.published.update(readable)
        if self._parts is not None:
            self._parts[name] = frozenset(readable)
        return problem

    def _part_keys(self, part: Path) -> frozenset[str]:
        """Return the keys of the results in a part.

        Returns an empty set if it is damaged or was written for another run.

        Parts written by earlier versions have no digest, so only their footer is checked.
        """
        try:
            data = pa.py_buffer(regular_bytes(part))
            metadata = _parquet().read_metadata(pa.BufferReader(data)).metadata or {}
            if DIGEST in metadata:
                entry.check(memoryview(data), MAGIC)
        except (OSError, pa.ArrowException, entry.CorruptError):
            return frozenset()
        if metadata.get(RUN) != self.run.encode():
            return frozenset()
        return frozenset(metadata.get(KEYS, b"").decode().split(",")) - {""}


def _parquet() -> Any:
    """Return Arrow's Parquet module, which takes a tenth of a second to load."""
    import pyarrow.parquet

    return pyarrow.parquet


def flatten_table(table: pa.Table, run: str) -> pa.Table:
    """Add a first column `run` and, after the column `setting`, one column `setting_NAME` per name in it.

    Lists in a setting become text. If the table already has a column `run`, the new one is called `cell_run`. A table
    without columns is returned unchanged.
    """
    if not table.num_columns:
        return table
    name = cell_column(RUN_COLUMN, table)
    return flatten_settings(table.add_column(0, name, column([run] * table.num_rows)))


def cell_column(field: str, table: pa.Table) -> str:
    """Return the name of an added column for a field of the cell, such as `question_models` for `question.models`.

    It starts with `cell_` if the table has a column with this name.
    """
    name = column_name(field)
    return f"cell_{name}" if name in table.schema.names else name


def column_name(words: str) -> str:
    """Return a column name without blanks and dots, which pandas and SQL accept without quotation marks."""
    return re.sub(r"[\s.]+", "_", words)


def flatten_settings(table: pa.Table) -> pa.Table:
    """Add one column `setting_NAME` per name in the column `setting`. It is null in rows without that name.

    The metadata of the fields contain the meanings of the columns.
    """
    if SETTING not in table.schema.names:
        return table
    settings = []
    for value in table[SETTING].to_pylist():
        settings.append(rounding.parse_setting(value) or {})
    insert_at = table.schema.get_field_index(SETTING) + 1
    for offset, name in enumerate(dict.fromkeys(name for setting in settings for name in setting)):
        label = column_name(f"{SETTING}.{name}")
        if label not in table.schema.names:
            values = column([_single(setting.get(name)) for setting in settings])
            table = table.add_column(insert_at + offset, label, values)
    return describe_columns(table, MEANINGS)


def describe_columns(table: pa.Table, meanings: Mapping[str, str]) -> pa.Table:
    """Return the table with the meanings of these columns in the metadata of their fields."""
    fields = []
    for field in table.schema:
        if field.name in meanings:
            field = field.with_metadata({MEANING: meanings[field.name].encode()})
        fields.append(field)
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields, table.schema.metadata))


def uniform(values: Sequence[Any]) -> list[Any]:
    """Make the values of one column uniform.

    Mixed integers and floats become floats. Other mixtures, and mappings, become text.
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) <= 1 and dict not in kinds:
        return list(values)
    return [None if value is None else text(value) for value in values]


def column(values: Sequence[bool | int | float | str | None]) -> pa.Array:
    """Convert the values to an array of one type (see `uniform`).

    It is built from buffers, because pyarrow's own conversion of Python values loads pandas, which takes half a second.
    """
    alike = uniform(values)
    kind = next((type(value) for value in alike if value is not None), str)
    if kind is int and any(value is not None and not -(2**63) <= value < 2**63 for value in alike):
        alike = [None if value is None else str(value) for value in alike]
        kind = str
    bits = "".join("0" if value is None else "1" for value in reversed(alike))
    bitmap = None
    if "0" in bits:
        bitmap = pa.py_buffer(int(bits, 2).to_bytes(len(alike) // 8 + 1, "little"))
    if kind is str:
        encoded = [b"" if value is None else value.encode() for value in alike]
        offsets = array("i", itertools.accumulate(map(len, encoded), initial=0))
        data = [bitmap, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
        return pa.Array.from_buffers(pa.string(), len(alike), data)
    code, arrow = {bool: ("B", pa.uint8()), int: ("q", pa.int64()), float: ("d", pa.float64())}[kind]
    numbers = array(code, [0 if value is None else value for value in alike])
    values_array = pa.Array.from_buffers(arrow, len(alike), [bitmap, pa.py_buffer(numbers)])
    if kind is bool:
        return values_array.cast(pa.bool_())
    return values_array


def _single(value: Any) -> Any:
    if isinstance(value, list | dict):
        return text(value)
    return value
