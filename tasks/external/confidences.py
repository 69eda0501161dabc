"""Read confidences (a model's probabilities of the true classes) that its owner returned, as CSV or Parquet.

A table has one row per image. It contains all outputs of the model (`tasks.external.outputs`) or, if its owner knows
the labels, only the confidences: column `image` with `confidence` or `log_confidence` (natural logarithms), or a column
whose name is passed to `read`. If there is a column `label`, it must agree with the labels of the audit.
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
# Below 1, a float32 has eight decimals and a float64 at most sixteen.
SINGLE = 8
DOUBLE = 16


@dataclass(frozen=True, eq=False)
class Confidences:
    """The probability of the true class for each image, (images,) in [0, 1], as printed."""

    values: Floats
    resolution: float  # last printed decimal place, 0 if all places are printed
    right: NDArray[np.bool_] | None = None  # whether the true class is the likeliest; None if unknown


def read(
    file: File, ids: Sequence[str], labels: Labels, columns: Sequence[str] = (), gives: Gives = "probabilities"
) -> Confidences:
    """Read the confidences of these images, in this order, from a `.csv` or `.parquet` file, and check every row.

    `columns` and `gives` are as in `tasks.external.outputs.read_outputs`. A single column contains the confidences.
    Raises ValueError, with the first bad row and the number of bad rows, in the same cases as that function, and also
    for confidences outside [0, 1] or without decimals, labels that differ from the audit's, and too few classes for the
    labels.
    """
    table = read_sent(file)
    _check_labels(table, ids, labels)
    alone = _true_class_column(table, columns, gives)
    if alone is None:
        return _read_classes(outputs_of(table, columns, gives), ids, labels)
    values, resolution = _read_column(table, *alone, ids)
    return Confidences(round_confidences(values, resolution), resolution)


def round_confidences(values: Floats, resolution: float) -> Floats:
    """Round confidences to float32 and, if a resolution (a power of ten) is given, to its nearest multiple.

    Two models can only be compared at the same precision. A float32 softmax is 1 for all values within 3e-8 of 1, and
    one printed to four decimals is 1 for all values within 5e-5. If another model is slightly less confident about the
    same images, only the printed precision distinguishes the two, and a distance between distributions counts each of
    these images. Rounding is half to even, so that a number that was printed with these decimals and read back is the
    same float64: a float32 times a power of ten below 10^13 is exact in float64.
    """
    single: Floats = values.astype(np.float32).astype(np.float64)
    if not resolution:
        return single
    scale = 10.0 ** round(-np.log10(resolution))
    nearest: Floats = np.rint(single * scale) / scale
    return nearest


def _true_class_column(table: Sent, columns: Sequence[str], gives: Gives) -> tuple[str, Gives] | None:
    """Return the column of confidences and the kind of its numbers, or None if the table contains all classes."""
    if len(columns) > 1:
        return None
    if columns:
        return _find_column(table, columns[0], gives), gives
    single = [column for column in ALONE if column in table.columns]
    other_columns = []
    for column in table.columns:
        if column not in IGNORED and column not in single[:1]:
            other_columns.append(column)
    if single and other_columns:
        raise ValueError(
            f"{table.name} has the column {other_columns[0]!r} ({len(other_columns)} such columns) in addition to "
            f"{single[0]}; allowed are {', '.join(IGNORED)}"
        )
    if single:
        return single[0], ALONE[single[0]]
    if not any(column in LISTS or COLUMN.fullmatch(column) for column in other_columns):
        raise ValueError(
            f"{table.name} has no confidences; expected image and p0, p1, ... or logit0, ... or logp0, ... or, for the "
            f"true class only, confidence or log_confidence; found {', '.join(table.columns) or 'only image'}"
        )
    return None


def _find_column(table: Sent, column: str, gives: Gives) -> str:
    (column,) = spell_columns([column])
    if column not in table.columns:
        raise ValueError(f"{table.name} has no column {column!r}; it has {', '.join(table.columns)}")
    if gives == "logits":
        raise ValueError(f"{table.name}: column {column!r} contains logits; a single logit is not a confidence")
    return column


def _read_classes(table: Outputs, ids: Sequence[str], labels: Labels) -> Confidences:
    rows = table.returned_table.rows(ids)
    if labels.max() >= table.classes:
        raise ValueError(
            f"{table.name} has {table.classes} classes, but the labels reach up to {labels.max()}; "
            f"expected at least {labels.max() + 1} classes"
        )
    check_class_order(table.values[rows], labels, table.name, "order its columns by our class numbers")
    has_all_classes = table.values.shape[1] > 1
    largest = table.values[rows].max(axis=1)
    right = None
    if has_all_classes:
        right = np.asarray(table.values[rows, labels] == largest)
    if table.gives == "logits":
        # Rounding a logit by d changes p by p (1 - p) d, so p is not cut off at 1.
        values = np.exp(table.select(ids).log_p[np.arange(len(ids)), labels])
        return Confidences(round_confidences(values, 0.0), 0.0, right)
    decimals = np.concatenate([sent_table.decimals(table.returned_table.column(column)) for column in table.columns])
    resolution = _resolution(
        table.name, table.values.ravel("F" if len(table.columns) > 1 else "C"), decimals, table.gives
    )
    if not has_all_classes:
        values = np.exp(table.select(ids).log_p[np.arange(len(ids)), labels])
    else:  # as printed: neither divided by the row's sum nor floored
        printed = table.values[rows, labels]
        values = np.clip(printed if table.gives == "probabilities" else np.exp(printed), 0, 1)
    return Confidences(round_confidences(values, resolution), resolution, right)


def _read_column(table: Sent, column: str, gives: Gives, ids: Sequence[str]) -> tuple[Floats, float]:
    numbers = table.numbers(column)
    with np.errstate(over="ignore"):
        values = numbers if gives == "probabilities" else np.exp(numbers)
        # In float32, because rounding may raise a sum of probabilities slightly above 1.
        single = values.astype(np.float32)
    invalid_rows = np.flatnonzero(~((single >= 0) & (single <= 1)))
    if len(invalid_rows):
        allowed = "of at most 0 (a natural logarithm)"
        if gives == "probabilities":
            allowed = "in [0, 1]"
        raise ValueError(
            f"{table.name}: {column} of image {table.ids[invalid_rows[0]]!r} is {numbers[invalid_rows[0]]:.6g}; "
            f"expected a value {allowed}; {len(invalid_rows)} of {len(numbers)} are not"
        )
    resolution = _resolution(table.name, numbers, sent_table.decimals(table.column(column)), gives)
    return values[table.rows(ids)], resolution


def _resolution(name: str, numbers: Floats, decimals: NDArray[np.int64], gives: Gives) -> float:
    """Return the last decimal place of the numbers, or 0 if all places are printed.

    Only numbers of at least 0.1 count, where most confidences of a trained model are: 0.9123 and 1.234e-05 both have
    four significant digits, which near 1 are four decimals. A logarithm with four decimals determines the confidence to
    at least four decimals.
    """
    near_one = (numbers >= 0.1) & (numbers < 1)
    finest = int(decimals.max())
    if gives == "probabilities" and near_one.any():
        last = int(decimals[near_one].max())
    else:
        last = finest
    if last == 0 or (gives == "probabilities" and np.isin(numbers, (0, 1)).all()):
        raise ValueError(
            f"{name} has no decimals in its confidences; expected probabilities, not whether the model is right"
        )
    # If there are more decimals below 0.1, the numbers are printed in full.
    is_whole = last >= DOUBLE or (last >= SINGLE and finest > last)
    return 0.0 if is_whole else float(10.0**-last)


def _check_labels(table: Sent, ids: Sequence[str], labels: Labels) -> None:
    if LABEL not in table.columns:
        return
    owner_labels = table.numbers(LABEL)[table.rows(ids)]
    different_rows = np.flatnonzero(owner_labels != labels)
    if len(different_rows):
        first = different_rows[0]
        raise ValueError(
            f"{table.name}: label of image {ids[first]!r} is {owner_labels[first]:.6g}, and ours is {labels[first]}; "
            f"{len(different_rows)} of {len(ids)} differ; usually the model's owner numbers the classes differently"
        )
