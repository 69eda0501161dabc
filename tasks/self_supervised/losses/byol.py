"""BYOL's loss: from one view is predicted what a slow copy of the network makes of the other."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional


def loss(predictions: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
    """The loss of the predictions from either view, and of the copy's embeddings of either, (n, d) each:

    mean [2 - 2 cos(p_1, z_2)] + mean [2 - 2 cos(p_2, z_1)]

    Grill et al. 2020, "Bootstrap your own latent", eq. 2, made symmetric as there.
    """
    return sum(
        (2 - 2 * functional.cosine_similarity(prediction, target, dim=1)).mean()
        for prediction, target in zip(predictions, reversed(targets), strict=True)
    )  # type: ignore[return-value]


def momentum(first: float, progress: float) -> float:
    """The copy's momentum at a share of the schedule, rising from `first` to 1 and never above.

    1 - (1 - first) (cos(pi progress) + 1) / 2. Grill et al. 2020, section 3.3.
    """
    return min(1.0, 1 - (1 - first) * (math.cos(math.pi * min(progress, 1.0)) + 1) / 2)
