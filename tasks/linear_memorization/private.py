"""What differential privacy leaves of a linear model's memorization, beside its bounds.

x is uniform on k values, independent of y, so that H(X) = log k nats and an attacker without the model is right once in
k. The attack asks the query [0, y_i] and answers the nearest value; m is its success on the samples of training minus
that on fresh ones.

- Theorem 3.6 and corollary 3.7: mem = I(W; X | Y) <= epsilon nats for a mechanism with pure epsilon, selective on x or
  not. As the paper measures it mem is H(X) m, and epsilon / H(X) bounds m.
- The success itself has a sharper bound. P[answer x | x_i = x] <= e^epsilon P[answer x | x_i = x'] + delta for all
  pairs of values; summed over them, a success r of any attack obeys

      r <= (e^epsilon + (k - 1) delta) / (e^epsilon + k - 1),    and m <= this - 1 / k.

  It holds with a delta too, for which theorem 3.6 is not stated: no pure epsilon is had from (epsilon, delta), and the
  bound in nats is null there. Where delta is 0 it says epsilon >= log(k r) + log((1 - 1/k) / (1 - r)) >= log(k r) for
  r >= 1/k. That is concave in r, 0 at 1/k and log k at 1, hence at least H(X) (r - 1/k): H(X) m <= epsilon.

Where an attack succeeds sometimes, H(X) m is no mutual information, which may be less: the paper assumes that an x is
either answered surely or not at all. Bombari et al. 2022, sections 3.2 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa

from tasks.contract.extras import OPACUS, Extra
from tasks.contract.job import Inputs, task
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.linear_memorization.gaussian_samples import Array
from tasks.numerics.statistics import mean
from tasks.training.recipe import LARGEST_EPSILON
from tasks.worker import hardware

# randomised_response: pure epsilon, selective on x. output_perturbation: pure epsilon. noisy_descent: (epsilon, delta).
Mechanism = Literal["none", "randomised_response", "output_perturbation", "noisy_descent"]
Query = Literal["raw", "ratio"]  # w.[0, y]; the same over 1 - w.e1
QUERIES: tuple[Query, ...] = ("raw", "ratio")


@dataclass(frozen=True)
class Private(Ranged):
    """Private trainings of the linear model, each with every mechanism and epsilon.

    x is uniform on `values` values that are equally far apart, with mean 0 and variance 1; y on the sphere of radius
    sqrt(`features`), so that how long a z can be is public. The descent takes `steps` steps of the length `time` /
    `steps` along gradients that are clipped to the norm `clip`.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epsilons or not all(0 < each <= LARGEST_EPSILON for each in self.epsilons):
            raise ValueError(f"epsilons is {self.epsilons}; each must be above 0 and at most {LARGEST_EPSILON:g}")
        if self.features < self.samples:
            raise ValueError(
                f"features is {self.features} and samples {self.samples}; features must be at least samples: "
                "with fewer, training ends in a model that has memorised nothing"
            )
        if self.step > self.longest_step:
            raise ValueError(
                f"time / steps is {self.step:g}; it must be at most {self.longest_step:.4g} (2 / the largest |z|^2), "
                "beyond which a step moves two models apart; take more steps"
            )

    def extras(self) -> tuple[Extra, ...]:
        return (OPACUS,) if "noisy_descent" in self.mechanisms else ()

    @property
    def step(self) -> float:
        """The learning rate."""
        return self.time / self.steps

    @property
    def longest_step(self) -> float:
        """2 / max |z|^2, up to which a step of gradient descent brings no two weights further apart."""
        return 2 / (self.features + float(levels(self.values)[-1]) ** 2)

    @property
    def entropy(self) -> float:
        """H(X) in nats."""
        return math.log(self.values)


def settings(config: Private) -> Iterator[tuple[Mechanism, float | None]]:
    """The mechanisms with each of their epsilons, None for the one without privacy."""
    for mechanism in dict.fromkeys(config.mechanisms):
        for epsilon in (None,) if mechanism == "none" else config.epsilons:
            yield mechanism, epsilon


def levels(values: int) -> Array:
    """The values of x in rising order, equally far apart, with mean 0 and variance 1."""
    found: Array = (np.arange(values) - (values - 1) / 2) * np.float64(math.sqrt(12 / (values**2 - 1)))
    return found


# One row per mechanism, epsilon and query, over trainings. Null in the columns that a mechanism has nothing for.
PRIVATE = pa.schema(
    [
        ("mechanism", pa.string()),
        ("query", pa.string()),  # raw or ratio
        ("epsilon", pa.float64()),  # null without privacy
        ("delta", pa.float64()),  # null where epsilon is pure
        ("m", pa.float64()),  # r_train - r_validation
        ("low", pa.float64()),  # 95 % t interval over trainings, null for a single one
        ("high", pa.float64()),
        ("r_train", pa.float64()),  # share of right answers
        ("r_validation", pa.float64()),
        ("entropy", pa.float64()),  # H(X) = log k, nats
        ("bound", pa.float64()),  # epsilon / H(X), of m; pure epsilon only
        ("success_bound", pa.float64()),  # of m, by the success of any attack
        ("n", pa.int64()),  # independent trainings, each on its own samples
    ]
)


@task(version=1, name="linear_memorization.private", gpus=1.0)
def private(config: Private, _: Inputs) -> pa.Table:
    """The measured m of every mechanism and epsilon, beside its bounds (PRIVATE).

    All trainings and epsilons are one computation. The default takes ten seconds of one core.
    """
    from tasks.linear_memorization.private_training import successes

    with hardware.exactly(hardware.device()):
        found = successes(config)
    table = [
        private_row(config, mechanism, epsilon, query, found[mechanism, epsilon][place])
        for mechanism, epsilon in settings(config)
        for place, query in enumerate(QUERIES)
    ]
    return pa.Table.from_pylist(table, PRIVATE)


def private_row(
    config: Private, mechanism: Mechanism, epsilon: float | None, query: Query, rates: Array
) -> dict[str, Any]:
    """A row of PRIVATE, from the shares of right answers in training and validation, (2, trainings)."""
    found = mean(rates[0] - rates[1])
    pure = mechanism != "noisy_descent"
    delta = 0.0 if pure else config.delta
    return {
        "mechanism": mechanism,
        "query": query,
        "epsilon": epsilon,
        "delta": None if pure else delta,
        "m": found.value,
        "low": found.low,
        "high": found.high,
        "r_train": float(rates[0].mean()),
        "r_validation": float(rates[1].mean()),
        "entropy": config.entropy,
        "bound": epsilon / config.entropy if epsilon is not None and pure else None,
        "success_bound": None if epsilon is None else success_bound(epsilon, delta, config.values),
        "n": found.n,
    }


def success_bound(epsilon: float, delta: float, values: int) -> float:
    """The largest m that (epsilon, delta) allows any attack on x uniform on so many values.

    (e^epsilon + (k - 1) delta) / (e^epsilon + k - 1) - 1 / k, which randomised response attains where delta is 0.
    """
    others = (values - 1) * math.exp(-epsilon)
    return (1 + others * delta) / (1 + others) - 1 / values
