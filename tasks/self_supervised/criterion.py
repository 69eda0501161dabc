"""Criteria of joint-embedding training, each with its settings.

How each of them is computed is in the module of its name in `tasks.self_supervised.losses`. Light enough for plans: it
imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from tasks.contract.ranges import AtLeast, Finite, Ranged, Share


@dataclass(frozen=True)
class VICReg(Ranged):
    """Variance, invariance and covariance of embeddings. Bardes et al. 2022, "VICReg", eq. 6."""

    invariance: Annotated[float, AtLeast(0)] = 25.0
    variance: Annotated[float, AtLeast(0)] = 25.0
    covariance: Annotated[float, AtLeast(0)] = 1.0
    name: Literal["vicreg"] = field(default="vicreg", kw_only=True)


@dataclass(frozen=True)
class SimCLR(Ranged):
    """Cross-entropy of finding the other view among those of all pictures. Chen et al. 2020, eq. 1."""

    temperature: Annotated[float, Finite()] = 0.15
    name: Literal["simclr"] = field(default="simclr", kw_only=True)


@dataclass(frozen=True)
class BarlowTwins(Ranged):
    """Distance of the views' cross-correlation from the identity. Zbontar et al. 2021, "Barlow Twins", eq. 1."""

    redundancy: Annotated[float, AtLeast(0)] = 0.0051
    name: Literal["barlow"] = field(default="barlow", kw_only=True)


@dataclass(frozen=True)
class BYOL(Ranged):
    """Prediction of what a slow copy makes of the other view. Grill et al. 2020, "Bootstrap your own latent", eq. 2.

    The copy's momentum rises from `momentum` to 1 over the schedule, by half a cosine. `predictor` has the widths of
    the predictor's layers, the last one the projector's; empty stands for the projector's widths.
    """

    momentum: Annotated[float, Share()] = 0.996
    predictor: tuple[Annotated[int, AtLeast(1)], ...] = ()
    name: Literal["byol"] = field(default="byol", kw_only=True)


@dataclass(frozen=True)
class DINO(Ranged):
    """Cross-entropy with what a slow copy makes of the other view, centred and sharpened. Caron et al. 2021, eq. 1.

    The copy's temperature rises from `first` to `last` over `rising` epochs, its momentum from `momentum` to 1 over the
    schedule, by half a cosine. There are two views and no smaller crops.
    """

    temperature: Annotated[float, Finite()] = 0.1
    first: Annotated[float, Finite()] = 0.04
    last: Annotated[float, Finite()] = 0.07
    rising: Annotated[int, AtLeast(0)] = 50
    centre: Annotated[float, Share()] = 0.9  # momentum of the centre
    momentum: Annotated[float, Share()] = 0.996
    name: Literal["dino"] = field(default="dino", kw_only=True)

    def teacher_temperature(self, epoch: int) -> float:
        """The copy's temperature in an epoch, counted from 1: `first` in the first, `last` from epoch `rising` on."""
        risen = 1.0 if self.rising <= 1 else min(1.0, (epoch - 1) / (self.rising - 1))
        return self.first + (self.last - self.first) * risen


@dataclass(frozen=True)
class Supervised(Ranged):
    """Cross-entropy of the classes, by batch norm, ReLU and a linear layer on top of the projector. One view."""

    name: Literal["supervised"] = field(default="supervised", kw_only=True)


Criterion = VICReg | SimCLR | BarlowTwins | BYOL | DINO | Supervised

NAMES: Mapping[str, type[Criterion]] = {
    "vicreg": VICReg,
    "simclr": SimCLR,
    "barlow": BarlowTwins,
    "byol": BYOL,
    "dino": DINO,
    "supervised": Supervised,
}
