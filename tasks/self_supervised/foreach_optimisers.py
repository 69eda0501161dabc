"""Optimisers of the parameters of one torch module, each step fused over all of them (`torch._foreach_*`).

Their running statistics are plain tensors beside the parameters, so that a state can hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from tasks.self_supervised.pretraining_config import OptimiserName

MOMENTUM, TRUST = 0.9, 0.001


class Optimiser(Protocol):
    """Steps parameters along their gradients."""

    @property
    def moments(self) -> Mapping[str, list[Tensor]]:
        """Running statistics, in the order of the parameters."""

    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:
        """One step, `number` counted from 1."""


def optimiser(name: OptimiserName, parameters: list[Tensor], decay: float) -> Optimiser:
    """The optimiser of this name. Parameters of one axis, biases and gains of batch norm, never decay."""
    kinds: Mapping[OptimiserName, Callable[[list[Tensor], float], Optimiser]] = {
        "lars": LARS,
        "sgd": SGD,
        "adamw": AdamW,
    }
    return kinds[name](parameters, decay)


class LARS:
    """Layer-wise adaptive rate scaling: v <- 0.9 v + r (g + decay w), w <- w - rate v, r = 0.001 |w| / |g + decay w|.

    r is 1 where a norm is 0, and for parameters of one axis, which do not decay either. You, Gitman & Ginsburg 2017,
    as in the code of Barlow Twins, VICReg and the audit's paper: the learning rate is outside of the momentum, and the
    second norm is of the sum, in both of which the first paper's algorithm 1 differs.
    """

    def __init__(self, parameters: list[Tensor], decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self.velocity = [torch.zeros_like(weight) for weight in parameters]
        self.moments = {"velocity": self.velocity}
        self.scaled = [at for at, weight in enumerate(parameters) if weight.dim() > 1]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:  # noqa: ARG002
        pulls = list(gradients)
        weights = [self.parameters[at] for at in self.scaled]
        sums = torch._foreach_add([gradients[at] for at in self.scaled], weights, alpha=self.decay)
        sizes, slopes = (torch.stack(torch._foreach_norm(of)) for of in (weights, sums))
        nonzero = (sizes > 0) & (slopes > 0)
        trust = torch.where(nonzero, TRUST * sizes / torch.where(nonzero, slopes, 1), 1)
        torch._foreach_mul_(sums, list(trust.unbind()))
        for at, pull in zip(self.scaled, sums, strict=True):
            pulls[at] = pull
        torch._foreach_mul_(self.velocity, MOMENTUM)
        torch._foreach_add_(self.velocity, pulls)
        torch._foreach_add_(self.parameters, self.velocity, alpha=-rate)


class SGD:
    """Stochastic gradient descent: v <- 0.9 v + g + decay w, w <- w - rate v, as torch.optim.SGD."""

    def __init__(self, parameters: list[Tensor], decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self.velocity = [torch.zeros_like(weight) for weight in parameters]
        self.moments = {"velocity": self.velocity}
        self.decaying = [at for at, weight in enumerate(parameters) if weight.dim() > 1]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:  # noqa: ARG002
        torch._foreach_mul_(self.velocity, MOMENTUM)
        torch._foreach_add_(self.velocity, gradients)
        if self.decay:
            decaying = [self.velocity[at] for at in self.decaying]
            torch._foreach_add_(decaying, [self.parameters[at] for at in self.decaying], alpha=self.decay)
        torch._foreach_add_(self.parameters, self.velocity, alpha=-rate)


class AdamW:
    """Adam with decoupled weight decay: torch.optim.AdamW, whose moments begin before the first step.

    Loshchilov & Hutter 2019, algorithm 2.
    """

    def __init__(self, parameters: list[Tensor], decay: float) -> None:
        self.parameters = parameters
        groups = [
            {"params": [weight for weight in parameters if (weight.dim() > 1) == decaying], "weight_decay": decays}
            for decaying, decays in ((True, decay), (False, 0.0))
        ]
        self.optimiser = torch.optim.AdamW(groups, foreach=True)
        for weight in parameters:
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[weight] = {"step": torch.tensor(0.0), **moments}
        states = [self.optimiser.state[weight] for weight in parameters]
        self.moments = {"mean": [state["exp_avg"] for state in states], "square": [s["exp_avg_sq"] for s in states]}

    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        for weight, gradient in zip(self.parameters, gradients, strict=True):
            weight.grad = gradient
            self.optimiser.state[weight]["step"].fill_(number - 1)
        self.optimiser.step()
