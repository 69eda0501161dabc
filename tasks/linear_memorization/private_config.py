"""Configuration of private trainings of the linear model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from tasks.contract.extras import OPACUS, Extra
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.linear_memorization.gaussian_samples import Array
from tasks.training.recipe import LARGEST_EPSILON

# randomised_response: pure epsilon, selective on x. output_perturbation: pure epsilon. noisy_descent: (epsilon, delta).
Mechanism = Literal["none", "randomised_response", "output_perturbation", "noisy_descent"]


@dataclass(frozen=True)
class Private(Ranged):
    """Private trainings of the linear model, each with every mechanism and epsilon.

    x is uniform on `values` equidistant values with mean 0 and variance 1. y is uniform on the sphere of radius
    sqrt(`features`), so that the largest norm of z is public. The descent takes `steps` steps of length `time` /
    `steps` along gradients that are clipped to norm `clip`.
    """

    samples: Annotated[int, AtLeast(1)] = 40
    features: Annotated[int, AtLeast(1)] = 80
    values: Annotated[int, AtLeast(2)] = 4
    mechanisms: tuple[Mechanism, ...] = ("none", "randomised_response", "output_perturbation", "noisy_descent")
    epsilons: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    delta: Annotated[float, Share(zero=False, one=False)] = 1e-5
    clip: Annotated[float, Finite()] = 4.0
    steps: Annotated[int, AtLeast(1)] = 100
    time: Annotated[float, Finite()] = 2.0
    seed: Annotated[int, AtLeast(0)] = 0
    trainings: Annotated[int, AtLeast(1)] = 1000

    def conflicts(self) -> Iterator[str]:
        if not self.epsilons or not all(0 < epsilon <= LARGEST_EPSILON for epsilon in self.epsilons):
            yield f"epsilons is {self.epsilons}; each must be above 0 and at most {LARGEST_EPSILON:g}"
        if self.features < self.samples:
            yield (
                f"features is {self.features} and samples {self.samples}; features must be at least samples: "
                "with fewer, training ends in a model without memory"
            )
        if self.step > self.longest_step:
            yield (
                f"time / steps is {self.step:g}; it must be at most {self.longest_step:.4g} (2 / the largest |z|^2), "
                "above which a step separates two models: take more steps"
            )

    def extras(self) -> tuple[Extra, ...]:
        return (OPACUS,) if "noisy_descent" in self.mechanisms else ()

    @property
    def step(self) -> float:
        """The learning rate."""
        return self.time / self.steps

    @property
    def longest_step(self) -> float:
        """2 / max |z|^2, the largest learning rate at which a step does not move two models further apart."""
        return 2 / (self.features + float(levels(self.values)[-1]) ** 2)

    @property
    def entropy(self) -> float:
        """H(X) in nats."""
        return math.log(self.values)


def settings(config: Private) -> Iterator[tuple[Mechanism, float | None]]:
    """Yield each mechanism with each of its epsilons, which is None without privacy."""
    for mechanism in dict.fromkeys(config.mechanisms):
        for epsilon in (None,) if mechanism == "none" else config.epsilons:
            yield mechanism, epsilon


def levels(values: int) -> Array:
    """Return the values of x in increasing order: equidistant, with mean 0 and variance 1."""
    values_of_x: Array = (np.arange(values) - (values - 1) / 2) * np.float64(math.sqrt(12 / (values**2 - 1)))
    return values_of_x
