"""Optimiser configs: the values that a recipe takes beside "adam" and "rmsprop", with their settings.

The learning rate and its schedule are the recipe's, one for all optimisers. How each of them computes a step is in the
module of its name in `tasks.training.optimisers`. Light enough for plans: it imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from tasks.ranges import above_zero, at_least, one_of, share

Decayed = Literal["matrices", "all"]


@dataclass(frozen=True)
class WeightDecay:
    """Which weights a step pulls towards 0, and by which coefficient.

    By default only `matrices` decay, that is, tensors with two or more axes; biases and the gains of normalisation do
    not. Nor do tensors whose names match one of the patterns in `exempt`, such as "embedding.*".
    """

    coefficient: float = 0.0
    decayed: Decayed = "matrices"
    exempt: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        at_least(self, {"coefficient": 0})
        one_of(self, "decayed", Decayed)

    def of(self, name: str, shape: tuple[int, ...]) -> float:
        """The coefficient of the tensor of this name and shape."""
        spared = self.decayed == "matrices" and not is_matrix(shape)
        spared = spared or any(fnmatchcase(name, pattern) for pattern in self.exempt)
        return 0.0 if spared else self.coefficient


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Whether a tensor has rows and columns: kernels of convolutions do, biases and gains of normalisation do not."""
    return len(shape) >= 2


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum, as torch.optim.SGD: weight decay adds to the gradient."""

    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: WeightDecay = WeightDecay()
    name: Literal["sgd"] = field(default="sgd", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["sgd"])
        share(self, "momentum", one=False)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is True and momentum is 0; Nesterov's step needs a momentum above 0")


@dataclass(frozen=True)
class LARS:
    """Layer-wise adaptive rate scaling: each matrix moves by `trust` of its own norm. You, Gitman & Ginsburg 2017.

    Biases and the gains of normalisation move as in SGD with momentum.
    """

    momentum: float = 0.9
    trust: float = 0.001  # the trust coefficient eta
    weight_decay: WeightDecay = WeightDecay(5e-4)
    name: Literal["lars"] = field(default="lars", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["lars"])
        share(self, "momentum", one=False)
        above_zero(self, "trust")


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay: a step subtracts the learning rate times the coefficient times the weight.

    Loshchilov & Hutter 2019, algorithm 2, as torch.optim.AdamW.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: WeightDecay = WeightDecay(0.01)
    name: Literal["adamw"] = field(default="adamw", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["adamw"])
        share(self, "beta1", "beta2", one=False)
        above_zero(self, "epsilon")


@dataclass(frozen=True)
class Adafactor:
    """Adam without momentum whose second moments are kept by rows and columns. Shazeer & Stern 2018, algorithms 4 to 6.

    Steps are relative by default: the root mean square of each tensor (at least `epsilon2`) times the learning rate,
    and that at most 1 / sqrt(step); the published learning rate is 0.01. Without `relative_step` the learning rate is
    the size of a step. Weight decay is decoupled, as in AdamW.
    """

    relative_step: bool = True
    beta2_decay: float = 0.8  # the second moments' decay is 1 - step^-0.8
    clip: float = 1.0  # of the root mean square of a tensor's update
    epsilon1: float = 1e-30  # added to squared gradients
    epsilon2: float = 1e-3
    weight_decay: WeightDecay = WeightDecay()
    name: Literal["adafactor"] = field(default="adafactor", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["adafactor"])
        above_zero(self, "beta2_decay", "clip", "epsilon1", "epsilon2")


OptimiserConfig = SGD | LARS | AdamW | Adafactor
