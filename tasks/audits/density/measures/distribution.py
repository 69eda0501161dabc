"""The score distribution over all observations at every recorded epoch, and the generalisation gap.

    g_l = mean over i of (mean over the models of repetition l that trained on i of log p_i
                          - log p_i by the model that did not), in nats

The gain is the rise in an observation's log p from training on it, and its mean is the generalisation gap. Without
memorisation the gap is 0 on average, for any spread of log p. It averages over all observations, so it neither reveals
one that is memorised by hundreds of nats nor shows that any is. Its p-value tests for a gap above the negligible size
and does not decide the answer. The other rows are statistics of M over observations, both as published and with matched
counts: mean, median, skewness, extremes and quantiles. They show when memorisation begins during training.

After the last epoch each statistic has a null: its mean over redrawn held-out models. For the matched-count score only
the mean has a null of 0. The median does not, because V has a different distribution from the mean over draws.

Intervals are jackknife intervals over repetitions, or t intervals for the gain. In simulations without memorisation,
the coverage of the 95 % interval is 92 to 100 % for the mean, the median and the quantiles, 77 to 93 % for the skewness
and 64 to 94 % for the extremes. Skewness and extremes therefore have no interval, nor do quantiles with too few
observations beyond them.

Source. Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.2, figure 4.
The matched-count score, the nulls and the gain are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density import presets
from tasks.audits.density.config import About, Density
from tasks.audits.density.log_densities import Block, Folds, LeaveOneOut, LogDensities, ReleasedFolds, labels
from tasks.audits.density.memorization import Array, Indices, Mask, lower_log_p, matched_count_score, sides, terms
from tasks.audits.density.reassignment import reassign_models
from tasks.audits.density.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import Ascending, AtLeast, Finite, Ranged
from tasks.contract.summaries import Estimate, Row, row
from tasks.numerics import seeds, statistics

REASSIGNMENTS = 20  # held-out model draws to average a null over
RESAMPLED = ("published", "matched")  # scores that are resampled
BEYOND = 5  # a quantile's interval requires this many observations beyond it
SHARES = (0.05, 0.25, 0.75, 0.95, 0.999)
METRICS = {"gain": "generalisation gap of log p", "matched": "matched-count M", "published": "M"}  # in the summary
PEAKS = ("quantile 0.95", "quantile 0.999")  # shown in figure 4b

DISTRIBUTION = pa.schema(
    [
        ("epoch", pa.int32()),
        ("score", pa.string()),  # published, matched, or gain (the rise in log p from training)
        ("label", pa.int32()),  # null: all observations
        ("statistic", pa.string()),  # mean, median, skewness, lowest, highest, quantile 0.95 ...
        ("estimate", pa.float64()),
        ("low", pa.float64()),  # 95 %: jackknife over repetitions, t for the gain; null if unreliable
        ("high", pa.float64()),
        ("n", pa.int64()),  # repetitions
        ("observations", pa.int64()),
        ("null", pa.float64()),  # value without memorisation; only after the last epoch
        ("p_value", pa.float64()),  # null hypothesis: negligible gain; over partitions, or by t for leave-one-out
    ]
)


@dataclass(frozen=True)
class Distribution(Ranged):
    """Models and evaluation epochs. Each matched-count score averages over `draws`, which `seed` determines."""

    models: Folds | ReleasedFolds | LeaveOneOut
    epochs: Annotated[tuple[int, ...], Ascending(1, "at least one epoch from 1 on, ascending", required=True)]
    draws: Annotated[int, AtLeast(1)] = 64
    seed: Annotated[int, AtLeast(0)] = 0
    negligible: Annotated[float, Finite(zero=True)] = 0.0  # gain in nats


@task(version=2, name="density.distribution", gathers=True)
def distribution(config: Distribution, inputs: Inputs) -> pa.Table:
    """Compute every statistic of every score (DISTRIBUTION) by epoch from the training tables, in any order.

    Rows by label exist only after the last epoch. Epochs at which no model was evaluated have no rows. Raises
    ValueError if no model was evaluated at any of the epochs.
    """
    log_densities = LogDensities(config.models, inputs)
    recorded = [epoch for epoch in config.epochs if log_densities.recorded_at(epoch)]
    if not recorded:
        raise ValueError(f"no training was evaluated at epoch {' or '.join(map(str, config.epochs))}")
    all_labels = labels(config.models)
    rows: list[dict[str, Any]] = []
    for epoch in recorded:
        last = epoch == config.epochs[-1]
        scores, gain, repetitions = _score_resamples(config, log_densities, epoch, REASSIGNMENTS if last else 0)
        for name, resampled in scores.items():
            rows += _statistic_rows(resampled, repetitions, {"epoch": epoch, "score": name, "label": None}, slice(None))
            for label in np.unique(all_labels).tolist() if last and all_labels is not None else ():
                about = {"epoch": epoch, "score": name, "label": label}
                rows += _statistic_rows(resampled, repetitions, about, np.flatnonzero(all_labels == label))
        if isinstance(config.models, LeaveOneOut):
            p_value = gain.t_test()
        else:
            p_value = gain.p_value()
        about = {"epoch": epoch, "score": "gain", "label": None, "statistic": "mean"}
        counts = {"observations": gain.observations, "null": 0.0 if last else None, "p_value": p_value}
        rows.append(about | columns(gain.estimate) | counts)
    return pa.Table.from_pylist(rows, DISTRIBUTION)


@dataclass(frozen=True, eq=False)
class Resampled:
    """One score of every observation: with all repetitions, without each, and with redrawn held-out models."""

    values: Array  # (n,)
    without: Array  # (n, L)
    null: list[Array] = field(default_factory=list)  # one array (n,) per draw

    @classmethod
    def empty(cls, observations: int, repetitions: int, nulls: int) -> Resampled:
        values, *null = (np.empty(observations) for _ in range(1 + nulls))
        return cls(values, np.empty((observations, repetitions)), null)


def _score_resamples(
    config: Distribution, log_densities: LogDensities, epoch: int, nulls: int
) -> tuple[Mapping[str, Resampled], Gain, NDArray[np.int64]]:
    """Compute both scores of every observation, the gain, and the repetitions with an evaluated model."""
    repetitions, folds = config.models.shape
    scores = {score: Resampled.empty(len(config.models.rows), repetitions, nulls) for score in RESAMPLED}
    gain = Gain(repetitions, folds, config.negligible)
    any_asked = np.zeros(repetitions, np.bool_)
    for block in log_densities.blocks(epoch):
        any_asked |= ~np.isnan(block.log_p).all(axis=(0, 2))
        gain.add(block.log_p, block.held_out)
        for score, values, without in _block_scores(config, epoch, block):
            scores[score].values[block.places] = values
            scores[score].without[block.places] = without
        for number in range(nulls):
            for score, values in null_scores(config, epoch, block, number):
                scores[score].null[number][block.places] = values
    return scores, gain, np.flatnonzero(any_asked)


def _block_scores(config: Distribution, epoch: int, block: Block) -> Iterator[tuple[str, Array, Array]]:
    """Yield each score of a block, with all repetitions and without each."""
    block_terms = terms(block.log_p, block.held_out)
    yield "published", block_terms.score, block_terms.score_without_each
    chance = seeds.generator(config.seed, "matched", epoch, block.number)
    yield "matched", *matched_count_score(block.log_p, block.held_out, config.draws, chance)


def null_scores(config: Distribution, epoch: int, block: Block, number: int) -> Iterator[tuple[str, Array]]:
    """Yield each score of a block with redrawn held-out models."""
    chance = seeds.generator(config.seed, "reassigned", epoch, number, block.number)
    held_out = reassign_models(block.log_p, block.held_out, chance)
    yield "published", terms(block.log_p, held_out).score
    yield "matched", matched_count_score(block.log_p, held_out, config.draws, chance, without_each=False)[0]


def _statistic_rows(
    resampled: Resampled, repetitions: NDArray[np.int64], about: Mapping[str, Any], selection: slice | NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    """Yield one row per statistic of the selected observations."""
    values = resampled.values[selection]
    without = [describe(resampled.without[selection, repetition]) for repetition in repetitions]
    nulls = [describe(null[selection]) for null in resampled.null]
    for statistic, value in describe(values).items():
        if nulls:
            null = float(np.mean([redrawn[statistic] for redrawn in nulls]))
        else:
            null = np.nan
        if statistic in ("mean", "skewness"):
            is_counted = np.isfinite(values)
        else:
            is_counted = ~np.isnan(values)
        estimate = statistics.jackknife(value, [description[statistic] for description in without])
        if not has_interval(statistic, int(is_counted.sum())):
            estimate = replace(estimate, low=None, high=None)
        yield {
            **about,
            "statistic": statistic,
            **columns(estimate),
            "observations": int(is_counted.sum()),
            "null": None if np.isnan(null) else null,
            "p_value": None,
        }


def has_interval(statistic: str, observations: int) -> bool:
    """Return whether the interval of the statistic has its nominal coverage with this many observations."""
    if statistic.startswith("quantile"):
        share = float(statistic.removeprefix("quantile"))
        return min(share, 1 - share) * observations >= BEYOND
    return statistic in ("mean", "median")


def describe(scores: Array) -> dict[str, float]:
    """Compute mean, median, skewness, extremes and quantiles of the scores. NaN if undefined.

    The skewness is the sample skewness, m_3 / m_2^(3/2) of central moments. Undefined scores are excluded from all
    statistics, infinite ones only from the mean and the skewness.
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
    """Compute the quantile by linear interpolation. NaN without values."""
    if not len(ascending):
        return np.nan
    position = share * (len(ascending) - 1)
    before = int(position)
    part = position - before
    low = float(ascending[before])
    high = float(ascending[min(before + 1, len(ascending) - 1)])
    # Avoids inf minus inf, which is undefined.
    if part == 0.0 or low == high:
        return low
    return low * (1 - part) + high * part


def columns(estimate: Estimate) -> dict[str, Any]:
    return {"estimate": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}


class Gain:
    """The gain g_l of every repetition, accumulated over blocks of observations, and the mean gain.

    Without memorisation each g_l is 0 on average, for any spread of log p: unlike the published score, it contains no
    log mean exp. Repetitions are independent, so their mean has a t interval.

    A log p of -inf is replaced by the lowest finite log p among the observation's models. This replacement does not
    depend on which models trained on the observation, and the gain is at least the value computed with it. Observations
    to which all models assign probability 0 have no gain and are excluded from every repetition; `observations` counts
    the others.

    The p-values test for a gain of at most `negligible` nats, which are subtracted from the models that trained on an
    observation.
    """

    def __init__(self, repetitions: int, folds: int, negligible: float = 0.0) -> None:
        self.observations = 0
        self.negligible = negligible
        self.models: Mask | None = None  # (L, K), for the first observation
        self.alike = True  # whether all observations have these models
        self.sizes = np.zeros((repetitions, folds))  # number of observations that each model held out
        self.gains = np.zeros(repetitions)  # summed over observations
        # Let b be log p, after subtraction of `negligible`, minus its mean over the repetition's models. These are the
        # sums of b and of products of b over observations.
        self.sums = np.zeros((repetitions, folds))
        self.products = np.zeros((repetitions, folds, folds))

    def add(self, log_p: Array, held_out: Indices) -> None:
        """Add the observations of a block."""
        possible = np.isfinite(log_p).any(axis=(1, 2))
        log_p = _with_lowest(lower_log_p(log_p, held_out, self.negligible)[possible])
        held_out = held_out[possible]
        _, log_p_held_out = sides(log_p, held_out)
        has_model = ~np.isnan(log_p)
        if len(has_model):
            self.models = has_model[0] if self.models is None else self.models
            self.alike &= bool((has_model == self.models).all())
        count = has_model.sum(axis=2)
        usable = ~np.isnan(log_p_held_out) & (count > 1)
        self.observations += int(usable.any(axis=1).sum())
        mean = np.where(has_model, log_p, 0.0).sum(axis=2) / np.maximum(count, 1)
        b = np.where(has_model & usable[:, :, None], log_p - mean[:, :, None], 0.0)
        self.gains -= (np.take_along_axis(b, held_out[:, :, None], axis=2)[:, :, 0] * scale(count)).sum(axis=0)
        for repetition, part in enumerate(b.transpose(1, 0, 2)):
            out = held_out[usable[:, repetition], repetition]
            self.sizes[repetition] += np.bincount(out, minlength=b.shape[2])
            self.sums[repetition] += part.sum(axis=0)
            self.products[repetition] += part.T @ part

    @property
    def by_repetition(self) -> Array:
        """g_l of every repetition. NaN if no observation has models of both kinds."""
        number = self.sizes.sum(axis=1)
        return np.where(number > 0, self.gains / np.maximum(number, 1) + self.negligible, np.nan)

    @property
    def estimate(self) -> Estimate:
        """Mean gain over repetitions with a t interval, in nats. n counts the repetitions that have a gain."""
        gains = self.by_repetition
        return statistics.mean(gains[~np.isnan(gains)])

    def p_value(self) -> float | None:
        """Compute P of a gain at least as large, less `negligible`, under random partitions with the same fold sizes.

        This is the normal approximation with the exact mean and variance over all partitions. Let a(i, k) be log p of
        observation i under model k, n_k the fold sizes, and d = a less its means over folds and over observations. Then

            Var[sum over i of a(i, fold of i)] = sum over i and k of n_k d(i, k)^2 / (n - 1)

        Hoeffding 1951, "A combinatorial central limit theorem", theorem 2. The repetitions' variances add. None if all
        partitions give the same gain, or if observations differ in their existing models.
        """
        usable = self.sizes.sum(axis=1) > 1
        if self.models is None or not self.alike or not usable.any():
            return None
        counts = self.models.sum(axis=1)
        moments = [
            self.moments(repetition, float(scale(counts)[repetition])) for repetition in np.flatnonzero(usable).tolist()
        ]
        mean = float(np.mean([mean for mean, _ in moments]))
        variance = sum(variance for _, variance in moments) / len(moments) ** 2
        if not variance > 0:
            return None
        from scipy import stats

        above = self.by_repetition[usable].mean() - self.negligible - mean
        return float(stats.norm.sf(above / np.sqrt(variance)))

    def t_test(self) -> float | None:
        """Compute the one-sided p-value of a mean gain of at most `negligible`. None with fewer than two repetitions.

        Used for leave-one-out, where all observations share the models trained on all data, so that these models cannot
        be redrawn one by one.
        """
        gains = self.by_repetition
        gains = gains[~np.isnan(gains)]
        return statistics.paired_greater(gains, np.full(len(gains), self.negligible)).p_value

    def moments(self, repetition: int, scaled: float) -> tuple[float, float]:
        """Compute the mean and the variance of g_l over all partitions into folds of these sizes."""
        sizes = self.sizes[repetition]
        sums = self.sums[repetition]
        products = self.products[repetition]
        n = sizes.sum()
        weights = sizes / n
        squares = np.diag(products) - 2 * products @ weights + weights @ products @ weights
        squares = squares - n * (sums / n - weights @ sums / n) ** 2
        factor = float(scaled / n)
        return -factor * float(weights @ sums), max(0.0, factor**2 * float(sizes @ squares / (n - 1)))


def _with_lowest(log_p: Array) -> Array:
    """Replace -inf by the lowest finite log p among the observation's models."""
    lowest = np.where(np.isfinite(log_p), log_p, np.inf).min(axis=(1, 2), keepdims=True, initial=np.inf)
    return np.where(log_p == -np.inf, lowest, log_p)


def scale(models: NDArray[np.int64]) -> Array:
    """Return c / (c - 1), which turns a difference from the mean of all c models into one from that of the others."""
    return np.asarray(models / np.maximum(models - 1, 1))


def plan(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    if trainings is None:
        return ()
    config, epochs = trainings.config, trainings.config.recorded
    job_config = Distribution(trainings.models, epochs, config.draws, trainings.seed, config.negligible)
    return Job(distribution, job_config, trainings.fits)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield each statistic of all observations after the last epoch, and the earlier peaks of both scores (figure 4b).

    Statistics by label appear only in the table.
    """
    statistics_of_all = [statistic for statistic in tables.rows(DISTRIBUTION) if statistic["label"] is None]
    last = max((statistic["epoch"] for statistic in statistics_of_all), default=0)
    printed = presets.numbers(about.published)
    for score in METRICS:
        for statistic in statistics_of_all:
            if statistic["score"] == score and statistic["epoch"] == last:
                name = statistic["statistic"]
                number = printed.get(name) if score == "published" else None
                yield summary_row(statistic, {"statistic": name}, number)
    for statistic in statistics_of_all:
        if statistic["epoch"] < last and statistic["statistic"] in PEAKS:
            yield summary_row(statistic, {"epoch": statistic["epoch"], "statistic": statistic["statistic"]})


def summary_row(statistic: Row, setting: Row, published: float | None = None) -> Row:
    """Convert a row of DISTRIBUTION to the schema of all audits.

    Without memorisation the mean matched-count score and the gain are 0. The null of any other statistic comes from
    redrawn held-out models.
    """
    if statistic["score"] != "published" and statistic["statistic"] == "mean":
        null = 0.0
    else:
        null = statistic["null"]
    estimate = Estimate(statistic["estimate"], statistic["low"], statistic["high"], statistic["n"])
    return row(METRICS[statistic["score"]], setting, estimate, "repetition", null, statistic["p_value"], published)


MEASURE = Measure("distribution", DISTRIBUTION, plan, rows)
