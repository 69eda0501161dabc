"""How often do lower bounds on epsilon exceed the true epsilon, and how high do they reach?

    python -m studies membership_epsilon_coverage [--tiny] [--seed 9000] [--out FILE]

A fair coin includes or excludes each canary. Randomised response reveals the coin with probability delta and otherwise
reports it correctly with probability e^epsilon / (1 + e^epsilon). Canaries with equal reports are ranked at random, so
all thresholds are equally good, which is the hardest case for choosing one. The Gaussian and Laplace mechanisms add
noise to the coin. *All together* reveals all coins with probability delta and otherwise uses randomised response. The
bound by bets or guesses is the one that decides. Invalid bounds are counted for comparison.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.numerics import statistics
from tasks.numerics.epsilon import (
    Mask,
    best_of_guesses,
    betting_bound,
    betting_p_value,
    gaussian_excess,
    gaussian_mu,
    guess_counts,
    one_run_bound,
    one_run_p_value,
)
from tasks.numerics.one_run_epsilon import BETS_OR_GUESSES, attainable_bound, decisive_bound, decisive_p_value

LEVEL = 0.05
Stream = np.random.Generator


Kind = Literal["randomised response", "Gaussian", "Laplace", "all together"]


@dataclass(frozen=True)
class Mechanism:
    """An (epsilon, delta)-private release of the coins of `canaries`. Laplace noise needs no delta."""

    kind: Kind
    epsilon: float
    delta: float
    canaries: int

    def rank(self, stream: Stream) -> Mask:
        """Return the mask of included canaries in order of decreasing likelihood."""
        inside = stream.random(self.canaries) < 0.5
        if self.kind == "Gaussian":
            mu = gaussian_mu(self.epsilon, self.delta)
            return inside[np.argsort(stream.normal(size=self.canaries) - mu * inside)]
        if self.kind == "Laplace":
            return inside[np.argsort(stream.laplace(size=self.canaries) - self.epsilon * inside)]
        if self.kind == "all together" and stream.random() < self.delta:
            return inside[np.argsort(~inside, kind="stable")]
        truly = stream.random(self.canaries) < special.expit(self.epsilon)
        given_away = stream.random(self.canaries) < (self.delta if self.kind == "randomised response" else 0.0)
        score = np.where(truly, inside, ~inside) + np.where(given_away, 2.0 * inside - 1.0, 0.0) * 2
        return inside[np.argsort(-score, kind="stable")]

    @property
    def name(self) -> str:
        delta = f", delta {self.delta:g}" if self.delta else ""
        return f"{self.kind}, epsilon {self.epsilon:g}{delta}"


def rejecting_bounds(mechanism: Mechanism, inside: Mask) -> Iterator[str]:
    """Yield the bounds that exceed the true epsilon."""
    epsilon = mechanism.epsilon
    delta = mechanism.delta
    canaries = mechanism.canaries
    if decisive_p_value(epsilon, inside, delta, LEVEL) <= LEVEL:
        yield BETS_OR_GUESSES
    if betting_p_value(epsilon, inside, delta) <= LEVEL:
        yield "bets"
    counts = guess_counts(canaries)
    correct = [(count, int(inside[:count].sum())) for count in counts]
    if any(one_run_p_value(epsilon, delta, canaries, *item) <= LEVEL / len(counts) for item in correct):
        yield "one run"
    mu = gaussian_mu(epsilon, delta) if mechanism.kind == "Gaussian" else 0.0
    if mu and any(gaussian_excess(mu, canaries, *item, LEVEL / len(counts)) > 0 for item in correct):
        yield "one run, Gaussian"
    if not delta:
        every = np.arange(1, canaries + 1)
        hits = np.cumsum(inside)
        p_values = special.bdtrc(hits - 1, every, special.expit(epsilon))
        if p_values.min() <= LEVEL / canaries:
            yield "Bonferroni over all thresholds"
        if p_values.min() <= LEVEL:
            yield "best threshold, uncorrected"


NAMES = (
    BETS_OR_GUESSES,
    "bets",
    "one run",
    "one run, Gaussian",
    "Bonferroni over all thresholds",
    "best threshold, uncorrected",
)


def count_wrong(mechanism: Mechanism, runs: int, first: int) -> Counter[str]:
    """Count the runs in which each bound exceeds the true epsilon."""
    wrong_count: Counter[str] = Counter()
    for run in range(runs):
        wrong_count.update(rejecting_bounds(mechanism, mechanism.rank(np.random.default_rng((first, run)))))
    return wrong_count


def largest_limit(inside: Mask, level: float) -> float:
    """Return the largest Clopper-Pearson bound over all thresholds, each at this level, for pure epsilon."""
    every = np.arange(1, len(inside) + 1)
    hits = np.cumsum(inside)
    subset = hits > 0
    return float(max(0.0, special.logit(stats.beta.ppf(level, hits[subset], (every - hits + 1)[subset])).max()))


BOUNDS: Mapping[str, Callable[[Mask], float]] = {
    "bets": lambda inside: betting_bound(inside, 0.0, LEVEL),
    "one run": lambda inside: best_of_guesses(one_run_bound, inside, 0.0, LEVEL),
    "Bonferroni over all thresholds": lambda inside: largest_limit(inside, LEVEL / len(inside)),
    "best threshold, uncorrected": lambda inside: largest_limit(inside, LEVEL),
}


def mean_bounds(shift: float, canaries: int, runs: int, first: int) -> dict[str, NDArray[np.float64]]:
    """Compute each bound in each run, where members score N(shift, 1) and others N(0, 1)."""
    bounds: dict[str, list[float]] = {name: [] for name in BOUNDS}
    for run in range(runs):
        stream = np.random.default_rng((first, run))
        inside = stream.random(canaries) < 0.5
        ranking = inside[np.argsort(-stream.normal(shift * inside))]
        for name, bound in BOUNDS.items():
            bounds[name].append(bound(ranking))
    return {name: np.array(values) for name, values in bounds.items()}


def mechanisms(sizes: Sequence[int]) -> Iterator[Mechanism]:
    for canaries in sizes:
        for epsilon in (0.0, 1.0, 4.0):
            yield Mechanism("randomised response", epsilon, 0.0, canaries)
        yield Mechanism("randomised response", 1.0, 1e-5, canaries)
        for epsilon in (1.0, 4.0):
            yield Mechanism("Gaussian", epsilon, 1e-5, canaries)
        yield Mechanism("Laplace", 1.0, 0.0, canaries)


def mechanisms_of_large_delta(sizes: Sequence[int]) -> Iterator[Mechanism]:
    """Yield mechanisms whose delta uses up part or all of the level of the bets."""
    for canaries in sizes:
        for delta in (1e-4, 1e-3):
            for epsilon in (0.0, 1.0, 4.0):
                yield Mechanism("randomised response", epsilon, delta, canaries)
            yield Mechanism("all together", 1.0, delta, canaries)
            for epsilon in (1.0, 4.0):
                yield Mechanism("Gaussian", epsilon, delta, canaries)
            yield Mechanism("Laplace", 1.0, delta, canaries)


def revealed_bounds(sizes: Sequence[int], runs: int, first: int) -> Iterator[str]:
    """Render a table of the largest bounds that an audit can show, which occur if training reveals every coin."""
    yield "Bounds at 95 % if a training reveals every coin: with half of the canaries in, and the least of "
    yield f"{runs} drawn sets of coins:"
    yield ""
    yield "| canaries | delta | canaries x delta / 4 | bets or guesses | least | bets | one run |"
    yield "|---|---|---|---|---|---|---|"
    for canaries in sizes:
        for delta in (1e-5, 1e-4, 1e-3):
            draws = []
            for run in range(runs):
                coins = np.random.default_rng((first, run)).random(canaries) < 0.5
                draws.append(decisive_bound(np.sort(coins)[::-1], delta, LEVEL))
            halves = np.arange(canaries) < canaries // 2
            alone = (betting_bound(halves, delta, LEVEL), best_of_guesses(one_run_bound, halves, delta, LEVEL))
            cells = [attainable_bound(canaries, delta, LEVEL), min(draws), *alone]
            revealed = " | ".join(f"{value:.2f}" for value in cells)
            yield f"| {canaries:,} | {delta:g} | {canaries * delta / 4:.3g} | {revealed} |"


def error_rows(every: Iterable[Mechanism], runs: int, first: int) -> Iterator[str]:
    """Render a table with the number of runs in which each bound exceeds the true epsilon."""
    yield "| mechanism | canaries | " + " | ".join(NAMES) + " |"
    yield "|---" * (2 + len(NAMES)) + "|"
    for mechanism in every:
        wrong_count = count_wrong(mechanism, runs, first)
        cells = []
        for name in NAMES:
            share = statistics.proportion(wrong_count[name], runs)
            is_there = name in NAMES[:3] or not mechanism.delta
            if name == "one run, Gaussian":
                is_there = mechanism.kind == "Gaussian"
            interval = f"[{100 * (share.low or 0):.1f}, {100 * (share.high or 0):.1f}]"
            cells.append(f"{100 * (share.value or 0):.1f} % {interval}" if is_there else "")
        yield f"| {mechanism.name} | {mechanism.canaries:,} | " + " | ".join(cells) + " |"


def markdown(
    sizes: Sequence[int], powered: Sequence[int], runs: int, fewer: int, first: int, few: Sequence[int] = ()
) -> Iterator[str]:
    yield f"Runs of {runs:,} in which a bound at 95 % exceeds the true epsilon, with 95 % Wilson intervals:"
    yield ""
    yield from error_rows(mechanisms(sizes), runs, first)
    if few:
        yield ""
        yield "The same where delta costs the bets a part of their level:"
        yield ""
        yield from error_rows(mechanisms_of_large_delta(few), runs, first)
        yield ""
        yield from revealed_bounds(few, fewer, first)
    yield ""
    yield f"Mean bound over {fewer} runs, members N(shift, 1) and others N(0, 1), delta 0:"
    yield ""
    yield "| shift | canaries | " + " | ".join(BOUNDS) + " |"
    yield "|---" * (2 + len(BOUNDS)) + "|"
    for canaries in powered:
        for shift in (1.0, 2.0, 4.0):
            means = []
            for values in mean_bounds(shift, canaries, fewer, first).values():
                means.append(f"{values.mean():.2f}")
            yield f"| {shift:g} | {canaries:,} | " + " | ".join(means) + " |"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=9000, help="of all runs")
    options = parser.parse_args(arguments)
    setting: dict[str, Any] = measurement_facts("simulated", torch.device("cpu"))
    start = time.process_time()
    if options.tiny:
        sizes = ((100,), (100,), 20, 2)
    else:
        sizes = ((1000, 10_000), (1000, 20_000), 1000, 20)
    few = (100,) if options.tiny else (100, 400, 2000)
    lines = "\n".join(markdown(*sizes, options.seed, few))
    setting["seeds"] = f"({options.seed}, run)"
    setting["cost"] = f"{time.process_time() - start:.0f} s of a core"
    publish_counts("How often lower bounds on epsilon are wrong, and how high they reach", setting, lines, options.out)
