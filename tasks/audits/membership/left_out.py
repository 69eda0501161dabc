"""References of every target at once: all models without the target and its partner.

For every record, each model trained on it is paired with a model that was not, and the target's partner is also left
out of the references. If only the target were left out, the numbers of members and non-members among the references
would reveal its membership.

Partners have the same references. If the record has no effect, each partner is therefore equally likely to score it
higher: within pairs the null is exact, record by record. This does not hold across the pairs of one record, because
their references overlap. There the area under the curve is .44 instead of .5 (online LiRA, 16 models, simulated), which
goes unnoticed if records are pooled.

A record has only as many different sets of references as pairs. The sums over them are computed from cumulative sums
over the pairs, so that the time is proportional to models x records. No sum is subtracted from another: leaving out an
extreme score by subtraction would lose the digits of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.audits.membership.attacks import (
    LEAST_VARIANCE,
    Moments,
    Prior,
    log_likelihood,
    prior_of_moments,
)
from tasks.numerics import seeds
from tasks.worker.hardware import granted_processors, keep_freed_memory

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.integer[Any]]
Rows = NDArray[np.int64]
SCORES_AT_ONCE = 2**18  # of a block of records, 2 MB; its arrays then fit into a processor's cache
Result = TypeVar("Result")


def pair_models(member: Mask, seed: int) -> Numbers:
    """Pair members and non-members at random. Returns each model's pair index for each record, from 0.

    Both arrays have shape (models, records), and every record is in half of the models.
    """
    models, records = member.shape
    pairs = np.empty(member.shape, dtype=np.min_scalar_type(models // 2 - 1))

    def pair_block(block: slice) -> None:
        # The numbers of one draw for all records, without holding them all.
        stream = seeds.generator(seed, "pairs of models")
        assert isinstance(stream.bit_generator, np.random.PCG64)
        stream.bit_generator.advance(block.start)
        count = block.stop - block.start
        numbers = np.empty((count, models))
        for model in range(models):
            numbers[:, model] = stream.random(count)
            stream.bit_generator.advance(records - count)
        order = np.argsort(numbers + member[:, block].T, axis=1).T  # non-members first, in random order
        indices = np.arange(models, dtype=pairs.dtype)[:, None] % (models // 2)
        np.put_along_axis(pairs[:, block], order, np.broadcast_to(indices, order.shape), axis=0)

    for_each(pair_block, list(blocks_of(models, records)))
    return pairs


def blocks_of(models: int, records: int) -> Iterator[slice]:
    """Divide the records into blocks. They do not depend on the hardware, so that sums over blocks do not either."""
    size = max(1, SCORES_AT_ONCE // models)
    for start in range(0, records, size):
        yield slice(start, min(start + size, records))


def for_each(function: Callable[[Any], Result], parts: Sequence[Any]) -> list[Result]:
    """Call a function for each part, on all processors of this job. Returns the results in order."""
    keep_freed_memory()  # otherwise, the arrays of every block would be filled with zeros first
    processors = min(granted_processors(), len(parts))
    if processors < 2:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(processors) as pool:
        return list(pool.map(function, parts))


def window_sums(values: Array, length: int) -> Array:
    """Sum, for each row, the `length` rows after it, (rows, columns). After the last row comes the first."""
    firsts, seconds = _chunk_pairs(values, length)
    sums, second_sums = _join(_sums_to_end(firsts), _sums_from_start(seconds), len(values))
    sums[1:] += second_sums
    return sums


def window_squares(values: Array, length: int) -> tuple[Array, Array]:
    """Return the sums of `window_sums`, and the sums of squared deviations from each window's mean.

    Both parts of a window are merged by Chan, Golub & LeVeque 1983, eq. 2.1. All terms are positive, so the squares
    have the relative error of a sum.
    """
    firsts, seconds = _chunk_pairs(values, length)
    to_end = _sums_to_end(firsts)
    from_start = _sums_from_start(seconds)
    squares, second_squares = _join(
        _sums_to_end(_square_terms(firsts[:, ::-1], to_end[:, ::-1])[:, ::-1]),
        _sums_from_start(_square_terms(seconds, from_start)),
        len(values),
    )
    sums, second_sums = _join(to_end, from_start, len(values))
    second_counts = (np.arange(1, len(values)) % length).astype(np.float64)[:, None]
    gap = second_sums / np.maximum(second_counts, 1)
    gap -= sums[1:] / (length - second_counts)
    np.square(gap, out=gap)
    gap *= second_counts * (1 - second_counts / length)
    squares[1:] += second_squares
    squares[1:] += gap
    sums[1:] += second_sums
    return sums, squares


def _chunk_pairs(values: Array, length: int) -> tuple[Array, Array]:
    """Return chunks of `length` rows, from the second row, and the chunk after each, (chunks, length, columns).

    A window is the end of a chunk and the beginning of the next one. van Herk 1992, "A fast algorithm for local minimum
    and maximum filters on rectangular and octagonal kernels".
    """
    rows, columns = values.shape
    count = -(-(rows + length - 1) // length)
    chunks = values[np.arange(1, 1 + count * length) % rows].reshape(count, length, columns)
    return chunks[:-1], chunks[1:]


def _join(to_end: Array, from_start: Array, rows: int) -> tuple[Array, Array]:
    """Return the sum of the first part of each window, (rows, columns), and of the second, without the first window.

    `to_end` are sums from each row of a chunk to its end, `from_start` those from the start of the next chunk to each
    of its rows. A window that is a chunk has no second part. Overwrites `from_start`.
    """
    first = np.empty((rows, to_end.shape[2]))
    ends = to_end.reshape(-1, to_end.shape[2])
    first[: len(ends)] = ends[:rows]
    first[len(ends) :] = from_start[-1, -1]
    from_start[:, -1] = 0.0
    return first, from_start.reshape(-1, to_end.shape[2])[: rows - 1]


def _sums_from_start(chunks: Array) -> Array:
    """Return the sums of the first 1, 2, ... rows of each chunk. Adding whole rows is faster than `np.cumsum`."""
    sums = np.empty(chunks.shape)
    sums[:, 0] = chunks[:, 0]
    for row in range(1, chunks.shape[1]):
        np.add(sums[:, row - 1], chunks[:, row], out=sums[:, row])
    return sums


def _sums_to_end(chunks: Array) -> Array:
    """Return the sums of each row of a chunk and all rows after it."""
    sums = np.empty(chunks.shape)
    sums[:, -1] = chunks[:, -1]
    for row in range(chunks.shape[1] - 2, -1, -1):
        np.add(sums[:, row + 1], chunks[:, row], out=sums[:, row])
    return sums


def _square_terms(chunks: Array, sums: Array) -> Array:
    """Return what each row adds to the squared deviations of the rows before it, from the sums up to each row.

    Welford 1962, "Note on a method for calculating corrected sums of squares and products".
    """
    terms = np.empty(chunks.shape)
    terms[:, 0] = 0.0
    counts = np.arange(1.0, chunks.shape[1])[:, None]
    later = terms[:, 1:]
    np.divide(sums[:, :-1], counts, out=later)
    np.subtract(chunks[:, 1:], later, out=later)
    np.square(later, out=later)
    later *= counts / (counts + 1)
    return terms


@dataclass(frozen=True, eq=False)
class OverRecords:
    """What an attack knows of one side of each target's references over all records, (targets, 1)."""

    pooled_variance: Array
    prior: Prior


@dataclass(frozen=True, eq=False)
class LeftOutSide:
    """One side of the references of all targets for a block of records (`attacks.Side`), (targets, records).

    `phi` (pairs, records) is that of the model of this side in each pair. `pair` (targets, records) are flat indices of
    each target's pair. Each target has the `references` pairs after its own.
    """

    phi: Array
    pair: Rows
    references: int
    over_records: OverRecords | None

    @property
    def count(self) -> Array:
        return np.asarray(float(self.references))

    @cached_property
    def total(self) -> Array:
        if "_sums_and_squares" in self.__dict__:
            return self._of_targets(self._sums_and_squares[0])
        return self._of_targets(window_sums(self.phi, self.references))

    @cached_property
    def squares(self) -> Array:
        return self._of_targets(self._sums_and_squares[1])

    @cached_property
    def log_likelihood(self) -> Array:
        return self._of_targets(window_sums(log_likelihood(self.phi), self.references)) / self.references

    @cached_property
    def probability(self) -> Array:
        probability = np.exp(log_likelihood(self.phi))
        return self._of_targets(window_sums(probability, self.references)) / self.references

    @property
    def pooled_variance(self) -> Array:
        assert self.over_records is not None
        return self.over_records.pooled_variance

    @property
    def prior(self) -> Prior:
        assert self.over_records is not None
        return self.over_records.prior

    @cached_property
    def _sums_and_squares(self) -> tuple[Array, Array]:
        return window_squares(self.phi, self.references)

    def _of_targets(self, values: Array) -> Array:
        return values.ravel().take(self.pair)


@dataclass(frozen=True, eq=False)
class Block:
    """The scores of all targets for a block of records, and their references (`attacks.References`)."""

    phi: Array
    inside: LeftOutSide
    outside: LeftOutSide


@dataclass(frozen=True, eq=False)
class Targets:
    """Models that are targets in turn.

    member: (models, records); half of the models were trained on each record.
    phi: That of each model for all records of its table.
    records: Positions of the audited records in these tables; None for all.
    correct: Whether the label is correct, (models, records); None if it is unknown.
    pairs: The result of `pair_models`.
    max_pairs: The number of pairs of references, the same for a target and its partner; None for all.
    """

    member: Mask
    phi: Sequence[Array]
    records: Rows | None
    correct: Mask | None
    pairs: Numbers
    max_pairs: int | None = None

    @property
    def references(self) -> int:
        """Number of references on each side of a target."""
        pairs = len(self.member) // 2
        return pairs - 1 if self.max_pairs is None else self.max_pairs

    def with_pairs(self, max_pairs: int) -> Targets:
        """Return the same targets with fewer references."""
        return replace(self, max_pairs=max_pairs)

    def blocks(self) -> list[slice]:
        return list(blocks_of(*self.member.shape))

    def phi_of(self, block: slice) -> Array:
        """Return the log-odds of a block of records, (models, records)."""
        rows = block if self.records is None else self.records[block]
        return np.stack([phi[rows] for phi in self.phi])

    def block(self, block: slice, values: Array, over_records: tuple[OverRecords, OverRecords] | None = None) -> Block:
        """Return the references for a block of records, given the models' values for them, (models, records)."""
        (outside, inside), pair = order_by_pair(values, self.member[:, block], self.pairs[:, block])
        inside_of_all, outside_of_all = over_records or (None, None)
        return Block(
            values,
            LeftOutSide(inside, pair, self.references, inside_of_all),
            LeftOutSide(outside, pair, self.references, outside_of_all),
        )

    def pairs_won(self, block: slice, values: Array) -> Array:
        """Return 1 for each target above its partner, given the models' values for a block of records.

        Both are (models, records). Ties count half, and targets that were not trained on a record have 0.
        """
        member = self.member[:, block]
        (outside, inside), pair = order_by_pair(values, member, self.pairs[:, block])
        won: Array = (inside > outside) + 0.5 * (inside == outside)
        of_targets: Array = won.ravel().take(pair) * member
        return of_targets

    @cached_property
    def over_records(self) -> tuple[OverRecords, OverRecords]:
        """Both sides over all records, inside first."""
        parts = for_each(self._block_moments, self.blocks())
        inside, outside = zip(*parts, strict=True)
        return _over_records(inside, self.references), _over_records(outside, self.references)

    def _block_moments(self, block: slice) -> tuple[_SideMoments, _SideMoments]:
        references = self.block(block, self.phi_of(block))
        return _SideMoments.of(references.inside), _SideMoments.of(references.outside)


def order_by_pair(values: Array, member: Mask, pairs: Numbers) -> tuple[Array, Rows]:
    """Return the values of both models of each pair, (2, pairs, records), and the flat index of each model's pair.

    All arguments and the index are (models, records). The model that was not trained on a record comes first.
    """
    models, records = values.shape
    half = models // 2
    pair = pairs * np.int64(records)
    pair += np.arange(records)
    ordered = np.empty((2, half, records))
    ordered.ravel()[pair + member * np.int64(half * records)] = values
    return ordered, pair


@dataclass(frozen=True, eq=False)
class _TargetMoments:
    """The number of records, and for each target the mean and the sum of squared deviations, (targets,)."""

    count: int
    mean: Array
    squares: Array

    @staticmethod
    def of(values: Array) -> _TargetMoments:
        mean = values.mean(axis=1)
        return _TargetMoments(values.shape[1], mean, ((values - mean[:, None]) ** 2).sum(axis=1))

    def merge(self, other: _TargetMoments) -> _TargetMoments:
        count = self.count + other.count
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        return _TargetMoments(count, mean, self.squares + other.squares + gap**2 * (self.count * other.count / count))

    def of_target(self, target: int) -> Moments:
        return Moments(self.count, float(self.mean[target]), float(self.squares[target]))


@dataclass(frozen=True, eq=False)
class _SideMoments:
    """Moments of the means, the variances and the log variances of a block of records. None for single references."""

    means: _TargetMoments
    variances: _TargetMoments | None
    logs: _TargetMoments | None

    @staticmethod
    def of(side: LeftOutSide) -> _SideMoments:
        if side.references < 2:
            return _SideMoments(_TargetMoments.of(side.total), None, None)
        variances = side.squares / (side.references - 1) + LEAST_VARIANCE
        means = _TargetMoments.of(side.total / side.references)
        return _SideMoments(means, _TargetMoments.of(variances), _TargetMoments.of(np.log(variances)))

    def merge(self, other: _SideMoments) -> _SideMoments:
        means = self.means.merge(other.means)
        if self.variances is None or self.logs is None or other.variances is None or other.logs is None:
            return _SideMoments(means, None, None)
        return _SideMoments(means, self.variances.merge(other.variances), self.logs.merge(other.logs))


def _over_records(parts: Sequence[_SideMoments], references: int) -> OverRecords:
    """Merge the moments of the blocks, and fit each target's prior to them."""
    moments = parts[0]
    for part in parts[1:]:
        moments = moments.merge(part)
    priors = []
    for target in range(len(moments.means.mean)):
        variances = None if moments.variances is None else moments.variances.of_target(target)
        logs = None if moments.logs is None else moments.logs.of_target(target)
        means = moments.means.of_target(target)
        priors.append(prior_of_moments(means, variances, logs, references - 1.0, 1 / references))
    columns = {}
    for name in ("mean", "count", "shape", "variance"):
        columns[name] = np.array([[getattr(prior, name)] for prior in priors])
    pooled = np.ones((len(priors), 1))
    if moments.variances is not None:
        pooled = (moments.variances.mean - LEAST_VARIANCE)[:, None]
    return OverRecords(pooled, Prior(**columns))
