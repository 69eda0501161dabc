"""How often does testing again after more pairs accuse or clear wrongly?

    python -m studies unique_feature_repeated_testing [--tiny] [--seed 9000] [--audits 4000] [--out FILE]

Pairs are simulated and judged by the rules of `unique_feature`, without any training. Without memorisation, a pair's
effect is normal around 0 with a spread of .2 nats, and its rank is uniform among 4,001. With memorisation, a stated
fraction of canaries has p of at most 5 % (`unique_feature_sequential_stopping`). In earlier versions, every look used
the rules for a fixed number of pairs. Now the first look uses these rules, and later looks use the bets on all ranks.
In an audit, later looks bet on effects reduced by the smallest relevant effect. Their p-values are at least as large,
so the false accusations counted here are upper bounds. A clearance uses only the interval, as if all ranks were random,
and the true effect is the smallest relevant one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.unique_feature.pairs.answer import ONE_SIDE
from tasks.audits.unique_feature.pairs.evidence import LEAST, SURELY
from tasks.audits.unique_feature.population import FDR, LEVEL, SMALLEST
from tasks.contract.looks import clearing_level
from tasks.numerics import betting, statistics
from tasks.numerics.ranks import false_discovery_control

Floats = NDArray[np.float64]
SPREAD = 0.2
OTHERS = 4000
RAISED = (12, 24, 48, 96)
EVERY_SECOND = tuple(range(LEAST, 97, 2))
SPREADS = (0.05, 0.1, 0.15)  # spread of a pair's effect, whose mean is SMALLEST


@dataclass(frozen=True)
class Pairs:
    """Effects and p-values of simulated pairs, both (audits, pairs)."""

    effects: Floats
    p_values: Floats


def draw_null(audits: int, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    shape = (audits, max(RAISED))
    return Pairs(rng.normal(0, SPREAD, shape), rng.integers(1, OTHERS + 2, shape) / (OTHERS + 1))


def draw_remembered(audits: int, power: float, seed: int) -> Pairs:
    """Draw pairs without an effect, where a fraction `power` has p of at most 5 %."""
    rng = np.random.default_rng(seed)
    shape = (audits, max(RAISED))
    strength = stats.norm.isf(LEVEL) - stats.norm.isf(power)
    ahead = rng.binomial(OTHERS, stats.norm.sf(rng.normal(strength, 1, shape)))
    return Pairs(rng.normal(0, SPREAD, shape), (1 + ahead) / (OTHERS + 1))


def lower_ends(effects: Floats, level: float) -> Floats:
    """Return the lower end of Student's interval over the pairs, at this level on each side, (audits,)."""
    mean, half = interval(effects, level)
    return mean - half


def interval(effects: Floats, level: float) -> tuple[Floats, Floats]:
    n = effects.shape[1]
    half = stats.t(n - 1).isf(level) * effects.std(axis=1, ddof=1) / np.sqrt(n)
    return effects.mean(axis=1), half


def accuse_by_rules(pairs: Pairs, count: int) -> NDArray[np.bool_]:
    """Return the mask of audits accused by the rules for a fixed number, using the first `count` pairs, (audits,)."""
    p_values = pairs.p_values[:, :count]
    by_effect = lower_ends(pairs.effects[:, :count], ONE_SIDE) > 0
    by_calls = np.array([false_discovery_control(row).min() <= FDR for row in p_values])
    small = (p_values <= LEVEL).sum(axis=1)
    by_small_ranks = stats.binom.sf(small - 1, count, LEVEL) <= SURELY
    return by_effect | by_calls | by_small_ranks


def accuse_by_bets(pairs: Pairs, count: int) -> NDArray[np.bool_]:
    """Return the mask of audits accused by the bets on all ranks, using the first `count` pairs, (audits,)."""
    total = [betting.total_evidence(row) for row in pairs.p_values[:, :count].tolist()]
    return np.array([betting.is_decided(item, LEVEL) for item in total])


def count_accused(pairs: Pairs, looks: Sequence[int], is_spent: bool) -> list[int]:
    """Count the audits accused at or before each look."""
    accused = np.zeros(len(pairs.effects), bool)
    counts = []
    for number, count in enumerate(looks, start=1):
        accuse = accuse_by_bets if is_spent and number > 1 else accuse_by_rules
        accused |= accuse(pairs, count)
        counts.append(int(accused.sum()))
    return counts


def count_cleared(audits: int, spread: float, looks: Sequence[int], is_spent: bool, seed: int) -> int:
    """Count the audits with an effect of SMALLEST that the interval clears at any look."""
    effects = np.random.default_rng(seed).normal(SMALLEST, spread, (audits, max(looks)))
    cleared = np.zeros(audits, bool)
    for number, count in enumerate(looks, start=1):
        mean, half = interval(effects[:, :count], clearing_level(number if is_spent else 1))
        cleared |= (mean + half < SMALLEST) & (half < SMALLEST)
    return int(cleared.sum())


def share(count: int, total: int) -> str:
    rate = statistics.proportion(count, total)
    percent = [100 * (value or 0) for value in (rate.value, rate.low, rate.high)]
    return f"{count:,} ({percent[0]:.3g} % [{percent[1]:.3g}, {percent[2]:.3g}])"


def markdown(audits: int, seed: int) -> Iterator[str]:
    """Render the tables of accusations and clearances."""
    yield f"| pairs, {audits:,} audits | rules at every look | rules, then bets |"
    yield "|---" * 3 + "|"
    null = draw_null(audits, seed)
    cases = [("nothing memorised", null)]
    cases += [
        (f"p at most 5 % in {100 * power:g} % of canaries", draw_remembered(audits, power, seed + 1 + index))
        for index, power in enumerate((0.15, 0.3))
    ]
    for name, pairs in cases:
        before = count_accused(pairs, RAISED, False)
        now = count_accused(pairs, RAISED, True)
        for index in range(len(RAISED)):
            looked = " to ".join(map(str, RAISED[: index + 1]))
            yield f"| {name}, {looked}: accused | {share(before[index], audits)} | {share(now[index], audits)} |"
    before = count_accused(null, EVERY_SECOND, False)[-1]
    now = count_accused(null, EVERY_SECOND, True)[-1]
    ends = f"every second from {EVERY_SECOND[0]} to {EVERY_SECOND[-1]}"
    yield f"| nothing memorised, {ends}: accused | {share(before, audits)} | {share(now, audits)} |"
    yield ""
    yield f"| `--most` raised, true effect {SMALLEST:g} nats | spread | 2.5 % at every look | 5 % / 2^n at look n |"
    yield "|---" * 4 + "|"
    schedules = (("48 alone", (48,)), ("6, 12, 24, 48", (6, 12, 24, 48)), ("6 to 48", tuple(range(LEAST, 49))))
    for index, spread in enumerate(SPREADS):
        for name, looks in schedules:
            every = count_cleared(audits, spread, looks, False, seed + 10 + index)
            spent = count_cleared(audits, spread, looks, True, seed + 10 + index)
            yield f"| {name}: cleared | {spread:g} | {share(every, audits)} | {share(spent, audits)} |"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=9000, help="of the first case; the next has the next one")
    parser.add_argument("--audits", type=int, default=4000, help="simulated audits of each case")
    options = parser.parse_args(arguments)
    audits = 20 if options.tiny else options.audits
    setting = measurement_facts("simulated", torch.device("cpu")) | {"seeds": f"from {options.seed} on"}
    publish_counts("Repeated looks", setting, "\n".join(markdown(audits, options.seed)) + "\n", options.out)
