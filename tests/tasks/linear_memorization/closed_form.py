"""Final weights of training from 0 in closed form, as a reference.

With Y the (n, d) matrix of the y_i and X the vector of the x_i,

    w* = e1 + v / |v|^2,    v = [-1, Y^+ X],    where X = Y Y^+ X, which d >= n makes almost sure;
    w* = e1                                     elsewhere, as for d < n.

For then Z v = -X + Y Y^+ X = 0, and w* is the part of e1 that is orthogonal to the kernel of Z = [X, Y]. Bombari et al.
2022, appendix B.3, print v = [1, Y^-1 X] below eq. 25: a slip of a sign, by which Z v would be 2 X.
"""

import numpy as np


def kernel_direction(z: np.ndarray) -> np.ndarray | None:
    """Return v, (d + 1,), with z_i v = 0 for all i; None if X is not a combination of the columns of Y."""
    x, y = z[:, 0], z[:, 1:]
    coefficients = np.linalg.lstsq(y, x)[0]
    if np.linalg.norm(y @ coefficients - x) > 1e-7 * np.linalg.norm(x):
        return None
    return np.concatenate([[-1.0], coefficients])


def converged_weights(z: np.ndarray) -> np.ndarray:
    """Return w*, (d + 1,), for samples (n, d + 1). Bombari et al. 2022, eq. 26."""
    direction = kernel_direction(z)
    first = np.eye(z.shape[1])[0]
    return first if direction is None else first + direction / (direction @ direction)
