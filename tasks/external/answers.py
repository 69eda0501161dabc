"""A classifier's answers for images as log-probabilities, whatever their form, and how many of them were not finite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.external.model_file import Gives

Floats = NDArray[np.float64]

TOLERANCE = 1e-3  # of a row's sum of probabilities
FLOOR = float(np.finfo(np.float32).smallest_subnormal)  # 1.4e-45: a softmax in float32 says 0 below it


@dataclass(frozen=True, eq=False)
class Answers:
    """The log-probabilities (n, classes) in nats; each row's probabilities sum to 1.

    A probability of exactly 0 would make every divergence infinite, though it only says that it was too small to be
    written: `floored` of the n * classes were, and stand at `floor` (before each row was divided by its sum).
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
    named: Callable[[int], str] = "row {}".format,
) -> Answers:
    """Answers for so many rows: (rows, classes), or (rows, 1) or (rows,) for the second of two classes.

    Probabilities may miss a sum of 1 by the tolerance and are divided by it. ValueError, in one line that begins with
    `where`, for another shape, what is not finite, or rows that do not sum to 1: it names the first and counts them.
    """
    values = np.asarray(outputs, np.float64)
    shape = values.shape
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != rows or not values.shape[1]:
        raise ValueError(f"{where} gives {shape} for {rows} images; expected ({rows}, classes)")
    columns = max(values.shape[1], 2)
    if classes is not None and columns != classes:
        raise ValueError(f"{where} gives {values.shape[1]} columns, but there are {classes} classes")
    is_number = np.isfinite(values) | (np.isneginf(values) if gives == "log-probabilities" else False)
    _refuse(~is_number.all(1), values, where, "are not all finite", named)
    if gives == "logits":
        return _from_logits(values, where, floor)
    if gives == "probabilities":
        outside = ((values < -tolerance) | (values > 1 + tolerance)).any(1)
        _refuse(outside, values, where, "are not all probabilities, in [0, 1]", named)
        p = np.clip(values, 0, None)
        if values.shape[1] == 1:
            p = np.hstack([1 - np.minimum(p, 1), p])
        _refuse(np.abs(p.sum(1) - 1) > tolerance, p, where, "do not sum to 1", named, p.sum(1))
        with np.errstate(divide="ignore"):
            return _apply_floor(np.log(p), floor)
    if values.shape[1] == 1:
        _refuse(values[:, 0] > tolerance, values, where, "are not logarithms of probabilities, 0 or less", named)
        p = -np.expm1(np.minimum(values, 0))
        with np.errstate(divide="ignore"):
            return _apply_floor(np.hstack([np.log(p), values]), floor)
    with np.errstate(over="ignore"):
        sums = np.exp(values).sum(1)
    wrong = ~(np.abs(sums - 1) <= tolerance)
    _refuse(wrong, values, where, "are no log-probabilities: their exponentials do not sum to 1", named, sums)
    return _apply_floor(values, floor)


def _from_logits(values: Floats, where: str, floor: float) -> Answers:
    if values.shape[1] == 1:
        values = np.hstack([np.zeros_like(values), values])
    elif (values >= 0).all() and (np.abs(values.sum(1) - 1) <= TOLERANCE).all() and (values != values[0]).any():
        # A second softmax would flatten every answer without a sign of it. Rows that are all alike prove nothing.
        raise ValueError(f"{where} gives rows that sum to 1 and none below 0; these are probabilities, not logits")
    return Answers(log_softmax(values), 0, floor)


def _apply_floor(log_p: Floats, floor: float) -> Answers:
    zero = np.isneginf(log_p)
    return Answers(log_softmax(np.where(zero, np.log(floor), log_p)), int(zero.sum()), floor)


def log_softmax(logits: Floats) -> Floats:
    """log softmax(logits) along the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def _refuse(
    wrong: Any,  # (rows,) bool
    values: Floats,
    where: str,
    what: str,
    named: Callable[[int], str],
    sums: Floats | None = None,
) -> None:
    if not wrong.any():
        return
    first = int(wrong.argmax())
    shown = ", ".join(f"{value:.6g}" for value in values[first, :6]) + (", ..." if values.shape[1] > 6 else "")
    total = "" if sums is None else f" (sum {sums[first]:.6g})"
    raise ValueError(
        f"{where}: the numbers of {named(first)} {what}: {shown}{total}; so are {int(wrong.sum())} of {len(wrong)} rows"
    )
