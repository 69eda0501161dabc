"""SimCLR's loss: the other view of a picture is to be found among the views of all pictures."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasks.self_supervised.criterion import SimCLR


def loss(config: SimCLR, first: Tensor, second: Tensor) -> Tensor:
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
