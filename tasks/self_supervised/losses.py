"""Losses of embeddings, by criterion.

- VICReg: embeddings of the two views alike, of varied pictures apart, and without redundant dimensions.
- SimCLR: the other view of a picture is to be found among the views of all pictures.
- Barlow Twins: the cross-correlation of the two views' dimensions is to be the identity.
- BYOL: from one view is predicted what a slow copy of the network makes of the other.
- DINO: the copy's distribution over dimensions, centred and sharpened, is to be met from the other view.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from tasks.self_supervised.criterion import DINO, BarlowTwins, SimCLR, VICReg

VICREG_EPSILON = 1e-4


def vicreg(config: VICReg, first: Tensor, second: Tensor) -> Tensor:
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
        total = total + config.variance / 2 * (1 - (variances + VICREG_EPSILON).sqrt()).relu().mean()
        total = total + config.covariance * covariance(centred, variances)
    return total


def covariance(centred: Tensor, variances: Tensor) -> Tensor:
    """c(z) of embeddings (n, d) whose mean is 0, and of their variances (d,)."""
    n, d = centred.shape
    # |Z'Z| = |ZZ'|: whichever is smaller. Of (1,024, 8,192) the latter is an eighth of the work, a 64th of the memory.
    products = centred.T @ centred if n >= d else centred @ centred.T
    return (products.square().sum() / (n - 1) ** 2 - torch.dot(variances, variances)) / d


def simclr(config: SimCLR, first: Tensor, second: Tensor) -> Tensor:
    """The loss of the embeddings of two views, (n, d) each, in nats: the mean over all 2 n views i with partner j of

    -log [exp(cos(z_i, z_j) / t) / sum_{k != i} exp(cos(z_i, z_k) / t)]

    Chen et al. 2020, "A simple framework for contrastive learning of visual representations", eq. 1 and algorithm 1.
    """
    n = len(first)
    unit = functional.normalize(torch.cat([first, second]), dim=1)
    similarities = unit @ unit.T / config.temperature
    itself = torch.eye(2 * n, dtype=torch.bool, device=unit.device)
    partners = torch.arange(2 * n, device=unit.device).roll(n)
    return functional.cross_entropy(similarities.masked_fill(itself, -torch.inf), partners)


BARLOW_EPSILON = 1e-5  # batch norm's, which the authors standardise embeddings by


def barlow_twins(config: BarlowTwins, first: Tensor, second: Tensor) -> Tensor:
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
    return centred / (centred.square().mean(0) + BARLOW_EPSILON).sqrt()


def byol(predictions: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
    """The loss of the predictions from either view, and of the copy's embeddings of either, (n, d) each:

    mean [2 - 2 cos(p_1, z_2)] + mean [2 - 2 cos(p_2, z_1)]

    Grill et al. 2020, "Bootstrap your own latent", eq. 2, made symmetric as there.
    """
    return sum(
        (2 - 2 * functional.cosine_similarity(prediction, target, dim=1)).mean()
        for prediction, target in zip(predictions, reversed(targets), strict=True)
    )  # type: ignore[return-value]


def teacher_momentum(first: float, progress: float) -> float:
    """The copy's momentum at a share of the schedule, rising from `first` to 1 and never above.

    1 - (1 - first) (cos(pi progress) + 1) / 2. Grill et al. 2020, section 3.3.
    """
    return min(1.0, 1 - (1 - first) * (math.cos(math.pi * min(progress, 1.0)) + 1) / 2)


def dino(
    config: DINO,
    students: tuple[Tensor, Tensor],
    teachers: tuple[Tensor, Tensor],
    centre: Tensor,
    temperature: float,
) -> Tensor:
    """The loss of either view's embeddings by the student and by its slow copy, (n, d) each, in nats:

    the mean over pictures and over both pairs of different views of - sum_k softmax((t - centre) / temperature)_k
    log softmax(s / student temperature)_k

    Caron et al. 2021, "Emerging properties in self-supervised vision transformers", eqs. 1 and 2, with two views.
    """
    total = students[0].new_zeros(())
    for student, teacher in zip(students, reversed(teachers), strict=True):
        wanted = functional.softmax((teacher - centre) / temperature, dim=1)
        total = total - (wanted * functional.log_softmax(student / config.temperature, dim=1)).sum(1).mean() / 2
    return total
