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
from typing import Any, Literal

import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.linear_memorization.gaussian_samples import Array
from tasks.linear_memorization.private_config import Mechanism, Private, settings
from tasks.numerics.statistics import mean
from tasks.worker import hardware

Query = Literal["raw", "ratio"]  # w.[0, y]; the same over 1 - w.e1
QUERIES: tuple[Query, ...] = ("raw", "ratio")

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
        _private_row(config, mechanism, epsilon, query, found[mechanism, epsilon][place])
        for mechanism, epsilon in settings(config)
        for place, query in enumerate(QUERIES)
    ]
    return pa.Table.from_pylist(table, PRIVATE)


def _private_row(
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
