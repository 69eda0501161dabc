"""The weights that training ends with, in closed form, and the recovery of each x from them and its y.

Training is gradient descent from 0 on L(w) = 1/2n sum (w.z_i - x_i)^2 with z_i = (x_i, y_i). With Y the (n, d) matrix
of the y_i and X the vector of the x_i,

    w* = e1 + v / |v|^2,    v = [-1, Y^+ X],    where X = Y Y^+ X, which d >= n makes almost sure;
    w* = e1                                     elsewhere, as for d < n.

For then Z v = -X + Y Y^+ X = 0, and w* is the part of e1 that is orthogonal to the kernel of Z = [X, Y]. Bombari et al.
2022, appendix B.3, print v = [1, Y^-1 X] below eq. 25: a slip of a sign, by which Z v would be 2 X. Training from 0
never leaves the span of the z_i, which is why it ends in the solution of least norm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

UNEXPLAINED = 1e-7  # |Y Y^+ X - X| / |X| up to which rounding is the reason: X is in the span of Y's columns
LEAST = 16 * float(np.finfo(np.float64).eps)  # of 1 - w.e1: what is smaller is rounding


def converged_weights(x: ArrayLike, y: ArrayLike) -> Array:
    """The weights w* at the end of training, (d + 1,); `x` is (n,) and `y` (n, d). Bombari et al. 2022, eq. 26."""
    direction = kernel_direction(x, y)
    weights = np.zeros(np.shape(y)[1] + 1)
    weights[0] = 1
    return weights if direction is None else weights + direction / (direction @ direction)


def kernel_direction(x: ArrayLike, y: ArrayLike) -> Array | None:
    """v = [-1, Y^+ X], (d + 1,), on which every z_i is 0; None where X is no combination of Y's columns."""
    target, context = check_arrays(x, y)
    coefficients = np.linalg.lstsq(context, target)[0]
    unexplained = np.linalg.norm(context @ coefficients - target)
    if unexplained > UNEXPLAINED * np.linalg.norm(target):
        return None
    return np.concatenate([[-1.0], coefficients])


def raw_answers(weights: ArrayLike, y: ArrayLike) -> Array:
    """The model's answers to the queries [0, y_i], (n,); at the end of training x_i (1 - w*.e1)."""
    answers: Array = np.asarray(y, np.float64) @ np.asarray(weights, np.float64)[1:]
    return answers


def recover_x(weights: ArrayLike, y: ArrayLike) -> Array:
    """Each x_i from the weights and its y_i, (n,): x_i = w.[0, y_i] / (1 - w.e1), where w.z_i = x_i.

    Two queries do: e1, then [0, y_i]. The relative error is that of rounding over 1 - w.e1 = 1 / |v|^2. ValueError
    where 1 - w.e1 is not above rounding: such a model has its answer from x alone, and nothing of it is in the weights.
    """
    left = 1 - float(np.asarray(weights, np.float64)[0])
    if not left >= LEAST:
        raise ValueError(
            f"1 - w.e1 is {left:g}; it must be at least {LEAST:g}: these weights answer from x alone, and no x can be "
            "recovered from them"
        )
    return raw_answers(weights, y) / left


def check_arrays(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Both as arrays; ValueError unless they are n finite numbers and n rows of as many."""
    target, context = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if target.ndim != 1 or context.ndim != 2 or len(target) != len(context) or not context.size:
        raise ValueError(
            f"x has the shape {target.shape} and y {context.shape}; they must be (n,) and (n, d), n and d at least 1"
        )
    if not (np.isfinite(target).all() and np.isfinite(context).all()):
        raise ValueError("x or y holds a number that is not finite; all must be finite")
    return target, context
