"""How much more likely an observation is under models that trained on it than under models that did not.

There are L repetitions of K models. `log_p` (n, L, K) is log p of n observations under each model, in nats: NaN if the
model is missing, -inf if the model assigns probability 0. `held_out` (n, L) is the index of the model in each
repetition that did not train on the observation; the others did. Leave-one-out is the case K = 2.

    U_i = log mean exp of log p_i over the models that trained on i
    V_i = log mean exp of log p_i over the models that held i out
    M_i = U_i - V_i

**The published score M is biased upwards**: U has L (K - 1) terms and V has L, and a log mean exp is dominated by its
largest term. For L = K = 10 without memorisation, the mean M is 2.7 if models differ by a standard deviation of 5 nats,
and 44 for 50 nats. The matched-count score has L terms on both sides, one from each repetition. Without memorisation
its mean is 0, since swapping the sides only changes its sign.

Source. Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", algorithm 1 and eq. 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.integer]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Terms:
    """Log densities of a block per repetition (n, L): sums over models in log space, and model counts."""

    log_sums: Array  # log sum exp over the models that trained on the observation; -inf if there are none
    trained_models: NDArray[np.int64]
    held_out: Array  # log p under the model that did not train on it; -inf if there is none
    held_out_models: NDArray[np.int64]  # 0 or 1

    @property
    def u(self) -> Array:
        """U (n,). NaN if no model trained on the observation."""
        return log_mean(self.log_sums, self.trained_models.sum(axis=1))

    @property
    def v(self) -> Array:
        """V (n,). NaN if no model held the observation out."""
        return log_mean(self.held_out, self.held_out_models.sum(axis=1))

    @property
    def score(self) -> Array:
        """The published score M = U - V, (n,).

        inf if all models that held the observation out assign it probability 0 and the others do not; -inf in the
        reverse case. NaN if all models assign probability 0, or if one side has no models.
        """
        return difference(self.u, self.v)

    @property
    def score_without_each(self) -> Array:
        """M without each repetition in turn, (n, L)."""
        counts = self.trained_models
        held_out_counts = self.held_out_models
        return difference(
            log_mean_but_one(self.log_sums, others(counts)), log_mean_but_one(self.held_out, others(held_out_counts))
        )

    @property
    def by_repetition(self) -> tuple[Array, Array]:
        """Both sides of the score per repetition, (n, L) each, NaN without models.

        The first is log mean exp over the models that trained on the observation, the second log p under the model that
        did not.
        """
        log_means = self.log_sums - np.log(np.maximum(self.trained_models, 1))
        return (
            np.where(self.trained_models > 0, log_means, np.nan),
            np.where(self.held_out_models > 0, self.held_out, np.nan),
        )


def terms(log_p: Array, held_out: Indices) -> Terms:
    """Compute the block's terms per repetition. Raises ValueError if `log_p` or `held_out` is invalid."""
    log_p_trained, log_p_held_out = sides(log_p, held_out)
    has_model = ~np.isnan(log_p_trained)
    by_model = np.where(has_model, log_p_trained, -np.inf)
    top = _finite_or_zero(by_model.max(axis=2))
    with np.errstate(divide="ignore"):
        sums = top + np.log(np.exp(by_model - top[:, :, None]).sum(axis=2))
    has_held_out_model = ~np.isnan(log_p_held_out)
    return Terms(
        sums,
        has_model.sum(axis=2),
        np.where(has_held_out_model, log_p_held_out, -np.inf),
        has_held_out_model.astype(np.int64),
    )


def sides(log_p: Array, held_out: Indices) -> tuple[Array, Array]:
    """Split log p into models that trained on an observation (n, L, K; else NaN) and models that did not (n, L).

    Raises ValueError if shapes do not match, log p is inf, or a fold is not in [0, K).
    """
    if log_p.ndim != 3 or held_out.shape != log_p.shape[:2]:
        raise ValueError(f"log_p is {log_p.shape} and held_out {held_out.shape}; they must be (n, L, K) and (n, L)")
    folds = log_p.shape[2]
    if held_out.size and not 0 <= held_out.min() <= held_out.max() < folds:
        model = held_out.min() if held_out.min() < 0 else held_out.max()
        raise ValueError(f"an observation is held out by model {model}; it must be from 0 to {folds - 1}")
    if np.isposinf(log_p).any():
        observation = int(np.isposinf(log_p).any(axis=(1, 2)).argmax())
        raise ValueError(f"log p of observation {observation} of the block is inf; a density must be finite")
    model_indices = held_out[:, :, None]
    log_p_held_out = np.take_along_axis(log_p, model_indices, axis=2)[:, :, 0]
    log_p_trained = log_p.astype(np.float64)
    np.put_along_axis(log_p_trained, model_indices, np.nan, axis=2)
    return log_p_trained, log_p_held_out


def lower_log_p(log_p: Array, held_out: Indices, nats: float) -> Array:
    """Subtract `nats` from log p of every model that trained on the observation, (n, L, K).

    Applied to the result, a test of no memorisation tests whether at most `nats` are memorised.
    """
    log_p_trained, log_p_held_out = sides(log_p, held_out)
    log_p_trained -= nats
    np.put_along_axis(log_p_trained, held_out[:, :, None], log_p_held_out[:, :, None], axis=2)
    return log_p_trained


def matched_count_score(
    log_p: Array, held_out: Indices, draws: int, chance: np.random.Generator, without_each: bool = True
) -> tuple[Array, Array]:
    """Compute the matched-count score, (n,), and the same without each repetition in turn, (n, L).

    A draw chooses, in each repetition with both kinds of models, one model that trained on the observation. Its score
    is the log mean exp over the chosen models minus that over the equally many models that held the observation out.
    The result is the mean over `draws` uniform draws. If there are at most `draws` or K - 1 choices, as with one
    repetition, it is the mean over all of them. The second array is empty unless `without_each` is set.

    Draws with an infinite side are excluded from the mean. If no draw remains, the result is the published score's:
    inf, -inf or NaN.
    """
    log_p_trained, log_p_held_out = sides(log_p, held_out)
    log_p_trained.sort(axis=2)  # NaN sorts last, so the first entries are the repetition's models
    counts = (~np.isnan(log_p_trained)).sum(axis=2)
    usable = (counts > 0) & ~np.isnan(log_p_held_out)
    models = usable.sum(axis=1)
    positions, is_draw = choices(np.where(usable, counts, 1), max(draws, log_p.shape[2] - 1), draws, chance)
    rows = np.arange(usable.size).reshape(*usable.shape, 1) * log_p.shape[2]
    draws_of_trained = np.where(usable[:, :, None], log_p_trained.reshape(-1)[rows + positions], -np.inf)  # (n, L, D)
    log_p_held_out = np.where(usable, log_p_held_out, -np.inf)
    score = _mean_over_draws(log_mean(draws_of_trained, models[:, None]), log_mean(log_p_held_out, models), is_draw)
    if not without_each:
        return score, np.empty((len(score), 0))
    remaining_models = models[:, None] - usable
    u = log_mean_but_one(draws_of_trained, remaining_models[:, :, None])
    v = log_mean_but_one(log_p_held_out, remaining_models)
    return score, _mean_over_draws(u, v, is_draw[:, None])


def choices(
    counts: NDArray[np.int64], exactly: int, draws: int, chance: np.random.Generator
) -> tuple[NDArray[np.int64], Mask]:
    """Return indices below `counts` (n, L) for each draw, (n, L, D), and a mask of the valid draws, (n, D).

    An observation with at most `exactly` choices gets every choice once; otherwise it gets `draws` uniform draws.
    """
    combinations = counts.prod(axis=1, dtype=np.float64)
    few = combinations <= exactly
    number = np.where(few, combinations, draws).astype(np.int64)
    last = int(number.max(initial=1))
    draw = np.arange(last)
    # Write the number of the choice in mixed radix: digit l is below counts[l].
    strides = np.cumprod(np.where(few[:, None], counts, 1), axis=1) // np.where(few[:, None], counts, 1)
    places = draw // strides[:, :, None] % counts[:, :, None]
    if not few.all():
        # 24 bits per draw suffice. In float32, (1 - 2^-24) times the count may round up to the count, hence the
        # minimum.
        parts = chance.random((*counts.shape, draws), dtype=np.float32)[~few]
        parts *= counts[~few][:, :, None]
        places[~few, :, :draws] = np.minimum(parts.astype(np.int64), counts[~few][:, :, None] - 1)
    return places, draw < number[:, None]


def _mean_over_draws(u: Array, v: Array, is_draw: Mask) -> Array:
    """Average u - v over the last axis, using only draws in `is_draw` that are finite on both sides."""
    finite = np.isfinite(u) & is_draw
    count = finite.sum(axis=-1)
    mean = np.where(finite, u, 0.0).sum(axis=-1) / np.maximum(count, 1)
    # If no draw is finite, either all draws have probability 0 or there is no model.
    return difference(np.where(count > 0, mean, u[..., 0]), v)


def log_mean(values: Array, count: NDArray[np.int64]) -> Array:
    """Compute log (sum of exp values / count) over axis 1, with -inf for excluded values. NaN if count is 0.

    The result is exact for a single term.
    """
    top = _finite_or_zero(values.max(axis=1))
    parts = values - np.expand_dims(top, 1)
    sums = np.exp(parts, out=parts).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top + np.log(sums / count))


def log_mean_but_one(values: Array, count: NDArray[np.int64]) -> Array:
    """Compute log_mean over axis 1 without each entry in turn. `count` is the number of remaining entries.

    The result has the shape of `values`. Without the largest term the sum is recomputed, because subtracting this term
    would leave only rounding errors.
    """
    largest = values.argmax(axis=1, keepdims=True)
    top = _finite_or_zero(np.take_along_axis(values, largest, axis=1))
    parts = values - top
    np.exp(parts, out=parts)
    sums = parts.sum(axis=1, keepdims=True)
    rest = np.array(values)
    np.put_along_axis(rest, largest, -np.inf, axis=1)
    second = _finite_or_zero(rest.max(axis=1, keepdims=True))
    rest -= second
    np.exp(rest, out=rest)
    with np.errstate(divide="ignore", invalid="ignore"):
        # If two terms are equally large, the rest contains at least one of them and is not just rounding error.
        np.subtract(sums, parts, out=parts)
        np.divide(parts, count, out=parts)
        np.log(parts, out=parts)
        parts += top
        anew = second + np.log(rest.sum(axis=1, keepdims=True) / np.take_along_axis(wide(count, values), largest, 1))
    np.put_along_axis(parts, largest, anew, axis=1)
    return parts


def others(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the total count without each repetition in turn, (n, L)."""
    return np.asarray(counts.sum(axis=1, keepdims=True) - counts)


def difference(u: Array, v: Array) -> Array:
    """Compute u - v. NaN if both are infinite."""
    with np.errstate(invalid="ignore"):
        return np.asarray(u - v)


def _finite_or_zero(top: Array) -> Array:
    """Return the largest terms, to be subtracted before exp, with 0 for infinite ones."""
    return np.where(np.isfinite(top), top, 0.0)


def wide(count: NDArray[np.int64], values: Array) -> NDArray[np.int64]:
    return np.broadcast_to(count, values.shape)
