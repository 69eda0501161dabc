"""The settings of the paper's linear model, which is trained in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.ranges import check_minimums

TINY = 40  # samples and features at most


@dataclass(frozen=True)
class Linear:
    """Which linear models are trained, without and with privacy."""

    sizes: tuple[tuple[int, int], ...] = ((300, 2000), (1000, 1000))
    """Pairs of samples n and features d, by default those of figure 5."""
    trainings: int = 20
    """Trainings of each, on samples of its own."""
    per_decade: int = 10
    """Points of its curves for every factor of ten in time."""
    epsilons: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    """The epsilons of the private model, a small one."""
    private_trainings: int = 1000
    """Trainings at each epsilon."""

    def __post_init__(self) -> None:
        check_minimums(self, {"trainings": 1, "per_decade": 1, "private_trainings": 1})
        if not self.sizes or any(samples < 1 or features < 1 for samples, features in self.sizes):
            raise ValueError(f"sizes is {self.sizes}; it must be pairs of samples and features, each at least 1")
        if not self.epsilons or any(not epsilon > 0 for epsilon in self.epsilons):
            raise ValueError(f"epsilons is {self.epsilons}; each must be above 0, and there must be one")

    def tiny(self) -> Linear:
        """The same with small models, and few of them; which of samples and features are more is kept."""
        sizes = tuple(
            (max(2, TINY * samples // max(samples, features)), max(2, TINY * features // max(samples, features)))
            for samples, features in self.sizes
        )
        return replace(
            self,
            sizes=sizes,
            trainings=min(self.trainings, 4),
            per_decade=min(self.per_decade, 3),
            epsilons=self.epsilons[:2],
            private_trainings=min(self.private_trainings, 20),
        )
