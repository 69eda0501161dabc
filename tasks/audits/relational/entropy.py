"""The entropy of answers, which turns m into nats of memorised information."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

ENOUGH = 10.0  # samples for each of exp(H) equally likely answers: "n exp(-H) >> 1" in the paper's assumption 6


def entropy(answers: Sequence[Hashable]) -> float | None:
    """The empirical entropy H(X) of answers in nats; None where there are too few of them to estimate it.

    An empirical entropy is at most log n, whatever the true one: where n exp(-H) is below ENOUGH, most answers occur
    too rarely for it to mean anything. Bombari et al. 2022, assumptions 2 and 6 of section 4.
    """
    n = len(answers)
    if not n:
        return None
    counts = Counter(answers).values()
    nats = math.log(n) - sum(count * math.log(count) for count in counts) / n
    return nats if n * math.exp(-nats) >= ENOUGH else None
