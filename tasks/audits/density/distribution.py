"""How the scores lie over all observations, at every epoch at which the models were asked.

After the last epoch each statistic comes with what it is where nothing is memorised: its mean over redrawings of which
model held each observation out. Of the matched-count score only the mean is 0 there; its median is not, since V has
another shape than the mean over draws.

Intervals are the jackknife over repetitions. In simulated nulls the 95 % interval of the mean, the median and the
quantiles covers what is true in 92 to 100 % of cases; that of the skewness in 77 to 93 %, of the extremes in 64 to 94
%. So these have none, and nor has a quantile with too few observations beyond it, which is an extreme too.

Source. Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.2, figure 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks import seeds, statistics
from tasks.audits.density.folds import Alone, Answers, Block, Folds, labels
from tasks.audits.density.gain import Gain
from tasks.audits.density.memorization import Array, matched, terms
from tasks.audits.density.reassignment import reassigned
from tasks.job import Inputs, task
from tasks.statistics import Estimate

REASSIGNMENTS = 20  # redrawings that a null is the mean of
SCORES = ("published", "matched")
BEYOND = 5  # observations beyond a quantile, for it to have an interval
SHARES = (0.05, 0.25, 0.75, 0.95, 0.999)

DISTRIBUTION = pa.schema(
    [
        ("epoch", pa.int32()),
        ("score", pa.string()),  # published, matched; gain: of log p, by training on the observation
        ("label", pa.int32()),  # null: of all observations
        ("statistic", pa.string()),  # mean, median, skewness, lowest, highest, quantile 0.95 ...
        ("estimate", pa.float64()),
        ("low", pa.float64()),  # 95 %: jackknife over repetitions; of the gain t; null where there is no sound one
        ("high", pa.float64()),
        ("n", pa.int64()),  # repetitions
        ("observations", pa.int64()),
        ("null", pa.float64()),  # where nothing is memorised; after the last epoch
        ("p_value", pa.float64()),  # of the gain: among partitions; of leave-one-out by t over repetitions
    ]
)


@dataclass(frozen=True)
class Distribution:
    """Which models there are and when they are asked; `draws` for a matched-count score, which come from `seed`."""

    models: Folds | Alone
    epochs: tuple[int, ...]  # ascending
    draws: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.epochs or list(self.epochs) != sorted(set(self.epochs)) or self.epochs[0] < 1:
            raise ValueError(f"epochs is {self.epochs}; it must be at least one epoch from 1 on, ascending")
        for name, least in {"draws": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True, eq=False)
class Scored:
    """One score of every observation: with all repetitions, without each, and with other models held out."""

    score: Array  # (n,)
    without: Array  # (n, L)
    null: list[Array] = field(default_factory=list)  # (n,) each

    @classmethod
    def empty(cls, observations: int, repetitions: int, nulls: int) -> Scored:
        score, *null = (np.empty(observations) for _ in range(1 + nulls))
        return cls(score, np.empty((observations, repetitions)), null)


@task(version=1, name="density.distribution", gathers=True)
def distribution(config: Distribution, inputs: Inputs) -> pa.Table:
    """Every statistic of every score (DISTRIBUTION), by epoch, from the trainings' tables, in any order.

    Of labels after the last epoch alone. Epochs at which no model was asked have no rows; ValueError where none was at
    any.
    """
    answers = Answers(config.models, inputs)
    asked = [epoch for epoch in config.epochs if answers.any_at(epoch)]
    if not asked:
        raise ValueError(
            f"no training was asked about the observations at epoch {' or '.join(map(str, config.epochs))}"
        )
    known = labels(config.models)
    rows: list[dict[str, Any]] = []
    for epoch in asked:
        last = epoch == config.epochs[-1]
        found, gain, there = scored(config, answers, epoch, REASSIGNMENTS if last else 0)
        for score, each in found.items():
            rows += described(each, there, {"epoch": epoch, "score": score, "label": None}, slice(None))
            for label in np.unique(known).tolist() if last and known is not None else ():
                about = {"epoch": epoch, "score": score, "label": label}
                rows += described(each, there, about, np.flatnonzero(known == label))
        p_value = gain.t_test() if isinstance(config.models, Alone) else gain.p_value()
        about = {"epoch": epoch, "score": "gain", "label": None, "statistic": "mean"}
        rest = {"observations": gain.observations, "null": 0.0 if last else None, "p_value": p_value}
        rows.append(about | numbers(gain.estimate) | rest)
    return pa.Table.from_pylist(rows, DISTRIBUTION)


def scored(
    config: Distribution, answers: Answers, epoch: int, nulls: int
) -> tuple[Mapping[str, Scored], Gain, NDArray[np.int64]]:
    """Both scores of every observation, the gain, and the repetitions of which models were asked."""
    repetitions, folds = config.models.shape
    found = {score: Scored.empty(len(config.models.rows), repetitions, nulls) for score in SCORES}
    gain = Gain(repetitions, folds)
    there = np.zeros(repetitions, np.bool_)
    for block in answers.blocks(epoch):
        there |= ~np.isnan(block.log_p).all(axis=(0, 2))
        gain.add(block.log_p, block.held_out)
        for score, values, without in of_block(config, epoch, block):
            found[score].score[block.places], found[score].without[block.places] = values, without
        for number in range(nulls):
            for score, values in without_memory(config, epoch, block, number):
                found[score].null[number][block.places] = values
    return found, gain, np.flatnonzero(there)


def of_block(config: Distribution, epoch: int, block: Block) -> Iterator[tuple[str, Array, Array]]:
    """Each score of a block, with all repetitions and without each."""
    said = terms(block.log_p, block.held_out)
    yield "published", said.score, said.score_without_each
    chance = seeds.generator(config.seed, "matched", epoch, block.number)
    yield "matched", *matched(block.log_p, block.held_out, config.draws, chance)


def without_memory(config: Distribution, epoch: int, block: Block, number: int) -> Iterator[tuple[str, Array]]:
    """Each score of a block had models drawn by chance held its observations out."""
    chance = seeds.generator(config.seed, "reassigned", epoch, number, block.number)
    held_out = reassigned(block.log_p, block.held_out, chance)
    yield "published", terms(block.log_p, held_out).score
    yield "matched", matched(block.log_p, held_out, config.draws, chance, each=False)[0]


def described(
    scored: Scored, repetitions: NDArray[np.int64], about: Mapping[str, Any], chosen: slice | NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    """A row for each statistic of the chosen observations."""
    values = scored.score[chosen]
    whole = describe(values)
    without = [describe(scored.without[chosen, repetition]) for repetition in repetitions]
    nulls = [describe(null[chosen]) for null in scored.null]
    for statistic, value in whole.items():
        null = float(np.mean([each[statistic] for each in nulls])) if nulls else np.nan
        counted = np.isfinite(values) if statistic in ("mean", "skewness") else ~np.isnan(values)
        estimate = statistics.jackknife(value, [each[statistic] for each in without])
        if not has_interval(statistic, int(counted.sum())):
            estimate = replace(estimate, low=None, high=None)
        yield {
            **about,
            "statistic": statistic,
            **numbers(estimate),
            "observations": int(counted.sum()),
            "null": None if np.isnan(null) else null,
            "p_value": None,
        }


def has_interval(statistic: str, observations: int) -> bool:
    """Whether the statistic of so many observations has an interval that covers as often as it says."""
    if statistic.startswith("quantile"):
        share = float(statistic.removeprefix("quantile"))
        return min(share, 1 - share) * observations >= BEYOND
    return statistic in ("mean", "median")


def describe(scores: Array) -> dict[str, float]:
    """Mean, median, skewness, extremes and quantiles of the scores, NaN where there is none.

    The skewness is that of the sample, m_3 / m_2^(3/2) of central moments. Undefined scores are left out of all, and
    infinite ones of the mean and the skewness; in the others they stand where they belong, at the ends.
    """
    values = np.sort(scores[~np.isnan(scores)])
    finite = values[np.isfinite(values)]
    centred = finite - finite.mean() if len(finite) else finite
    variance = float(np.mean(centred**2)) if len(finite) else 0.0
    return {
        "mean": float(finite.mean()) if len(finite) else np.nan,
        "median": quantile(values, 0.5),
        "skewness": float(np.mean(centred**3)) / variance**1.5 if variance > 0 else np.nan,
        "lowest": float(values[0]) if len(values) else np.nan,
        "highest": float(values[-1]) if len(values) else np.nan,
        **{f"quantile {share}": quantile(values, share) for share in SHARES},
    }


def quantile(ascending: Array, share: float) -> float:
    """The quantile, on the line between the two values next to it; NaN without values."""
    if not len(ascending):
        return np.nan
    place = share * (len(ascending) - 1)
    before = int(place)
    part, low = place - before, float(ascending[before])
    high = float(ascending[min(before + 1, len(ascending) - 1)])
    # Not of inf and inf, whose difference is none.
    return low if part == 0.0 or low == high else low * (1 - part) + high * part


def numbers(estimate: Estimate) -> dict[str, Any]:
    return {"estimate": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
