"""The Adam optimiser on flat buffers, in Keras's setting."""

from __future__ import annotations

import torch
from torch import Tensor


class Adam:
    """Steps a buffer of weights along a buffer of slopes: one fused operation for the whole network.

    m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).

    Kingma & Ba 2015, algorithm 1; b1 = 0.9, b2 = 0.999 as there, eps = 1e-7 as in Keras.
    """

    BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-7

    def __init__(self, weights: Tensor, slopes: Tensor, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.buffers = [weights], [slopes], [torch.zeros_like(weights)], [torch.zeros_like(weights)]
        self.taken = torch.zeros((), device=weights.device)  # steps

    def step(self) -> None:
        weights, slopes, means, squares = self.buffers
        self.taken += 1
        # What torch.optim.Adam(fused=True) calls, without its 40 microseconds of bookkeeping.
        torch._fused_adam_(
            weights,
            slopes,
            means,
            squares,
            [],
            [self.taken],
            lr=self.learning_rate,
            beta1=self.BETA1,
            beta2=self.BETA2,
            weight_decay=0.0,
            eps=self.EPSILON,
            amsgrad=False,
            maximize=False,
        )
