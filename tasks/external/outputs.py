"""Tables of a model's outputs, sent by an owner who keeps the model: CSV or Parquet, a row per picture.

Column `image` is the picture's id, given by `tasks.external.handout`. The other columns hold the outputs:

- `p0, p1, ...`, a probability per class; or `logit0, logit1, ...`; or `logp0, logp1, ...`, natural logarithms;
- or, where the columns have names of their own, those that are named to `read`, in the order of the classes;
- or, in Parquet, one list column `probabilities`, `logits` or `log_probabilities`.

Columns `set` and `row`, from the list of pictures, and `label` may be present and are ignored; any other column is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.external import sent_table
from tasks.external.sent_table import Sent
from tasks.files import File

if TYPE_CHECKING:
    from tasks.external.answers import Answers

Gives = Literal["logits", "probabilities", "log-probabilities"]
IGNORED = ("set", "row", "label")
PREFIXES: dict[str, Gives] = {"p": "probabilities", "logit": "logits", "logp": "log-probabilities"}
LISTS: dict[str, Gives] = {
    "probabilities": "probabilities",
    "logits": "logits",
    "log_probabilities": "log-probabilities",
}
COLUMN = re.compile(r"(p|logit|logp)(\d+)")


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs for each picture, as sent: values (pictures, classes) and the names of their columns."""

    sent: Sent
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    gives: Gives
    resolution: float  # the last place that is printed, 0 where all places are

    @property
    def name(self) -> str:
        return self.sent.name

    @property
    def classes(self) -> int:
        """The number of classes; a single column is that of the second of two."""
        return max(int(self.values.shape[1]), 2)

    def select(self, ids: Sequence[str]) -> Answers:
        """The outputs for these pictures, in this order.

        A probability that is printed as 0 stands at half the last printed place, or where every place is printed at
        the smallest float32. ValueError, in one line, where a picture is missing.
        """
        return self._read_answers(self.sent.rows(ids))

    def _read_answers(self, rows: NDArray[np.int64]) -> Answers:
        from tasks.external.answers import FLOOR, TOLERANCE, read_answers

        printed = self.resolution if self.gives == "probabilities" else 0.0
        return read_answers(
            self.values[rows],
            self.gives,
            len(rows),
            where=self.name,
            floor=max(FLOOR, printed / 2),
            # Each number is off by half its last place at most, which is little enough from three places on.
            tolerance=max(TOLERANCE, self.classes * printed / 2 if printed < 0.002 else 0.0),
            named=lambda row: f"image {self.sent.ids[rows[row]]!r}",
        )


def read(file: File, columns: Sequence[str] = (), gives: Gives = "probabilities") -> Outputs:
    """The table in a file, `.csv` or `.parquet`, every row of it checked.

    `columns` names those of the classes, in their order, where they have names of their own, and `gives` says what is
    in them. ValueError, in one line that names the first of them and how many there are, for pictures that have two
    rows, values that are no numbers, rows that do not sum to 1, and unknown columns.
    """
    return read_table(sent_table.read(file), columns, gives)


def read_table(table: Sent, columns: Sequence[str] = (), gives: Gives = "probabilities") -> Outputs:
    """The outputs in a table that has been read, with the checks of `read`."""
    names, kind = _columns(table.name, table.columns, columns, gives)
    if len(names) == 1:
        values, resolution = _stack_lists(table.name, table.ids, table.column(names[0])), 0.0
    else:
        values = np.stack([table.numbers(name) for name in names], axis=1)
        resolution = _resolution([table.column(name) for name in names])
    if kind == "probabilities" and resolution == 1:
        raise ValueError(
            f"{table.name} has no decimals in its probabilities; it must say how probable, not which class"
        )
    outputs = Outputs(table, tuple(names), values, kind, resolution)
    outputs._read_answers(np.arange(len(table.ids)))
    return outputs


def _columns(name: str, header: list[str], named: Sequence[str], gives: Gives) -> tuple[list[str], Gives]:
    """The columns of the classes in their order, or the one list column, and what is in them."""
    if named:
        missing = [column for column in named if column not in header]
        if missing or len(set(named)) < len(named) or len(named) < 2:
            what = f"no column {missing[0]!r}" if missing else f"the classes {', '.join(named)}; name two or more, once"
            raise ValueError(f"{name} has {what}; it has {', '.join(header)}")
        return list(named), gives
    lists = [column for column in header if column in LISTS]
    ours = [column for column in header if COLUMN.fullmatch(column)]
    unknown = [column for column in header if column not in (*lists, *ours, *IGNORED)]
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
        shown = ", ".join(column for column in header if column not in IGNORED) or "none"
        raise ValueError(
            f"{name} has the columns {shown}; it takes one kind, from 0 on without gaps, for two classes or more"
        )
    kind = kinds.pop()
    by_number = {int(number): column for column, (_, number) in zip(ours, parts, strict=True)}
    return [by_number[number] for number in numbers], PREFIXES[kind]


def _resolution(columns: Sequence[pa.ChunkedArray]) -> float:
    """The last decimal place of any number in columns of text; 0 where a column is not text or has exponents."""
    if not all(map(sent_table.is_text, columns)) or any(map(sent_table.has_exponents, columns)):
        return 0.0
    return float(10.0 ** -max(int(sent_table.decimals(column).max()) for column in columns))


def _stack_lists(name: str, ids: Sequence[str], column: pa.ChunkedArray) -> NDArray[np.float64]:
    if not sent_table.is_list(column.type) or not _is_numeric(column.type.value_type):
        raise ValueError(f"{name} has {column.type} in its list column; it must be lists of numbers")
    rows = [None if numbers is None or None in numbers else numbers for numbers in _lists(column)]
    lengths = [None if numbers is None else len(numbers) for numbers in rows]
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
