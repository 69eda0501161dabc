"""Confidences, a model's probabilities of the true classes, as sent by its owner: CSV or Parquet, a row per picture.

A table holds all outputs of the model (`tasks.external.outputs`), from which the true class's is read; or,
where its owner knows the labels, the confidence alone: column `image` with `confidence`, or `log_confidence` (natural
logarithms), or one column named to `read`. A column `label` may say which class was meant: it has to be ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.external import sent_table
from tasks.external.model_file import Gives
from tasks.external.outputs import COLUMN, IGNORED, LISTS, Outputs, check_class_order, outputs_of
from tasks.external.sent_table import Sent, read_sent, spell_columns
from tasks.worker.files import File

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

LABEL = "label"
ALONE: dict[str, Gives] = {"confidence": "probabilities", "log_confidence": "log-probabilities"}
# Below 1 a float32 has eight decimals, and a float64 no more than sixteen.
SINGLE, DOUBLE = 8, 16


@dataclass(frozen=True, eq=False)
class Confidences:
    """The true class's probability for each picture, (pictures,) in [0, 1], as it was printed."""

    values: Floats
    resolution: float  # the last place that is printed, 0 where all places are
    right: NDArray[np.bool_] | None = None  # whether no class is likelier than the true one; None where not said


def read(
    file: File, ids: Sequence[str], labels: Labels, columns: Sequence[str] = (), gives: Gives = "probabilities"
) -> Confidences:
    """The confidences of these pictures in a file, `.csv` or `.parquet`, in this order; every row is checked.

    `columns` and `gives` are as in `tasks.external.outputs.read`; one column alone is that of the confidences.
    ValueError, in one line that names the first of them and how many there are, for whatever is refused there, and for
    confidences outside [0, 1] or without decimals, labels that differ from ours, and fewer classes than these labels
    need.
    """
    table = read_sent(file)
    _check_labels(table, ids, labels)
    alone = _alone(table, columns, gives)
    if alone is None:
        return _read_classes(outputs_of(table, columns, gives), ids, labels)
    values, resolution = _read_column(table, *alone, ids)
    return Confidences(round_confidences(values, resolution), resolution)


def round_confidences(values: Floats, resolution: float) -> Floats:
    """The confidences in float32, and where there is a resolution (a power of ten) at the nearest multiple of it.

    Two models can only be compared at one precision. A softmax in float32 says 1 of all that is within 3e-8 of it, and
    one printed to four decimals of all within 5e-5; if another model says a little less of the same images, nothing but
    the printing tells the two apart, and a distance between distributions counts every one of those images.

    Half a place goes to the even neighbour, so that a number printed with so many decimals, and read again, is the same
    float64: a float32 times a power of ten below 10^13 is exact in float64, so both decide alike.
    """
    single: Floats = values.astype(np.float32).astype(np.float64)
    if not resolution:
        return single
    scale = 10.0 ** round(-np.log10(resolution))
    nearest: Floats = np.rint(single * scale) / scale
    return nearest


def _alone(table: Sent, columns: Sequence[str], gives: Gives) -> tuple[str, Gives] | None:
    """The column of confidences and the kind of its numbers; None where the table has all classes."""
    if len(columns) > 1:
        return None
    if columns:
        return _find_column(table, columns[0], gives), gives
    single = [column for column in ALONE if column in table.columns]
    others = [column for column in table.columns if column not in IGNORED and column not in single[:1]]
    if single and others:
        raise ValueError(
            f"{table.name} has the column {others[0]!r} ({len(others)} of them) beside {single[0]}; "
            f"beside it may be {', '.join(IGNORED)}"
        )
    if single:
        return single[0], ALONE[single[0]]
    if not any(column in LISTS or COLUMN.fullmatch(column) for column in others):
        raise ValueError(
            f"{table.name} has no confidences; it takes image and p0, p1, ... or logit0, ... or logp0, ... or, of the "
            f"true class alone, confidence or log_confidence; it has {', '.join(table.columns) or 'image alone'}"
        )
    return None


def _find_column(table: Sent, column: str, gives: Gives) -> str:
    (column,) = spell_columns([column])
    if column not in table.columns:
        raise ValueError(f"{table.name} has no column {column!r}; it has {', '.join(table.columns)}")
    if gives == "logits":
        raise ValueError(f"{table.name}: column {column!r} gives logits; one alone is no confidence")
    return column


def _read_classes(table: Outputs, ids: Sequence[str], labels: Labels) -> Confidences:
    rows = table.sent.rows(ids)
    if labels.max() >= table.classes:
        raise ValueError(
            f"{table.name} has {table.classes} classes, and the labels reach up to {labels.max()}; "
            f"it must have {labels.max() + 1} or more"
        )
    check_class_order(table.values[rows], labels, table.name, "name its columns in our order")
    several = table.values.shape[1] > 1
    largest = table.values[rows].max(axis=1)
    right = np.asarray(table.values[rows, labels] == largest) if several else None
    if table.gives == "logits":
        # A place of a logit moves p by p (1 - p) of it: however few there are, nothing is cut off at 1.
        values = np.exp(table.select(ids).log_p[np.arange(len(ids)), labels])
        return Confidences(round_confidences(values, 0.0), 0.0, right)
    decimals = np.concatenate([sent_table.decimals(table.sent.column(column)) for column in table.columns])
    resolution = _resolution(
        table.name, table.values.ravel("F" if len(table.columns) > 1 else "C"), decimals, table.gives
    )
    if not several:
        values = np.exp(table.select(ids).log_p[np.arange(len(ids)), labels])
    else:  # as printed: not divided by the sum of the row, nor lifted from 0
        printed = table.values[rows, labels]
        values = np.clip(printed if table.gives == "probabilities" else np.exp(printed), 0, 1)
    return Confidences(round_confidences(values, resolution), resolution, right)


def _read_column(table: Sent, column: str, gives: Gives, ids: Sequence[str]) -> tuple[Floats, float]:
    numbers = table.numbers(column)
    with np.errstate(over="ignore"):
        values = numbers if gives == "probabilities" else np.exp(numbers)
        # In float32, whose rounding may have lifted a sum of probabilities a little above 1.
        single = values.astype(np.float32)
    wrong = np.flatnonzero(~((single >= 0) & (single <= 1)))
    if len(wrong):
        allowed = "in [0, 1]" if gives == "probabilities" else "a natural logarithm, 0 or less"
        raise ValueError(
            f"{table.name}: {column} of image {table.ids[wrong[0]]!r} is {numbers[wrong[0]]:.6g}; it must be "
            f"{allowed}; {len(wrong)} of {len(numbers)} are not"
        )
    resolution = _resolution(table.name, numbers, sent_table.decimals(table.column(column)), gives)
    return values[table.rows(ids)], resolution


def _resolution(name: str, numbers: Floats, decimals: NDArray[np.int64], gives: Gives) -> float:
    """The last place that all numbers have; 0 where every place is there.

    Only numbers from 0.1 on count, where most of a trained model's confidences are: 0.9123 and 1.234e-05 both have four
    digits, but near 1 that is four decimals. A logarithm of four decimals gives the confidence to four, or better.
    """
    near_one = (numbers >= 0.1) & (numbers < 1)
    finest = int(decimals.max())
    last = int(decimals[near_one].max()) if gives == "probabilities" and near_one.any() else finest
    if last == 0 or (gives == "probabilities" and np.isin(numbers, (0, 1)).all()):
        raise ValueError(
            f"{name} has no decimals in its confidences; it must say how probable, not whether it is right"
        )
    # With more decimals below 0.1 nothing has been cut off there either.
    is_whole = last >= DOUBLE or (last >= SINGLE and finest > last)
    return 0.0 if is_whole else float(10.0**-last)


def _check_labels(table: Sent, ids: Sequence[str], labels: Labels) -> None:
    if LABEL not in table.columns:
        return
    given = table.numbers(LABEL)[table.rows(ids)]
    wrong = np.flatnonzero(given != labels)
    if len(wrong):
        first = wrong[0]
        raise ValueError(
            f"{table.name}: label of image {ids[first]!r} is {given[first]:.6g}, and ours is {labels[first]}; "
            f"{len(wrong)} of {len(ids)} differ; usually the model's owner numbers the classes otherwise"
        )
