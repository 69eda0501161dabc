"""Memorization of a linear model under differential privacy, compared with its bounds.

x is uniform on k values and independent of y, so H(X) = log k nats, and an attacker without the model is correct once
in k times. The attack sends the query [0, y_i] and answers the nearest value; m is its success rate on training samples
minus that on fresh samples.

- Theorem 3.6 and corollary 3.7: mem = I(W; X | Y) <= epsilon nats for a mechanism with pure epsilon, selective on x or
  not. The paper measures mem as H(X) m, so epsilon / H(X) bounds m.
- The success rate has a sharper bound. P[answer x | x_i = x] <= e^epsilon P[answer x | x_i = x'] + delta for all
  pairs of values. Summed over them, the success rate r of any attack obeys

      r <= (e^epsilon + (k - 1) delta) / (e^epsilon + k - 1),    and m <= this - 1 / k.

  It also holds with a delta, unlike theorem 3.6: (epsilon, delta) implies no pure epsilon, and the bound in nats is
  null. For delta = 0 it implies epsilon >= log(k r) + log((1 - 1/k) / (1 - r)) >= log(k r) for r >= 1/k. This is
  concave in r, 0 at 1/k and log k at 1, and so at least H(X) (r - 1/k): H(X) m <= epsilon.

If an attack succeeds only some of the time, H(X) m is not the mutual information, which may be smaller: the paper
assumes that each x is recovered either with certainty or not at all. Bombari et al. 2022, sections 3.2 and 4.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import pyarrow as pa

from tasks.contract.job import Inputs, Work, task
from tasks.contract.operations import BYTES, PRODUCT
from tasks.linear_memorization.gaussian_samples import Array
from tasks.linear_memorization.private_config import Mechanism, Private, settings
from tasks.numerics.statistics import mean
from tasks.worker import hardware

Query = Literal["raw", "ratio"]  # w.[0, y]; the same divided by 1 - w.e1
QUERIES: tuple[Query, ...] = ("raw", "ratio")

# One row per mechanism, epsilon and query, over trainings. Columns that do not apply to a mechanism are null.
PRIVATE = pa.schema(
    [
        ("mechanism", pa.string()),
        ("query", pa.string()),  # raw or ratio
        ("epsilon", pa.float64()),  # null without privacy
        ("delta", pa.float64()),  # null for pure epsilon
        ("m", pa.float64()),  # r_train - r_validation
        ("low", pa.float64()),  # 95 % t interval over trainings, null for a single training
        ("high", pa.float64()),
        ("r_train", pa.float64()),  # share of correct answers
        ("r_validation", pa.float64()),
        ("entropy", pa.float64()),  # H(X) = log k, nats
        ("bound", pa.float64()),  # epsilon / H(X), upper bound of m; only for pure epsilon
        ("success_bound", pa.float64()),  # upper bound of m for any attack
        ("n", pa.int64()),  # independent trainings, each on its own samples
    ]
)


def work(config: Private) -> Work:
    """Return the work: full-batch steps of every training in every setting, as multiplications."""
    unit = "private linear descent"
    steps = config.trainings * config.steps * len(list(settings(config)))
    # A step takes two products of the samples with the weights, and reads the samples twice, in float64.
    return Work(
        besides={unit: float(steps * config.samples * config.features)},
        operations={unit: {PRODUCT: 4.0, BYTES: 16.0}},
    )


@task(version=1, name="linear_memorization.private", gpus=1.0, work=work)
def private(config: Private, _: Inputs) -> pa.Table:
    """Measure m for every mechanism and epsilon, with its bounds (PRIVATE).

    All trainings and epsilons are one computation. With the default settings, it takes ten seconds on one core.
    """
    from tasks.linear_memorization.private_training import successes

    with hardware.exactly(hardware.device()):
        successes_by_setting = successes(config)
    table = []
    for mechanism, epsilon in settings(config):
        for index, query in enumerate(QUERIES):
            table.append(
                _private_row(config, mechanism, epsilon, query, successes_by_setting[mechanism, epsilon][index])
            )
    return pa.Table.from_pylist(table, PRIVATE)


def _private_row(
    config: Private, mechanism: Mechanism, epsilon: float | None, query: Query, rates: Array
) -> dict[str, Any]:
    """Return a row of PRIVATE from the shares of correct answers in training and validation, (2, trainings)."""
    estimate = mean(rates[0] - rates[1])
    pure = mechanism != "noisy_descent"
    delta = 0.0 if pure else config.delta
    return {
        "mechanism": mechanism,
        "query": query,
        "epsilon": epsilon,
        "delta": None if pure else delta,
        "m": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "r_train": float(rates[0].mean()),
        "r_validation": float(rates[1].mean()),
        "entropy": config.entropy,
        "bound": epsilon / config.entropy if epsilon is not None and pure else None,
        "success_bound": None if epsilon is None else success_bound(epsilon, delta, config.values),
        "n": estimate.n,
    }


def success_bound(epsilon: float, delta: float, values: int) -> float:
    """Return the largest m that (epsilon, delta) allows for any attack, if x is uniform on k values.

    (e^epsilon + (k - 1) delta) / (e^epsilon + k - 1) - 1 / k, which randomised response attains for delta = 0.
    """
    other_weight = (values - 1) * math.exp(-epsilon)
    return (1 + other_weight * delta) / (1 + other_weight) - 1 / values
