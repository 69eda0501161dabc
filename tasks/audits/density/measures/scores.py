"""How strongly each observation is memorised, after the last epoch: its scores, p-value, and what they are made of.

M = U - V is the published score, which leans upwards; m_matched has as many models on either side, and is 0 on average
where nothing is memorised (tasks.audits.density.memorization). The p-value of M is from redrawing which models held the
observation out (tasks.audits.density.reassignment): it is that training raises log p by no more than is negligible. By
its p-value, corrected for false discoveries, an observation is called memorised, and the answer rests on how many are;
together they tell how many are memorised of which none can be called (tasks.audits.density.tail). How much memory of a
single observation would have been found is asked of a few, drawn at random: were nothing of it memorised, and other
models the ones that held it out, by how much more would it have to be likely to those that trained on it? Where single
rows were left out of private trainings, M stands beside epsilon.

log p is estimated from codes of the encoder, of which few may count (tasks.models.importance). It is then rough, and
low by what the encoder misses; a score is of the encoder as well as of the density.

Source. Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", algorithm 1, eq. 2
and 3; epsilon, eq. 8. The matched-count score and the p-values are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density import tail
from tasks.audits.density.config import About, Density
from tasks.audits.density.highly_memorised import column, lists, within_central
from tasks.audits.density.log_densities import Block, Folds, LeaveOneOut, LogDensities, ReleasedFolds, labels
from tasks.audits.density.memorization import Array, Mask, Terms, matched_count_score, terms
from tasks.audits.density.reassignment import least_found, p_values, reassign_models
from tasks.audits.density.tail import LEVEL
from tasks.audits.density.trainings import Trainings
from tasks.contract.epsilon_rows import CONFIDENCE, Bound, Spent, epsilon_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.contract.ties import tied_row
from tasks.datasets.planting import parse_planting
from tasks.numerics import seeds, statistics
from tasks.numerics.epsilon import MANY_RUNS, bound_by_scores
from tasks.numerics.ranks import item_ties
from tasks.training.recipe import Privacy

PLANTED = 100  # observations of which it is asked how much memory would be found
FOUND = 0.8  # of these
REDRAWN = 20  # times that other models hold the observations out, for what statistics are without memory
FEW_SAMPLES = 10  # effectively: the Monte-Carlo error of log p is then about 1 / sqrt(10) nats or more
BEYOND_CHANCE = "observations memorised beyond chance"
PLANTED_CALLED = "planted observations memorised"
LEAST_FOUND = "memory of a single observation that is found"
CENTRAL = 0.9  # of log p: where the paper finds more than half of CelebA's highly memorised

SCORES = pa.schema(
    [
        ("row", pa.int64()),  # of the split that was asked about
        ("label", pa.int32()),  # null where the data have none
        ("log_p_trained", pa.float64()),  # U, in nats
        ("log_p_held_out", pa.float64()),  # V
        ("m", pa.float64()),  # the published score, U - V; null where it is undefined
        ("m_matched", pa.float64()),  # with as many models on either side
        ("p_value", pa.float64()),  # of m, less what is negligible, had others held the observation out
        # Over the observations: Benjamini and Hochberg's, or of rows left out one by one Benjamini and Yekutieli's.
        ("p_adjusted", pa.float64()),
        ("found_from", pa.float64()),  # nats of memory with which it would be called alone; null where not asked
        ("trained_models", pa.int32()),
        ("held_out_models", pa.int32()),
        # By repetition, null where there are no models: log mean exp over those that trained on the observation, and
        # log p by the one that did not.
        ("trained", pa.list_(pa.float32())),
        ("held_out", pa.list_(pa.float32())),
        # How many of the codes log p is effectively from, the median over the models; null of models without codes.
        ("effective_samples", pa.float64()),
        ("encoder_effective_samples", pa.float64()),  # before codes were fitted to each observation; null where not
        ("matched_without", pa.list_(pa.float32())),  # m_matched without each repetition
        # Had others held the observations out, draw by draw, of the same draws.
        ("matched_redrawn", pa.list_(pa.float32())),  # m_matched
        ("trained_redrawn", pa.list_(pa.float32())),  # U
    ]
)


@dataclass(frozen=True)
class Scores(Ranged):
    """Which models there are and when they are asked; `permutations` for a p-value, `draws` for a matched-count score.

    The draws come from `seed`. Memory of no more than `negligible` nats is none.
    """

    models: Folds | ReleasedFolds | LeaveOneOut
    epoch: Annotated[int, AtLeast(1)]
    permutations: Annotated[int, AtLeast(1)] = 9999
    draws: Annotated[int, AtLeast(1)] = 64
    seed: Annotated[int, AtLeast(0)] = 0
    negligible: Annotated[float, Finite(zero=True)] = 0.0


@task(version=5, name="density.scores", gathers=True)
def scores(config: Scores, inputs: Inputs) -> pa.Table:
    """The scores of every observation (SCORES), by row, from the trainings' tables, in any order.

    ValueError where no model was asked at the epoch. In leave-one-out the p-values of several rows share the models of
    all data, so that they rise and fall together.
    """
    log_densities = LogDensities(config.models, inputs)
    if not log_densities.recorded_at(config.epoch):
        raise ValueError(f"no training was asked about the observations at epoch {config.epoch}")
    rows = config.models.rows
    known = labels(config.models)
    asked = np.zeros(len(rows), np.bool_)
    asked[seeds.generator(config.seed, "planted").choice(len(rows), min(PLANTED, len(rows)), replace=False)] = True
    blocks = [_block_columns(config, block, asked[block.places]) for block in log_densities.blocks(config.epoch)]
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    columns["effective_samples"] = log_densities.effective_samples(config.epoch)
    columns["encoder_effective_samples"] = log_densities.effective_samples(config.epoch, of_encoder=True)
    adjusted = tail.adjust_p_values(columns["p_value"], isinstance(config.models, LeaveOneOut))
    columns["p_adjusted"] = adjusted
    return make_table(SCORES, row=rows, label=known, **{name: _column_of(values) for name, values in columns.items()})


def _block_columns(config: Scores, block: Block, asked: Mask) -> dict[str, NDArray[Any]]:
    """The columns of a block that need no other block; `asked` are the observations whose found_from is wanted."""

    def chance(name: str) -> np.random.Generator:
        return seeds.generator(config.seed, name, config.epoch, block.number)

    both = terms(block.log_p, block.held_out)
    trained, held_out = (values.astype(np.float32) for values in both.by_repetition)
    whole, without = matched_count_score(block.log_p, block.held_out, config.draws, chance("matched"))
    permuted = chance("permutations")
    m_redrawn, u_redrawn = redrawn(config, block)
    return {
        "log_p_trained": both.u,
        "log_p_held_out": both.v,
        "m": both.score,
        "m_matched": whole,
        "p_value": p_values(block.log_p, block.held_out, config.permutations, permuted, negligible=config.negligible),
        "found_from": found_from(config, block, asked, chance("planted")),
        "trained_models": both.trained_models.sum(axis=1, dtype=np.int32),
        "held_out_models": both.held_out_models.sum(axis=1, dtype=np.int32),
        "trained": trained,
        "held_out": held_out,
        "matched_without": without.astype(np.float32),
        "matched_redrawn": m_redrawn.astype(np.float32),
        "trained_redrawn": u_redrawn.astype(np.float32),
    }


def found_from(config: Scores, block: Block, asked: Mask, chance: np.random.Generator) -> Array:
    """The memory with which each observation asked would be called alone, in nats, (n,); NaN of the others."""
    found = np.full(len(block.log_p), np.nan)
    log_p = block.log_p[asked]
    held_out = reassign_models(log_p, block.held_out[asked], chance)
    level = tail.alone(len(config.models.rows), isinstance(config.models, LeaveOneOut))
    found[asked] = least_found(log_p, held_out, level, config.negligible)
    return found


def redrawn(config: Scores, block: Block) -> tuple[Array, Array]:
    """The matched-count score and U had others held the observations out, draw by draw, (n, REDRAWN) each."""
    scores, trained = [], []
    for number in range(REDRAWN):
        chance = seeds.generator(config.seed, "reassigned", config.epoch, number, block.number)
        held_out = reassign_models(block.log_p, block.held_out, chance)
        scores.append(matched_count_score(block.log_p, held_out, config.draws, chance, without_each=False)[0])
        trained.append(terms(block.log_p, held_out).u)
    return np.stack(scores, axis=1), np.stack(trained, axis=1)


def _column_of(values: NDArray[Any]) -> pa.Array:
    """A column of numbers (n,), or of lists (n, L), null where there is none; infinities are numbers."""
    flat = nan_as_null(values.reshape(-1))
    if values.ndim == 1:
        return flat
    return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1]), flat)


@dataclass(frozen=True)
class Check:
    """The scores of rows that were left out one by one, beside epsilon."""

    epsilon: float
    delta: float
    rows: int  # with a score
    row: int  # whose score is the largest
    largest: Estimate  # in nats, over trials; its 95 % interval is for all rows at once (Bonferroni)
    p_value: float | None  # if no row's score were above epsilon (Bonferroni)
    above: int  # rows whose estimate is above epsilon


def check_epsilon(
    rows: NDArray[np.integer], trained: Array, held_out: Array, epsilon: float, delta: float = 0.0
) -> Check:
    """Whether the scores of `rows` (n,) keep within epsilon, from log p by trial, NaN where there is no such model.

    A training is epsilon-differentially private if, for data that differ in one row, no event is more than exp(epsilon)
    times as likely to follow from the one as from the other. What holds of events holds of the mean of any non-negative
    function of what is trained, for that is a sum of events with positive weights. The density that trainings on D give
    an image, P(x | D) = E[p(x | model) | trained on D], is such a mean, so that at every x

        M_LOO(i) = log P(x_i | D) - log P(x_i | D without i) <= epsilon

    (and >= -epsilon): van den Burg & Williams 2021, eq. 8 and what follows it. The converse does not hold.

    **With delta above 0 no single score is bounded.** Then P(x | D) <= exp(epsilon) P(x | D without i) + delta times
    the greatest density that any model gives x: of an image with a log p of -100 nats, a delta of 1e-5 leaves nothing
    of the bound. DP-SGD is of that kind. What is shown for it is how large the scores are beside epsilon, and no
    violation of a promise. The score of folds is never bounded: models of two folds differ in many rows.

    **An estimate is from T trainings of either kind.** A log mean exp of few terms is about its largest, and low. The
    interval is the jackknife's, leaving one trial out at a time, with Student's t of T - 1 degrees of freedom: too
    narrow where a single training makes up the mean.

    `trained` (n, T) are in nats by models that trained on the row, `held_out` (n, T) by those that did not, T trials of
    each (the columns of SCORES). A row has neither interval nor p-value where its score is not finite, or would not be
    without one of the trials. ValueError where no row has one.
    """
    if not 0 < epsilon < math.inf or not 0 <= delta < 1:
        raise ValueError(f"epsilon is {epsilon} and delta {delta}; they must be finite and above 0, and from 0 below 1")
    both = _paired_terms(trained, held_out)
    score = both.score
    scored = np.flatnonzero(~np.isnan(score))
    if not len(scored):
        raise ValueError("no row has a score to compare with epsilon: trainings with it or without it are missing")
    largest = int(scored[score[scored].argmax()])
    p_of_row = greater(both, epsilon)
    tested = p_of_row[~np.isnan(p_of_row)]
    # Bonferroni's: the row was chosen by its score.
    interval = statistics.jackknife(float(score[largest]), both.score_without_each[largest], 1 - LEVEL / len(scored))
    return Check(
        epsilon=epsilon,
        delta=delta,
        rows=len(scored),
        row=int(rows[largest]),
        largest=interval,
        p_value=min(1.0, len(tested) * float(tested.min())) if len(tested) else None,
        above=int((score[scored] > epsilon).sum()),
    )


def _paired_terms(trained: Array, held_out: Array) -> Terms:
    """The terms of U and V, with one model of either kind in a trial."""
    if trained.shape != held_out.shape or trained.ndim != 2:
        raise ValueError(f"trained is {trained.shape} and held_out {held_out.shape}; they must be (rows, trials) alike")
    there = [~np.isnan(side) for side in (trained, held_out)]
    sums = [np.where(known, side, -np.inf) for known, side in zip(there, (trained, held_out), strict=True)]
    return Terms(sums[0], there[0].astype(np.int64), sums[1], there[1].astype(np.int64))


def greater(both: Terms, epsilon: float) -> Array:
    """One-tailed p-values that scores are above epsilon, (n,), by the jackknife; NaN where it has no error."""
    from scipy import stats

    score, without = both.score, both.score_without_each
    trials = without.shape[1]
    known = np.isfinite(score) & np.isfinite(without).all(axis=1) & (trials > 1)
    p_of_row = np.full(len(score), np.nan)
    if known.any():
        rest, apart = without[known], score[known] - epsilon
        errors = np.sqrt((trials - 1) / trials * ((rest - rest.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.where(errors > 0, apart / errors, np.where(apart > 0, np.inf, -np.inf))
        p_of_row[known] = stats.t.sf(statistic, trials - 1)
    return p_of_row


def plan(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    return job(trainings) if trainings else ()


def job(trainings: Trainings) -> Job:
    config = trainings.config
    drawn = config.permutations, config.draws, trainings.seed, config.negligible
    return Job(scores, Scores(trainings.models, config.training.epochs, *drawn), trainings.fits)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Who is memorised, from how many models; M beside epsilon; how many of the highly memorised are no outliers."""
    table = tables.one(SCORES)
    if table is None:
        return
    yield from significance(table, about)
    yield from tie_rows(table)
    yield from models(table, about.planned)
    yield from estimation(table)
    if about.privacy is not None:
        yield from privacy(table, about.privacy)
    central = within_central(table, CENTRAL)
    about_central = central.estimate, "repetition", central.null, central.p_value
    yield row("highly memorised within the central log p", {"share": CENTRAL}, *about_central)


def significance(scores: pa.Table, about: About) -> Iterator[Row]:
    """How many observations are memorised at 5 % false discoveries, and by how much; how many beyond chance, whichever
    these are; the memory of one that would be found; the smallest p-value there could be.

    The first share has no interval: it is bounded by its rate of false discoveries. That of all together is of folds
    alone, whose p-values are independent, and of enough draws (tasks.audits.density.tail).
    """
    p_adjusted, matched = column(scores, "p_adjusted"), column(scores, "m_matched")
    tested = p_adjusted[np.isfinite(p_adjusted)]
    share = alone(float((tested <= LEVEL).mean()) if len(tested) else None, len(tested))
    yield row("observations memorised", {"false discoveries": LEVEL}, share, "observation", null=0.0)
    called = matched[(p_adjusted <= LEVEL) & ~np.isnan(matched)]
    for statistic, value in (("median", np.median), ("highest", np.max)) if len(called) else ():
        of_called = alone(float(value(called)), len(called))
        yield row("matched-count M of the memorised", {"statistic": statistic}, of_called, "observation")
    if about.together:
        at = tail.counted_at(about.smallest)
        beyond = tail.beyond_chance(column(scores, "p_value"), at)
        setting = {"p-value at most": at}
        yield row(BEYOND_CHANCE, setting, beyond.share, "observation", null=0.0, p_value=beyond.p_value)
    yield from _planted_rows(scores, about)
    found = tail.found_in(column(scores, "found_from"), FOUND)
    yield row(LEAST_FOUND, {"share": FOUND}, found, "observation")
    yield row("smallest possible p-value", {}, alone(about.smallest), "observation")
    missing = scores.num_rows - len(tested)
    if missing:
        yield row("observations without a score", {}, alone(float(missing), scores.num_rows), "observation")


def tie_rows(scores: pa.Table) -> Iterator[Row]:
    """How many pairs of log densities are equal, of an observation by two models or of two observations by one model.

    Of the models that held the observations out, one of each repetition.
    """
    held_out = lists(scores, "held_out")
    if held_out.shape[1] and len(held_out) > 1:
        yield tied_row(float(item_ties(held_out.T).mean()), len(held_out), "observation")


def _planted_rows(scores: pa.Table, about: About) -> Iterator[Row]:
    """How many of the observations that were planted are called, and their matched-count M; how many others are."""
    planting = parse_planting(about.planted)
    if planting is None:
        return
    p_adjusted, matched = column(scores, "p_adjusted"), column(scores, "m_matched")
    planted = scores["row"].to_numpy() < planting.rows
    for metric, chosen in ((PLANTED_CALLED, planted), ("observations memorised that were not planted", ~planted)):
        tested = p_adjusted[chosen & np.isfinite(p_adjusted)]
        if len(tested):
            called = statistics.proportion(int((tested <= LEVEL).sum()), len(tested))
            yield row(metric, {"planted": about.planted}, called, "observation")
    known = matched[planted & np.isfinite(matched)]
    if len(known):
        median = alone(float(np.median(known)), len(known))
        yield row("matched-count M of the planted", {"statistic": "median"}, median, "observation")


def models(scores: pa.Table, planned: int) -> Iterator[Row]:
    """How many of the planned models gave log p of an observation, where some did not."""
    counts = column(scores, "trained_models") + column(scores, "held_out_models")
    fewest = float(counts.min()) if len(counts) else 0.0
    if fewest < planned:
        yield row("models of an observation, at least", {"planned": planned}, alone(fewest, planned), "training")


def estimation(scores: pa.Table) -> Iterator[Row]:
    """How many samples log p is effectively from: the median over observations, and the share with few; and the same
    before codes were fitted to each observation, where they were."""
    for name, codes in (("effective_samples", {}), ("encoder_effective_samples", {"codes": "of the encoder"})):
        effective = column(scores, name)
        known = effective[~np.isnan(effective)]
        if len(known):
            median, few = float(np.median(known)), float((known < FEW_SAMPLES).mean())
            metric, n = "effective samples of log p", len(known)
            yield row(metric, codes | {"statistic": "median"}, alone(median, n), "observation")
            yield row(metric, codes | {"below": FEW_SAMPLES}, alone(few, n), "observation")


def privacy(scores: pa.Table, promised: Privacy) -> Iterator[Row]:
    """The largest score of a row left out, and how many lie above epsilon; nothing where no row has a score."""
    if scores["m"].null_count == scores.num_rows:
        return
    trained, held_out = (lists(scores, name) for name in ("trained", "held_out"))
    check = check_epsilon(scores["row"].to_numpy(), trained, held_out, promised.epsilon, promised.delta)
    setting = {"delta": check.delta, "epsilon": check.epsilon}
    yield row("largest M of a row left out", setting | {"row": check.row}, check.largest, "trial")
    share = alone(check.above / check.rows, check.rows)
    yield row("rows above epsilon", setting, share, "observation", null=0.0, p_value=check.p_value)
    spent = Spent(promised.epsilon, trained.shape[1])  # the accountant sets the noise so; at most 1 % is left
    yield from epsilon_rows(many_runs_bounds(trained, held_out, promised.delta), spent, promised.delta)


def many_runs_bounds(trained: Array, held_out: Array, delta: float) -> Iterator[Bound]:
    """Epsilon from below by log p of the rows that were left out, (rows, trials), all rows together at the confidence.

    Each row is an audit of its own: is a training on it told from one without it?
    """
    there = ~np.isnan(trained) & ~np.isnan(held_out)
    rows = [each for each in zip(trained, held_out, there, strict=True) if each[2].any()]
    level, runs = (1 - CONFIDENCE) / len(rows), max(int(has.sum()) for _, _, has in rows)
    counted = runs - runs // 2
    for name, bound in MANY_RUNS.items():
        shown = max(bound_by_scores(bound, known[has], without[has], delta, level) for known, without, has in rows)
        yield Bound(name, shown, runs, "trial", most=bound((counted, counted), (0, counted), delta, level))


MEASURE = Measure("scores", SCORES, plan, rows)
