"""Adam, in Keras's setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from tasks.training.parameter_buffer import ParameterBuffer, fill_row


class Adam:
    """m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).

    Kingma & Ba 2015, algorithm 1, with b1 = 0.9 and b2 = 0.999 as there.
    """

    def __init__(self, weights: ParameterBuffer, epsilon: float, beta1: float = 0.9, beta2: float = 0.999) -> None:
        device, models = weights.buffer.device, len(weights.buffer)
        self.weights, self.epsilon = weights, epsilon
        self.beta1, self.beta2 = beta1, beta2
        self.means, self.squares = weights.like(), weights.like()
        self.moments: tuple[ParameterBuffer, ...] = (self.means, self.squares)
        self.steps = torch.zeros(models, device=device)
        self.rates = torch.zeros(models, device=device, dtype=torch.float64)
        self._gradients = None if device.type == "cpu" else weights.like()
        # Rows of one model each, taken apart once: that takes longer than a small step.
        self._parts = [tuple(list(flat.parts(model)) for flat in (weights, *self.moments)) for model in range(models)]
        self._taken = list(self.steps.unbind())

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        if self._gradients is None:
            for model in range(len(self.steps)) if active is None else active.nonzero()[:, 0].tolist():
                self.step_of(model, [gradient[model] for gradient in gradients])
            return
        torch._foreach_copy_(list(self._gradients.views.values()), list(gradients))
        taking = torch.ones_like(self.steps, dtype=torch.bool) if active is None else active
        self.steps += taking
        scale, root = self.corrections()
        buffers = (self.weights.buffer, self._gradients.buffer, self.means.buffer, self.squares.buffer)
        (triton_update() or torch_update)(*buffers, scale, root, taking, self.beta1, self.beta2, self.epsilon)

    def corrections(self) -> tuple[Tensor, Tensor]:
        """lr / (1 - b1^t) and sqrt(1 - b2^t) of each model, both (models,)."""
        taken = self.steps.double().clamp(min=1)
        scale = self.rates / (1 - self.beta1**taken)
        root = (1 - self.beta2**taken).sqrt()
        dtype = self.weights.buffer.dtype
        return scale.to(dtype), root.to(dtype)

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        weights, means, squares = self._parts[model]
        taken = self._taken[model].add_(1)
        # What torch.optim.Adam(fused=True) calls, without its 40 microseconds of bookkeeping.
        torch._fused_adam_(
            weights,
            [fill_row(gradient, len(part)) for gradient, part in zip(gradients, weights, strict=True)],
            means,
            squares,
            [],
            [taken] * len(weights),
            lr=float(self.rates[model]),
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )


Update = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, float, float], None]


@cache
def triton_update() -> Update | None:
    """Adam's update as one Triton kernel; None without Triton, which comes with torch for CUDA."""
    try:
        from tasks.training import kernels
    except ImportError:
        return None
    return kernels.adam


def torch_update(
    weights: Tensor,
    gradients: Tensor,
    means: Tensor,
    squares: Tensor,
    scale: Tensor,
    root: Tensor,
    active: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """The same update in torch's operations; arguments are (models, size) or (models,)."""
    takes = active.to(weights.dtype)[:, None]
    means.lerp_(gradients, (1 - beta1) * takes)
    squares.lerp_(gradients.square(), (1 - beta2) * takes)
    weights.sub_(scale[:, None] * takes * means / (squares.sqrt().div_(root[:, None]).add_(epsilon)))
