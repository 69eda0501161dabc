"""How much a job computes, counted before it runs: what its price is estimated from.

Units have names, such as `train mlp1 on 28x28x1`, of which a machine does so many a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, float]  # of each unit


@dataclass(frozen=True)
class Work:
    """The units of a job.

    `trained` grows with the epoch that a training reaches: a link of a chain has only what it adds to the link before.
    `besides` is what else it computes. Where a training ends by itself, so that nobody knows when, `trained` is what is
    expected, and it is between `least` and `most` times that.
    """

    trained: Amounts = field(default_factory=dict)
    besides: Amounts = field(default_factory=dict)
    least: float = 1.0
    most: float = 1.0

    def beyond(self, before: Work) -> Work:
        """What is left of it after a link that ends earlier."""
        left = {unit: max(0.0, count - before.trained.get(unit, 0.0)) for unit, count in self.trained.items()}
        return Work(left, self.besides, self.least, self.most)

    @property
    def amounts(self) -> Amounts:
        """All units together."""
        both = dict(self.trained)
        for unit, count in self.besides.items():
            both[unit] = both.get(unit, 0.0) + count
        return both


def format_shape(shape: tuple[int, ...]) -> str:
    """`28x28x1`: how a unit says which images it is of."""
    return "x".join(map(str, shape))
