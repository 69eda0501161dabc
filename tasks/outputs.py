"""Tables of a model's outputs, sent by an owner who never gives the model away: CSV or Parquet, a row per picture.

Column `image` is the picture's id, which `tasks.handout` gave it. The rest says what the model says of it:

- `p0, p1, ...`, a probability per class; or `logit0, logit1, ...`; or `logp0, logp1, ...`, natural logarithms;
- or, where the columns have names of their own, those that are named to `read`, in the order of the classes;
- or, in Parquet, one list column `probabilities`, `logits` or `log_probabilities`.

Columns `set` and `row`, which the list of pictures has, may stay; any other is refused.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.files import File
from tasks.files import read as bytes_of

if TYPE_CHECKING:
    from tasks.models.answers import Answers

Gives = Literal["logits", "probabilities", "log-probabilities"]
IMAGE = "image"
IGNORED = ("set", "row")
PREFIXES: dict[str, Gives] = {"p": "probabilities", "logit": "logits", "logp": "log-probabilities"}
LISTS: dict[str, Gives] = {
    "probabilities": "probabilities",
    "logits": "logits",
    "log_probabilities": "log-probabilities",
}
COLUMN = re.compile(r"(p|logit|logp)(\d+)")
DECIMALS = r"^[+-]?\d*\.(?P<decimals>\d*)$"


@dataclass(frozen=True, eq=False)
class Outputs:
    """What was said of each picture, as it was sent: values (pictures, classes) and the ids of their rows."""

    name: str
    ids: tuple[str, ...]
    values: NDArray[np.float64]
    gives: Gives
    resolution: float  # the last place that is printed, 0 where all places are

    @property
    def classes(self) -> int:
        return int(self.values.shape[1])

    def of(self, ids: Sequence[str]) -> Answers:
        """What was said of these pictures, in this order.

        A probability that is printed as 0 stands at half the last printed place, or where every place is printed at
        the smallest float32. ValueError, in one line, where a picture is missing.
        """
        missing = [name for name in ids if name not in self._rows]
        if missing:
            raise ValueError(f"{self.name} has no row for {missing[0]!r}; {len(missing)} of {len(ids)} are missing")
        return self._answered(np.array([self._rows[name] for name in ids], np.int64))

    def _answered(self, rows: NDArray[np.int64]) -> Answers:
        from tasks.models.answers import FLOOR, TOLERANCE, answered

        printed = self.resolution if self.gives == "probabilities" else 0.0
        return answered(
            self.values[rows],
            self.gives,
            len(rows),
            where=self.name,
            floor=max(FLOOR, printed / 2),
            # Each number is off by half its last place at most, which is little enough from three places on.
            tolerance=max(TOLERANCE, self.classes * printed / 2 if printed < 0.002 else 0.0),
            named=lambda row: f"image {self.ids[rows[row]]!r}",
        )

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}


def read(file: File, columns: Sequence[str] = (), gives: Gives = "probabilities") -> Outputs:
    """The table in a file, `.csv` or `.parquet`, every row of it checked.

    `columns` names those of the classes, in their order, where they have names of their own, and `gives` says what is
    in them. ValueError, in one line that names the first of them and how many there are, for pictures that have two
    rows, numbers that are none, rows that do not sum to 1, and columns nobody knows.
    """
    held = bytes_of(file)
    suffix = PurePath(file.path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"outputs are {file.path}; they must be a .csv or a .parquet file")
    name = f"outputs {file.path}"
    table = _csv(name, held) if suffix == ".csv" else _parquet(name, held)
    if IMAGE not in table.column_names:
        raise ValueError(f"{name} has no column {IMAGE}; it has {', '.join(table.column_names)}")
    found, said = _columns(name, [each for each in table.column_names if each != IMAGE], columns, gives)
    ids = _ids(name, table.column(IMAGE))
    if len(found) == 1:
        values, resolution = _listed(name, ids, table.column(found[0])), 0.0
    else:
        numbers = [_numbers(name, ids, each, table.column(each)) for each in found]
        values = np.stack(numbers, axis=1)
        is_whole = any(_exponents(table.column(each)) for each in found)
        resolution = 0.0 if is_whole else min(_resolution(table.column(each)) for each in found)
    if said == "probabilities" and resolution == 1:
        raise ValueError(f"{name} has no decimals in its probabilities; it must say how probable, not which class")
    outputs = Outputs(name, ids, values, said, resolution)
    outputs._answered(np.arange(len(ids)))
    return outputs


def _csv(name: str, held: bytes) -> pa.Table:
    """Every column as text, so that it shows how many places were printed and ids keep their zeros."""
    from pyarrow import csv

    try:
        header = csv.open_csv(io.BytesIO(held)).schema.names
        _once(name, header)
        text = csv.ConvertOptions(
            column_types={each: pa.string() for each in header}, strings_can_be_null=True, null_values=[""]
        )
        return csv.read_csv(io.BytesIO(held), convert_options=text)
    except pa.ArrowException as error:
        raise ValueError(f"{name} cannot be read: {' '.join(str(error).split())}") from None


def _parquet(name: str, held: bytes) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(held))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name} cannot be read: {' '.join(str(error).split())}") from None
    _once(name, table.column_names)
    return table


def _once(name: str, header: Sequence[str]) -> None:
    twice = [each for each in header if header.count(each) > 1]
    if twice:
        raise ValueError(f"{name} has two columns {twice[0]!r}")


def _columns(name: str, header: list[str], named: Sequence[str], gives: Gives) -> tuple[list[str], Gives]:
    """The columns of the classes in their order, or the one list column, and what is in them."""
    if named:
        missing = [each for each in named if each not in header]
        if missing or len(set(named)) < len(named) or len(named) < 2:
            what = f"no column {missing[0]!r}" if missing else f"the classes {', '.join(named)}; name two or more, once"
            raise ValueError(f"{name} has {what}; it has {', '.join(header)}")
        return list(named), gives
    lists = [each for each in header if each in LISTS]
    ours = [each for each in header if COLUMN.fullmatch(each)]
    unknown = [each for each in header if each not in (*lists, *ours, *IGNORED)]
    if unknown:
        raise ValueError(
            f"{name} has the unknown column {unknown[0]!r} ({len(unknown)} of them); it takes image and p0, p1, ... or "
            "logit0, ... or logp0, ... or, in Parquet, a list column probabilities, logits or log_probabilities"
        )
    if len(lists) == 1 and not ours:
        return lists, LISTS[lists[0]]
    parts = [match.groups() for match in map(COLUMN.fullmatch, ours) if match]
    kinds = {prefix for prefix, _ in parts}
    numbers = sorted(int(number) for _, number in parts)
    if lists or len(kinds) != 1 or len(numbers) < 2 or numbers != list(range(len(numbers))):
        shown = ", ".join(each for each in header if each not in IGNORED) or "none"
        raise ValueError(
            f"{name} has the columns {shown}; it takes one kind, from 0 on without gaps, for two classes or more"
        )
    kind = kinds.pop()
    by_number = {int(number): column for column, (_, number) in zip(ours, parts, strict=True)}
    return [by_number[number] for number in numbers], PREFIXES[kind]


def _ids(name: str, column: pa.ChunkedArray) -> tuple[str, ...]:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"{name} has {column.type} in its column {IMAGE}; it must be text")
    ids: list[str | None] = column.to_pylist()
    if not ids:
        raise ValueError(f"{name} has no rows")
    if None in ids:
        raise ValueError(f"{name} has no image in row {ids.index(None)}; {ids.count(None)} rows have none")
    seen: set[str | None] = set()
    twice = [each for each in ids if each in seen or seen.add(each)]  # type: ignore[func-returns-value]
    if twice:
        raise ValueError(f"{name} has more than one row for {twice[0]!r}; {len(twice)} rows are about an image again")
    return tuple(str(each) for each in ids)


def _numbers(name: str, ids: Sequence[str], label: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    try:
        values = np.array(pc.cast(_bare(column), pa.float64()).to_numpy(), np.float64)
    except pa.ArrowException:
        wrong = [row for row, each in enumerate(column.to_pylist()) if each is not None and not _is_number(each)]
        first = column[wrong[0]].as_py() if wrong else column.type
        where = f" of image {ids[wrong[0]]!r}" if wrong else ""
        raise ValueError(f"{name}: {first!s}{where} in column {label} is no number; {len(wrong)} are not") from None
    missing = np.flatnonzero(column.is_null().to_numpy())
    if len(missing):
        raise ValueError(f"{name}: image {ids[missing[0]]!r} has nothing in column {label}; {len(missing)} have not")
    return values


def _bare(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(column) if pa.types.is_string(column.type) else column


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _resolution(column: pa.ChunkedArray) -> float:
    """The last decimal place that any number of a column of text has; 0 where the numbers are no text."""
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return 0.0
    decimals = pc.struct_field(pc.extract_regex(_bare(column), DECIMALS), "decimals")
    return float(10.0 ** -int(pc.max(pc.utf8_length(decimals)).as_py() or 0))


def _exponents(column: pa.ChunkedArray) -> bool:
    """Whether numbers are written as 1e-7, and so with every place they have."""
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return False
    return bool(pc.any(pc.match_substring(pc.utf8_lower(column), "e")).as_py())


def _listed(name: str, ids: Sequence[str], column: pa.ChunkedArray) -> NDArray[np.float64]:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(kind(column.type) for kind in kinds) or not _is_numeric(column.type.value_type):
        raise ValueError(f"{name} has {column.type} in its list column; it must be lists of numbers")
    rows = [None if each is None or None in each else each for each in _lists(column)]
    lengths = [None if each is None else len(each) for each in rows]
    wrong = [row for row, length in enumerate(lengths) if length is None or length != lengths[0]]
    if wrong:
        first = ids[wrong[0]]
        raise ValueError(f"{name}: the list of image {first!r} is not as long as the first; {len(wrong)} are not")
    return np.array(rows, np.float64).reshape(len(rows), -1)


def _lists(column: pa.ChunkedArray) -> Iterator[list[float | None] | None]:
    for chunk in column.chunks:
        yield from chunk.to_pylist()


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
