"""The scores and p-value of each observation after the last epoch, and their components.

M = U - V is the published score, which is biased upwards. m_matched uses equal numbers of models on both sides and is 0
on average without memorisation (tasks.audits.density.memorization). The p-value of M comes from redrawing the models
that held the observation out (tasks.audits.density.reassignment). It tests whether training raises log p by at most the
negligible size. An observation is identified by its p-value, corrected for false discoveries, and the number of
identified observations decides the answer. All p-values together bound the number of memorised observations, identified
or not (tasks.audits.density.tail). The detection limit for a single observation is computed on a random subset of
observations: it is the rise in log p at which each would be identified, with redrawn held-out models. If single rows
are held out of private trainings, M is compared with epsilon.

log p is estimated from codes that the encoder proposes, of which few may contribute (tasks.models.importance). The
estimate is then rough and too low, and a score depends on the encoder as well as on the density.

Source. Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", algorithm 1, eq. 2 and
3; epsilon, eq. 8. The matched-count score and the p-values are ours.
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

PROBED = 100  # observations to compute the detection limit on
FOUND = 0.8  # the detection limit is where this share of them is identified
REDRAWN = 20  # held-out model draws for the null of statistics
FEW_SAMPLES = 10  # effective samples; with fewer, the Monte Carlo error of log p is about 1 / sqrt(10) nats or more
BEYOND_CHANCE = "observations memorised beyond chance"
PLANTED_CALLED = "planted observations memorised"
LEAST_FOUND = "memory of a single observation that is found"
CENTRAL = 0.9  # central share of log p, where the paper finds more than half of CelebA's highly memorised images

SCORES = pa.schema(
    [
        ("row", pa.int64()),  # row of the evaluated split
        ("label", pa.int32()),  # null if the data have no labels
        ("log_p_trained", pa.float64()),  # U, in nats
        ("log_p_held_out", pa.float64()),  # V
        ("m", pa.float64()),  # the published score, U - V; null if it is undefined
        ("m_matched", pa.float64()),  # with equal numbers of models on both sides
        ("p_value", pa.float64()),  # for m minus the negligible size, under redrawn held-out models
        # Corrected over observations by Benjamini and Hochberg or, for rows held out one by one, by Benjamini and
        # Yekutieli.
        ("p_adjusted", pa.float64()),
        ("found_from", pa.float64()),  # nats at which it would be identified; null if not computed
        ("trained_models", pa.int32()),
        ("held_out_models", pa.int32()),
        # Per repetition, null without models: log mean exp over the models that trained on the observation, and log p
        # under the model that did not.
        ("trained", pa.list_(pa.float32())),
        ("held_out", pa.list_(pa.float32())),
        # Effective number of codes, the median over models. Null for models without codes.
        ("effective_samples", pa.float64()),
        ("encoder_effective_samples", pa.float64()),  # before codes were fitted; null if they were not
        ("matched_without", pa.list_(pa.float32())),  # m_matched without each repetition in turn
        # One value per draw of held-out models. Both columns use the same draws.
        ("matched_redrawn", pa.list_(pa.float32())),  # m_matched
        ("trained_redrawn", pa.list_(pa.float32())),  # U
    ]
)


@dataclass(frozen=True)
class Scores(Ranged):
    """Models and evaluation epoch, `permutations` per p-value, `draws` per matched-count score, and their `seed`.

    Memorisation by at most `negligible` nats does not count.
    """

    models: Folds | ReleasedFolds | LeaveOneOut
    epoch: Annotated[int, AtLeast(1)]
    permutations: Annotated[int, AtLeast(1)] = 9999
    draws: Annotated[int, AtLeast(1)] = 64
    seed: Annotated[int, AtLeast(0)] = 0
    negligible: Annotated[float, Finite(zero=True)] = 0.0


@task(version=5, name="density.scores", gathers=True)
def scores(config: Scores, inputs: Inputs) -> pa.Table:
    """Compute the scores of every observation (SCORES) from the training tables, in any order. Sorted by row.

    Raises ValueError if no model was evaluated at the epoch. In leave-one-out the p-values of rows are dependent,
    because they share the models trained on all data.
    """
    log_densities = LogDensities(config.models, inputs)
    if not log_densities.recorded_at(config.epoch):
        raise ValueError(f"no training was evaluated at epoch {config.epoch}")
    rows = config.models.rows
    labels_of_rows = labels(config.models)
    is_probed = np.zeros(len(rows), np.bool_)
    is_probed[seeds.generator(config.seed, "planted").choice(len(rows), min(PROBED, len(rows)), replace=False)] = True
    blocks = [_block_columns(config, block, is_probed[block.places]) for block in log_densities.blocks(config.epoch)]
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    columns["effective_samples"] = log_densities.effective_samples(config.epoch)
    columns["encoder_effective_samples"] = log_densities.effective_samples(config.epoch, of_encoder=True)
    adjusted = tail.adjust_p_values(columns["p_value"], isinstance(config.models, LeaveOneOut))
    columns["p_adjusted"] = adjusted
    return make_table(
        SCORES, row=rows, label=labels_of_rows, **{name: _column_of(values) for name, values in columns.items()}
    )


def _block_columns(config: Scores, block: Block, is_probed: Mask) -> dict[str, NDArray[Any]]:
    """Compute the columns of a block that need no other block. `is_probed` marks observations with a found_from."""

    def chance(name: str) -> np.random.Generator:
        return seeds.generator(config.seed, name, config.epoch, block.number)

    block_terms = terms(block.log_p, block.held_out)
    log_p_trained, log_p_held_out = (values.astype(np.float32) for values in block_terms.by_repetition)
    m_matched, m_without = matched_count_score(block.log_p, block.held_out, config.draws, chance("matched"))
    permuted = chance("permutations")
    m_redrawn, u_redrawn = redrawn(config, block)
    return {
        "log_p_trained": block_terms.u,
        "log_p_held_out": block_terms.v,
        "m": block_terms.score,
        "m_matched": m_matched,
        "p_value": p_values(block.log_p, block.held_out, config.permutations, permuted, negligible=config.negligible),
        "found_from": found_from(config, block, is_probed, chance("planted")),
        "trained_models": block_terms.trained_models.sum(axis=1, dtype=np.int32),
        "held_out_models": block_terms.held_out_models.sum(axis=1, dtype=np.int32),
        "trained": log_p_trained,
        "held_out": log_p_held_out,
        "matched_without": m_without.astype(np.float32),
        "matched_redrawn": m_redrawn.astype(np.float32),
        "trained_redrawn": u_redrawn.astype(np.float32),
    }


def found_from(config: Scores, block: Block, is_probed: Mask, chance: np.random.Generator) -> Array:
    """Return the nats at which each requested observation would be identified, (n,). NaN for the others."""
    rises = np.full(len(block.log_p), np.nan)
    log_p = block.log_p[is_probed]
    held_out = reassign_models(log_p, block.held_out[is_probed], chance)
    level = tail.alone(len(config.models.rows), isinstance(config.models, LeaveOneOut))
    rises[is_probed] = least_found(log_p, held_out, level, config.negligible)
    return rises


def redrawn(config: Scores, block: Block) -> tuple[Array, Array]:
    """Compute the matched-count score and U for each draw of held-out models, (n, REDRAWN) each."""
    scores = []
    u_draws = []
    for number in range(REDRAWN):
        chance = seeds.generator(config.seed, "reassigned", config.epoch, number, block.number)
        held_out = reassign_models(block.log_p, block.held_out, chance)
        scores.append(matched_count_score(block.log_p, held_out, config.draws, chance, without_each=False)[0])
        u_draws.append(terms(block.log_p, held_out).u)
    return np.stack(scores, axis=1), np.stack(u_draws, axis=1)


def _column_of(values: NDArray[Any]) -> pa.Array:
    """Build a column of numbers (n,) or of lists (n, L), with null for NaN. Infinities remain."""
    flat = nan_as_null(values.reshape(-1))
    if values.ndim == 1:
        return flat
    return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1]), flat)


@dataclass(frozen=True)
class Check:
    """Scores of rows that were held out one by one, compared with epsilon."""

    epsilon: float
    delta: float
    rows: int  # number of rows with a score
    row: int  # row with the largest score
    largest: Estimate  # in nats, over trials; the 95 % interval is simultaneous over rows (Bonferroni)
    p_value: float | None  # null hypothesis: no score is above epsilon (Bonferroni)
    above: int  # number of rows whose estimate is above epsilon


def check_epsilon(
    rows: NDArray[np.integer], trained: Array, held_out: Array, epsilon: float, delta: float = 0.0
) -> Check:
    """Compare the scores of `rows` (n,) with epsilon, from log p per trial, NaN if a model is missing.

    A training is epsilon-differentially private if, for data sets that differ in one row, no event is more than
    exp(epsilon) times as likely with one as with the other. The same bound applies to the mean of any non-negative
    function of the trained model, a positively weighted sum of events. The density that trainings on D assign to an
    image, P(x | D) = E[p(x | model) | trained on D], is such a mean, so that at every x

        M_LOO(i) = log P(x_i | D) - log P(x_i | D without i) <= epsilon

    (and >= -epsilon): van den Burg & Williams 2021, eq. 8 and the text after it. The converse is false.

    **With delta above 0 no single score is bounded.** Then P(x | D) <= exp(epsilon) P(x | D without i) + delta times
    the greatest density that any model assigns to x: for an image with a log p of -100 nats, a delta of 1e-5 makes the
    bound void. DP-SGD has such a delta, so a score above epsilon does not imply a violation. The score of folds is
    never bounded, because models of two folds differ in many rows.

    **An estimate uses T trainings of each kind.** A log mean exp of few terms is dominated by its largest term and
    therefore too low. The interval is the jackknife's over trials, with Student's t of T - 1 degrees of freedom. It is
    too narrow if a single training dominates the mean.

    `trained` (n, T) is log p in nats under models that trained on the row, `held_out` (n, T) under models that did not,
    with T trials each (the columns of SCORES). A row has neither interval nor p-value if its score is not finite, with
    or without any of the trials. Raises ValueError if no row has a score.
    """
    if not 0 < epsilon < math.inf or not 0 <= delta < 1:
        raise ValueError(f"epsilon is {epsilon} and delta {delta}; they must be finite and above 0, and from 0 below 1")
    row_terms = _paired_terms(trained, held_out)
    score = row_terms.score
    scored_rows = np.flatnonzero(~np.isnan(score))
    if not len(scored_rows):
        raise ValueError("no row has a score to compare with epsilon: trainings with it or without it are missing")
    largest = int(scored_rows[score[scored_rows].argmax()])
    p_of_row = greater(row_terms, epsilon)
    tested = p_of_row[~np.isnan(p_of_row)]
    # Bonferroni correction, since the row was chosen by its score.
    interval = statistics.jackknife(
        float(score[largest]), row_terms.score_without_each[largest], 1 - LEVEL / len(scored_rows)
    )
    return Check(
        epsilon=epsilon,
        delta=delta,
        rows=len(scored_rows),
        row=int(rows[largest]),
        largest=interval,
        p_value=min(1.0, len(tested) * float(tested.min())) if len(tested) else None,
        above=int((score[scored_rows] > epsilon).sum()),
    )


def _paired_terms(trained: Array, held_out: Array) -> Terms:
    """Build the terms of U and V from one model of each kind per trial."""
    if trained.shape != held_out.shape or trained.ndim != 2:
        shapes = f"trained is {trained.shape} and held_out {held_out.shape}"
        raise ValueError(f"{shapes}; they must have equal shapes (rows, trials)")
    has_model = [~np.isnan(side) for side in (trained, held_out)]
    sums = []
    for mask, side in zip(has_model, (trained, held_out), strict=True):
        sums.append(np.where(mask, side, -np.inf))
    return Terms(sums[0], has_model[0].astype(np.int64), sums[1], has_model[1].astype(np.int64))


def greater(row_terms: Terms, epsilon: float) -> Array:
    """Return one-sided jackknife p-values of scores above epsilon, (n,). NaN if there is no jackknife error."""
    from scipy import stats

    score = row_terms.score
    without = row_terms.score_without_each
    trials = without.shape[1]
    is_testable = np.isfinite(score) & np.isfinite(without).all(axis=1) & (trials > 1)
    p_of_row = np.full(len(score), np.nan)
    if is_testable.any():
        scores_without = without[is_testable]
        excess = score[is_testable] - epsilon
        errors = np.sqrt(
            (trials - 1) / trials * ((scores_without - scores_without.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.where(errors > 0, excess / errors, np.where(excess > 0, np.inf, -np.inf))
        p_of_row[is_testable] = stats.t.sf(statistic, trials - 1)
    return p_of_row


def plan(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    return job(trainings) if trainings else ()


def job(trainings: Trainings) -> Job:
    config = trainings.config
    settings = config.permutations, config.draws, trainings.seed, config.negligible
    return Job(scores, Scores(trainings.models, config.recorded[-1], *settings), trainings.fits)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield identified observations, model counts, M compared with epsilon, and the share without outliers."""
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
    """Yield rows on identified observations and their strength, on all observations, and on the detection limit.

    The share of identified observations has no interval, because its false discovery rate bounds it. The share beyond
    chance requires folds, whose p-values are independent, and enough draws (tasks.audits.density.tail).
    """
    p_adjusted = column(scores, "p_adjusted")
    matched = column(scores, "m_matched")
    tested = p_adjusted[np.isfinite(p_adjusted)]
    share = alone(float((tested <= LEVEL).mean()) if len(tested) else None, len(tested))
    yield row("observations memorised", {"false discoveries": LEVEL}, share, "observation", null=0.0)
    identified_scores = matched[(p_adjusted <= LEVEL) & ~np.isnan(matched)]
    for statistic, value in (("median", np.median), ("highest", np.max)) if len(identified_scores) else ():
        of_called = alone(float(value(identified_scores)), len(identified_scores))
        yield row("matched-count M of the memorised", {"statistic": statistic}, of_called, "observation")
    if about.together:
        boundary = tail.counted_at(about.smallest)
        excess = tail.beyond_chance(column(scores, "p_value"), boundary)
        setting = {"p-value at most": boundary}
        yield row(BEYOND_CHANCE, setting, excess.share, "observation", null=0.0, p_value=excess.p_value)
    yield from _planted_rows(scores, about)
    limit = tail.found_in(column(scores, "found_from"), FOUND)
    yield row(LEAST_FOUND, {"share": FOUND}, limit, "observation")
    yield row("smallest possible p-value", {}, alone(about.smallest), "observation")
    unscored = scores.num_rows - len(tested)
    if unscored:
        yield row("observations without a score", {}, alone(float(unscored), scores.num_rows), "observation")


def tie_rows(scores: pa.Table) -> Iterator[Row]:
    """Yield the share of equal pairs of log densities: one observation under two models, or two under one model.

    The models are those that held the observations out, one of each repetition.
    """
    held_out = lists(scores, "held_out")
    if held_out.shape[1] and len(held_out) > 1:
        yield tied_row(float(item_ties(held_out.T).mean()), len(held_out), "observation")


def _planted_rows(scores: pa.Table, about: About) -> Iterator[Row]:
    """Yield the identified shares among planted and other observations, and M of the planted ones."""
    planting = parse_planting(about.planted)
    if planting is None:
        return
    p_adjusted = column(scores, "p_adjusted")
    matched = column(scores, "m_matched")
    planted = scores["row"].to_numpy() < planting.rows
    for metric, group in ((PLANTED_CALLED, planted), ("observations memorised that were not planted", ~planted)):
        tested = p_adjusted[group & np.isfinite(p_adjusted)]
        if len(tested):
            share = statistics.proportion(int((tested <= LEVEL).sum()), len(tested))
            yield row(metric, {"planted": about.planted}, share, "observation")
    planted_scores = matched[planted & np.isfinite(matched)]
    if len(planted_scores):
        median = alone(float(np.median(planted_scores)), len(planted_scores))
        yield row("matched-count M of the planted", {"statistic": "median"}, median, "observation")


def models(scores: pa.Table, planned_models: int) -> Iterator[Row]:
    """Yield the smallest number of models of an observation, if some are missing."""
    counts = column(scores, "trained_models") + column(scores, "held_out_models")
    fewest = float(counts.min()) if len(counts) else 0.0
    if fewest < planned_models:
        yield row(
            "models of an observation, at least", {"planned": planned_models}, alone(fewest, planned_models), "training"
        )


def estimation(scores: pa.Table) -> Iterator[Row]:
    """Yield the effective number of samples of log p: the median over observations, and the share with few.

    If codes were fitted to each observation, also yields the numbers before fitting.
    """
    for name, codes in (("effective_samples", {}), ("encoder_effective_samples", {"codes": "of the encoder"})):
        effective = column(scores, name)
        samples = effective[~np.isnan(effective)]
        if len(samples):
            median = float(np.median(samples))
            few = float((samples < FEW_SAMPLES).mean())
            metric = "effective samples of log p"
            n = len(samples)
            yield row(metric, codes | {"statistic": "median"}, alone(median, n), "observation")
            yield row(metric, codes | {"below": FEW_SAMPLES}, alone(few, n), "observation")


def privacy(scores: pa.Table, promised: Privacy) -> Iterator[Row]:
    """Yield the largest score of a held-out row, and the share above epsilon. Yields nothing if no row has a score."""
    if scores["m"].null_count == scores.num_rows:
        return
    log_p_trained = lists(scores, "trained")
    log_p_held_out = lists(scores, "held_out")
    check = check_epsilon(scores["row"].to_numpy(), log_p_trained, log_p_held_out, promised.epsilon, promised.delta)
    setting = {"delta": check.delta, "epsilon": check.epsilon}
    yield row("largest M of a row left out", setting | {"row": check.row}, check.largest, "trial")
    share = alone(check.above / check.rows, check.rows)
    yield row("rows above epsilon", setting, share, "observation", null=0.0, p_value=check.p_value)
    spent = Spent(promised.epsilon, log_p_trained.shape[1])  # the accountant sets the noise; at most 1 % is unspent
    yield from epsilon_rows(many_runs_bounds(log_p_trained, log_p_held_out, promised.delta), spent, promised.delta)


def many_runs_bounds(log_p_trained: Array, log_p_held_out: Array, delta: float) -> Iterator[Bound]:
    """Yield lower bounds of epsilon from log p of the held-out rows, (rows, trials), simultaneous over rows.

    Each row is an audit that distinguishes trainings with the row from trainings without it.
    """
    has_both = ~np.isnan(log_p_trained) & ~np.isnan(log_p_held_out)
    rows = []
    for table_row in zip(log_p_trained, log_p_held_out, has_both, strict=True):
        if table_row[2].any():
            rows.append(table_row)
    level = (1 - CONFIDENCE) / len(rows)
    runs = max(int(has.sum()) for _, _, has in rows)
    counted_runs = runs - runs // 2
    for name, bound in MANY_RUNS.items():
        largest_bound = max(
            bound_by_scores(bound, log_p_with[has], log_p_without[has], delta, level)
            for log_p_with, log_p_without, has in rows
        )
        yield Bound(
            name,
            largest_bound,
            runs,
            "trial",
            most=bound((counted_runs, counted_runs), (0, counted_runs), delta, level),
        )


MEASURE = Measure("scores", SCORES, plan, rows)
