"""Barlow Twins' loss: the cross-correlation of the two views' dimensions is to be the identity."""

from __future__ import annotations

from torch import Tensor

from tasks.self_supervised.criterion import BarlowTwins

EPSILON = 1e-5  # batch norm's, which the authors standardise embeddings by


def loss(config: BarlowTwins, first: Tensor, second: Tensor) -> Tensor:
    """The loss of the embeddings of two views, (n, d) each:

    sum_i (1 - C_ii)^2 + redundancy sum_{i != j} C_ij^2

    where C_ij is the correlation of dimension i of the one with j of the other, over n. Zbontar et al. 2021, "Barlow
    Twins", eqs. 1 and 2; as in their algorithm 1, by standardised embeddings.
    """
    n, d = first.shape
    a, b = standardise(first), standardise(second)
    diagonal = (a * b).sum(0) / n
    # |A'B|^2 = <AA', BB'>: whichever factors are smaller.
    squares = (a.T @ b).square().sum() if n >= d else ((a @ a.T) * (b @ b.T)).sum()
    on, off = (1 - diagonal).square().sum(), squares / n**2 - diagonal.square().sum()
    return on + config.redundancy * off


def standardise(embeddings: Tensor) -> Tensor:
    """Embeddings (n, d) with mean 0 and variance 1 in each dimension, the variance over n."""
    centred = embeddings - embeddings.mean(0)
    return centred / (centred.square().mean(0) + EPSILON).sqrt()
