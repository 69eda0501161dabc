"""A classifier's outputs for images, as log-probabilities or as a table that the model's owner returns.

A table is CSV or Parquet and has one row per image. The column `image` contains the id assigned by
`tasks.external.handout`. The other columns contain the outputs:

- `p0, p1, ...`, a probability per class; or `logit0, logit1, ...`; or `logp0, logp1, ...`, natural logarithms;
- or, if they have other names, the columns passed to `read_outputs`, in class order;
- or, in Parquet, a single list column `probabilities`, `logits` or `log_probabilities`.

The columns `set` and `row` from the image list, and `label`, are ignored. Any other column is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.external.model_file import Gives
from tasks.external.sent_table import Sent, decimals, has_exponents, is_list, is_text, read_sent, spell_columns
from tasks.worker.files import File

Floats = NDArray[np.float64]

TOLERANCE = 1e-3  # of the sum of a row's probabilities
FEW_PLACES = 4  # decimals; in tables of common width, rounding to these changes sums by more than TOLERANCE
# Tolerance between two probabilities for the same image. TF32 and half precision differ by less, dropout by more.
SAME = 0.01
FEWEST_IN_UNIT = 10  # rows in [0, 1]; a few logits may be in [0, 1] by chance
# An error is raised at this minimum accuracy with reordered columns and this minimum loss of accuracy in the given
# order.
RIGHT_ORDER = 0.8
FEWER = 0.1
# Advice for a model file whose classes are in another order.
CLASS_ORDER = "number the classes of the data in the model's order, by the names of their folders or by a list"
ENOUGH = 10  # images per class; with fewer, some order suits any model
FLOOR = float(np.finfo(np.float32).smallest_subnormal)  # 1.4e-45; below it, a float32 softmax underflows to 0


@dataclass(frozen=True, eq=False)
class Answers:
    """Log-probabilities (n, classes) in nats. The probabilities of each row sum to 1.

    A probability of exactly 0 would make every divergence infinite, although it only means that the number was too
    small to print. `floored` of the n * classes numbers were 0 and were replaced by `floor` before normalisation.
    """

    log_p: Floats
    floored: int
    floor: float


def read_answers(
    outputs: NDArray[np.floating],
    gives: Gives,
    rows: int,
    *,
    where: str,
    classes: int | None = None,
    floor: float = FLOOR,
    tolerance: float = TOLERANCE,
    row_name: Callable[[int], str] = "row {}".format,
    remedy: str = "",
) -> Answers:
    """Check outputs: (rows, classes), or (rows, 1) or (rows,) for the second of two classes.

    Sums of probabilities may differ from 1 by the tolerance; rows are divided by their sum. Raises ValueError for
    another shape, for numbers that are not finite, and for rows that do not sum to 1. Its message begins with `where`
    and contains the first bad row and the number of bad rows. `remedy` is the advice for probabilities passed as
    logits.
    """
    values = np.asarray(outputs, np.float64)
    shape = values.shape
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != rows or not values.shape[1]:
        raise ValueError(f"{where} returns {shape} for {rows} images; expected ({rows}, classes)")
    columns = max(values.shape[1], 2)
    if classes is not None and columns != classes:
        raise ValueError(f"{where} returns {values.shape[1]} columns, but there are {classes} classes")
    is_number = np.isfinite(values) | (np.isneginf(values) if gives == "log-probabilities" else False)
    _refuse(~is_number.all(1), values, where, "are not all finite", row_name)
    if gives == "logits":
        return _from_logits(values, where, floor, remedy)
    if gives == "probabilities":
        outside = ((values < -tolerance) | (values > 1 + tolerance)).any(1)
        _refuse(outside, values, where, "are not all probabilities, in [0, 1]", row_name)
        p = np.clip(values, 0, None)
        if values.shape[1] == 1:
            p = np.hstack([1 - np.minimum(p, 1), p])
        _refuse(np.abs(p.sum(1) - 1) > tolerance, p, where, "do not sum to 1", row_name, p.sum(1))
        with np.errstate(divide="ignore"):
            return _apply_floor(np.log(p), floor)
    if values.shape[1] == 1:
        _refuse(values[:, 0] > tolerance, values, where, "are not logarithms of probabilities (at most 0)", row_name)
        p = -np.expm1(np.minimum(values, 0))
        with np.errstate(divide="ignore"):
            return _apply_floor(np.hstack([np.log(p), values]), floor)
    with np.errstate(over="ignore"):
        sums = np.exp(values).sum(1)
    is_unnormalised = ~(np.abs(sums - 1) <= tolerance)
    _refuse(
        is_unnormalised, values, where, "are not log-probabilities: their exponentials do not sum to 1", row_name, sums
    )
    return _apply_floor(values, floor)


def _from_logits(values: Floats, where: str, floor: float, remedy: str) -> Answers:
    # A second softmax would silently flatten every row. Identical rows are not evidence of probabilities.
    if (values >= 0).all() and (values != values[0]).any():
        end = f"; {remedy}" if remedy else ""
        if values.shape[1] > 1 and (np.abs(values.sum(1) - 1) <= TOLERANCE).all():
            raise ValueError(
                f"{where} returns rows of non-negative numbers that sum to 1: these are probabilities, not logits{end}"
            )
        # A half-precision sigmoid sometimes underflows to 0, while columns of zeros are logits of untrained classes.
        if (values <= 1).all() and len(values) >= FEWEST_IN_UNIT and (values == 0).mean() < 0.5:
            raise ValueError(
                f"{where} returns {values.size} numbers in [0, 1]: these are outputs of a sigmoid, not logits; remove "
                f"the sigmoid{end}"
            )
    if values.shape[1] == 1:
        values = np.hstack([np.zeros_like(values), values])
    return Answers(log_softmax(values), 0, floor)


def other_batch(once: NDArray[np.floating]) -> NDArray[np.int64]:
    """Select half of the rows for a second evaluation: those with the smallest values in the first column.

    The mean of this batch is different. A model whose outputs depend on the batch, such as batch norm in training mode,
    therefore returns different outputs.
    """
    return np.argsort(once[:, 0], kind="stable")[: (len(once) + 1) // 2]


def check_asked_twice(first: Floats, second: Floats, where: str, remedy: str) -> None:
    """Raise ValueError if two sets of log-probabilities of the same images differ.

    The second set should come from `other_batch`, so that the outputs of a model in training mode differ.
    """
    difference = float(np.abs(np.exp(second) - np.exp(first)).max())
    if difference > SAME:
        raise ValueError(f"{where}: two evaluations of one image differ by {difference:.2g} in probability; {remedy}")


def check_class_order(values: Floats, labels: NDArray[np.int64], where: str, remedy: str) -> None:
    """Raise ValueError if the columns (rows, classes) are the classes of the labels in another order.

    Such a model would appear to be untrained. What distinguishes it from an inaccurate model is its accuracy with the
    best order of columns.
    """
    from scipy.optimize import linear_sum_assignment

    classes = values.shape[1]
    if classes == 1 or len(labels) < ENOUGH * classes or labels.max() >= classes:
        return
    counts = np.zeros((classes, classes), np.int64)  # (classes, columns): number of images by largest column
    np.add.at(counts, (labels, values.argmax(axis=1)), 1)
    rows, places = linear_sum_assignment(counts, maximize=True)
    right = np.trace(counts) / len(labels)
    best = counts[rows, places].sum() / len(labels)
    if best > RIGHT_ORDER and right < best - FEWER:
        order = f"{', '.join(map(str, places))} for our classes {', '.join(map(str, rows))}"
        raise ValueError(
            f"{where} is right for {right:.0%} of the images, but for {best:.0%} with its classes in another order: "
            f"{order}; {remedy}"
        )


def _apply_floor(log_p: Floats, floor: float) -> Answers:
    zero = np.isneginf(log_p)
    return Answers(log_softmax(np.where(zero, np.log(floor), log_p)), int(zero.sum()), floor)


def log_softmax(logits: Floats) -> Floats:
    """Compute log softmax(logits) along the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def _refuse(
    is_refused: Any,  # (rows,) bool
    values: Floats,
    where: str,
    problem: str,
    row_name: Callable[[int], str],
    sums: Floats | None = None,
) -> None:
    if not is_refused.any():
        return
    first = int(is_refused.argmax())
    numbers = ", ".join(f"{value:.6g}" for value in values[first, :6]) + (", ..." if values.shape[1] > 6 else "")
    total = "" if sums is None else f" (sum {sums[first]:.6g})"
    if sums is None:
        why = ""
    else:
        why = _describe_rounding(values, float(np.abs(sums - 1).max()))
    raise ValueError(
        f"{where}: the numbers of {row_name(first)} {problem}: {numbers}{total}; this applies to "
        f"{int(is_refused.sum())} of {len(is_refused)} rows{why}"
    )


def _describe_rounding(values: Floats, sum_error: float) -> str:
    """Return advice if few decimals explain `sum_error`, the distance of sums from 1. Empty otherwise."""
    if not ((values >= 0) & (values <= 1)).all():
        return ""
    for places in range(1, FEW_PLACES + 1):
        largest_change = values.shape[1] * 0.5 * 10.0**-places
        if np.allclose(values, np.round(values, places), rtol=0, atol=1e-9) and sum_error <= largest_change + 1e-9:
            decimals = f"{places} decimal{'s' if places > 1 else ''}, which changes a sum by up to {largest_change:.2g}"
            return f". They are printed with {decimals}: print eight, or return logits"
    return ""


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
    """A model's outputs for each image, as returned: values (images, classes) and their column names."""

    returned_table: Sent
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    gives: Gives
    resolution: float  # last printed decimal place, 0 if all places are printed

    @property
    def name(self) -> str:
        return self.returned_table.name

    @property
    def classes(self) -> int:
        """The number of classes. A single column is the second of two classes."""
        return max(int(self.values.shape[1]), 2)

    def select(self, ids: Sequence[str]) -> Answers:
        """Return the outputs for these images, in this order.

        A probability printed as 0 becomes half of the last printed decimal place, or the smallest float32 if all places
        are printed. Raises ValueError if an image is missing.
        """
        return self._read_answers(self.returned_table.rows(ids))

    def _read_answers(self, rows: NDArray[np.int64]) -> Answers:
        printed = self.resolution if self.gives == "probabilities" else 0.0
        return read_answers(
            self.values[rows],
            self.gives,
            len(rows),
            where=self.name,
            floor=max(FLOOR, printed / 2),
            # The rounding error of a number is at most half its last decimal place, which is acceptable from three
            # places on.
            tolerance=max(TOLERANCE, self.classes * printed / 2 if printed < 0.002 else 0.0),
            row_name=lambda row: f"image {self.returned_table.ids[rows[row]]!r}",
        )


def read_outputs(file: File, columns: Sequence[str] = (), gives: Gives = "probabilities") -> Outputs:
    """Read the outputs in a `.csv` or `.parquet` file and check every row.

    If the class columns have other names, `columns` lists them in order, and `gives` is their kind. Raises ValueError
    for images with two rows, values that are not numbers, rows that do not sum to 1, and unknown columns. The message
    contains the first bad row and the number of bad rows.
    """
    return outputs_of(read_sent(file), columns, gives)


def outputs_of(table: Sent, columns: Sequence[str] = (), gives: Gives = "probabilities") -> Outputs:
    """Return the outputs in a table, with the same checks as `read_outputs`."""
    names, kind = _columns(table.name, table.columns, columns, gives)
    if len(names) == 1:
        values = _stack_lists(table.name, table.ids, table.column(names[0]))
        resolution = 0.0
    else:
        values = np.stack([table.numbers(name) for name in names], axis=1)
        resolution = _resolution([table.column(name) for name in names])
    if kind == "probabilities" and resolution == 1:
        raise ValueError(
            f"{table.name} has no decimals in its probabilities; expected probabilities, not the predicted class"
        )
    outputs = Outputs(table, tuple(names), values, kind, resolution)
    outputs._read_answers(np.arange(len(table.ids)))
    return outputs


def _columns(name: str, header: list[str], class_columns: Sequence[str], gives: Gives) -> tuple[list[str], Gives]:
    """Return the class columns in order, or the list column, and the kind of outputs."""
    if class_columns:
        class_columns = spell_columns(class_columns)
        missing_columns = [column for column in class_columns if column not in header]
        if missing_columns or len(set(class_columns)) < len(class_columns) or len(class_columns) < 2:
            if missing_columns:
                problem = f"no column {missing_columns[0]!r}"
            else:
                problem = f"the classes {', '.join(class_columns)}; name two or more, once"
            raise ValueError(f"{name} has {problem}; found {', '.join(header)}")
        return list(class_columns), gives
    lists = [column for column in header if column in LISTS]
    numbered_columns = [column for column in header if COLUMN.fullmatch(column)]
    unknown = []
    for column in header:
        if column not in (*lists, *numbered_columns, *IGNORED):
            unknown.append(column)
    if unknown:
        raise ValueError(
            f"{name} has the unknown column {unknown[0]!r} ({len(unknown)} in total); expected image and p0, p1, ... "
            "or logit0, ... or logp0, ... or, in Parquet, a list column probabilities, logits or log_probabilities"
        )
    if len(lists) == 1 and not numbered_columns:
        return lists, LISTS[lists[0]]
    parts = [match.groups() for match in map(COLUMN.fullmatch, numbered_columns) if match]
    kinds = {prefix for prefix, _ in parts}
    numbers = sorted(int(number) for _, number in parts)
    if lists or len(kinds) != 1 or len(numbers) < 2 or numbers != list(range(len(numbers))):
        listing = ", ".join(column for column in header if column not in IGNORED) or "none"
        raise ValueError(
            f"{name} has the columns {listing}; expected one kind, numbered from 0 without gaps, for at least two "
            "classes"
        )
    kind = kinds.pop()
    by_number = {}
    for column, (_, number) in zip(numbered_columns, parts, strict=True):
        by_number[int(number)] = column
    return [by_number[number] for number in numbers], PREFIXES[kind]


def _resolution(columns: Sequence[pa.ChunkedArray]) -> float:
    """Return the last decimal place of numbers in text columns.

    Returns 0 if a column is not text or contains exponents.
    """
    if not all(map(is_text, columns)) or any(map(has_exponents, columns)):
        return 0.0
    return float(10.0 ** -max(int(decimals(column).max()) for column in columns))


def _stack_lists(name: str, ids: Sequence[str], column: pa.ChunkedArray) -> NDArray[np.float64]:
    if not is_list(column.type) or not _is_numeric(column.type.value_type):
        raise ValueError(f"{name} has {column.type} in its list column; expected lists of numbers")
    rows = []
    for numbers in column.to_pylist():
        rows.append(None if numbers is None or None in numbers else numbers)
    lengths = [None if numbers is None else len(numbers) for numbers in rows]
    invalid_rows = []
    for row, length in enumerate(lengths):
        if length is None or length != lengths[0]:
            invalid_rows.append(row)
    if invalid_rows:
        first = ids[invalid_rows[0]]
        raise ValueError(
            f"{name}: the list of image {first!r} differs in length from the first; {len(invalid_rows)} do"
        )
    return np.array(rows, np.float64).reshape(len(rows), -1)


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
