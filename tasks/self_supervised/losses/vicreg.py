"""VICReg's loss: embeddings of the two views alike, of varied pictures apart, and without redundant dimensions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasks.self_supervised.criterion import VICReg

EPSILON = 1e-4


def loss(config: VICReg, first: Tensor, second: Tensor) -> Tensor:
    """The loss of the embeddings of two views, (n, d) each, n at least 2.

    invariance mean (a - b)^2 + variance [v(a) + v(b)] / 2 + covariance [c(a) + c(b)]

    v(z) = mean_j max(0, 1 - sqrt(var_j z + 1e-4)) and c(z) = sum_{i != j} cov_ij(z)^2 / d, variances and covariances
    over n - 1. Bardes, Ponce & LeCun 2022, "VICReg", eqs. 1, 2, 4 to 6; as in their code, the mean of the squares is
    over n and d, and v has the factor 1/2, both of which eq. 6 does not have.
    """
    total = config.invariance * functional.mse_loss(first, second)
    for view in (first, second):
        centred = view - view.mean(0)
        variances = centred.square().sum(0) / (len(view) - 1)
        total = total + config.variance / 2 * (1 - (variances + EPSILON).sqrt()).relu().mean()
        total = total + config.covariance * covariance(centred, variances)
    return total


def covariance(centred: Tensor, variances: Tensor) -> Tensor:
    """c(z) of embeddings (n, d) whose mean is 0, and of their variances (d,)."""
    n, d = centred.shape
    # |Z'Z| = |ZZ'|: whichever is smaller. Of (1,024, 8,192) the latter is an eighth of the work, a 64th of the memory.
    products = centred.T @ centred if n >= d else centred @ centred.T
    return (products.square().sum() / (n - 1) ** 2 - torch.dot(variances, variances)) / d
