"""Exact confidence intervals of the rates that benchmarks and studies count."""

from __future__ import annotations

from tasks.numerics.statistics import proportion_at_least


def clopper_pearson(successes: int, n: int) -> tuple[float, float]:
    """The exact 95 % interval of the probability behind successes / n.

    Clopper & Pearson 1934.
    """
    return proportion_at_least(successes, n, 0.975), 1 - proportion_at_least(n - successes, n, 0.975)
