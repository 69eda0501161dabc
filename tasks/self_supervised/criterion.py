"""Criteria of joint-embedding training, each with its settings.

How each of them is computed is in the module of its name in `tasks.self_supervised.losses`. Light enough for plans: it
imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tasks.ranges import above_zero, check_minimums, one_of, share


@dataclass(frozen=True)
class VICReg:
    """Variance, invariance and covariance of embeddings. Bardes et al. 2022, "VICReg", eq. 6."""

    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0
    name: Literal["vicreg"] = field(default="vicreg", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["vicreg"])
        check_minimums(self, dict.fromkeys(("invariance", "variance", "covariance"), 0))


@dataclass(frozen=True)
class SimCLR:
    """Cross-entropy of finding the other view among those of all pictures. Chen et al. 2020, eq. 1."""

    temperature: float = 0.15
    name: Literal["simclr"] = field(default="simclr", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["simclr"])
        above_zero(self, "temperature")


@dataclass(frozen=True)
class BarlowTwins:
    """Distance of the views' cross-correlation from the identity. Zbontar et al. 2021, "Barlow Twins", eq. 1."""

    redundancy: float = 0.0051
    name: Literal["barlow"] = field(default="barlow", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["barlow"])
        check_minimums(self, {"redundancy": 0})


@dataclass(frozen=True)
class BYOL:
    """Prediction of what a slow copy makes of the other view. Grill et al. 2020, "Bootstrap your own latent", eq. 2.

    The copy's momentum rises from `momentum` to 1 over the schedule, by half a cosine. `predictor` has the widths of
    the predictor's layers, the last one the projector's; empty stands for the projector's widths.
    """

    momentum: float = 0.996
    predictor: tuple[int, ...] = ()
    name: Literal["byol"] = field(default="byol", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["byol"])
        share(self, "momentum")
        if any(width < 1 for width in self.predictor):
            raise ValueError(f"predictor is {self.predictor}; it must be widths of at least 1")


@dataclass(frozen=True)
class DINO:
    """Cross-entropy with what a slow copy makes of the other view, centred and sharpened. Caron et al. 2021, eq. 1.

    The copy's temperature rises from `first` to `last` over `rising` epochs, its momentum from `momentum` to 1 over the
    schedule, by half a cosine. There are two views and no smaller crops.
    """

    temperature: float = 0.1
    first: float = 0.04
    last: float = 0.07
    rising: int = 50
    centre: float = 0.9  # momentum of the centre
    momentum: float = 0.996
    name: Literal["dino"] = field(default="dino", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["dino"])
        above_zero(self, "temperature", "first", "last")
        share(self, "centre", "momentum")
        check_minimums(self, {"rising": 0})

    def teacher_temperature(self, epoch: int) -> float:
        """The copy's temperature in an epoch, counted from 1: `first` in the first, `last` from epoch `rising` on."""
        risen = 1.0 if self.rising <= 1 else min(1.0, (epoch - 1) / (self.rising - 1))
        return self.first + (self.last - self.first) * risen


@dataclass(frozen=True)
class Supervised:
    """Cross-entropy of the classes, by batch norm, ReLU and a linear layer on top of the projector. One view."""

    name: Literal["supervised"] = field(default="supervised", kw_only=True)

    def __post_init__(self) -> None:
        one_of(self, "name", Literal["supervised"])


Criterion = VICReg | SimCLR | BarlowTwins | BYOL | DINO | Supervised

NAMES: Mapping[str, type[Criterion]] = {
    "vicreg": VICReg,
    "simclr": SimCLR,
    "barlow": BarlowTwins,
    "byol": BYOL,
    "dino": DINO,
    "supervised": Supervised,
}
