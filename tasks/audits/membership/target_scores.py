"""Scores of all targets by one attack at a time, and their order.

Only the scores of one attack are in memory, 8 bytes for each model and record. Each row is then sorted in place, the
records that the target was not trained on first. Areas, rates and thresholds need no other order of the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.attacks import ATTACKS, LABELS
from tasks.audits.membership.left_out import Array, Mask, Targets, for_each, pair_models
from tasks.audits.membership.trainings import Answers, has_labels, read_column, stack_marks
from tasks.numerics.ranks import area_of_ascending, check_finite

SAMPLE = 2**18  # scores in the sample that brackets a threshold


def balanced_part(member: Mask) -> tuple[int, Mask] | None:
    """Return the number of models, and the records in exactly half of them: all records unless trainings are missing.

    An odd number of models is reduced by one. None with fewer than four models, or without such records.
    """
    models = len(member) // 2 * 2
    half = 2 * np.count_nonzero(member[:models], axis=0) == models
    return (models, half) if models >= 4 and half.any() else None


def balanced_targets(tables: Sequence[pa.Table], seed: int) -> Targets | None:
    """Return the targets for the records in exactly half of the models. None if there are none (`balanced_part`).

    Log-odds are read from the tables block by block. Raises ValueError for NaN or infinite log-odds.
    """
    phi = [read_column(table["log_odds"]) for table in tables]
    check_finite(phi, "log-odds of the models")
    member = stack_marks(tables, "member")
    part = balanced_part(member)
    if part is None:
        return None
    models, half = part
    correct = None
    if has_labels(tables):
        correct = _select(stack_marks(tables, "correct"), models, half)
    records = None if half.all() else np.flatnonzero(half)
    member = _select(member, models, half)
    return Targets(member, phi[:models], records, correct, pair_models(member, seed))


def targets_of(answers: Answers, seed: int) -> Targets:
    """Return the targets for answers in which every record is in half of the models."""
    pairs = pair_models(answers.member, seed)
    return Targets(answers.member, list(answers.phi), None, answers.correct, pairs)


def _select(marks: Mask, models: int, half: Mask) -> Mask:
    return marks[:models] if half.all() else marks[:models][:, half]


def attacks_on(targets: Targets) -> list[str]:
    """Return the names of the possible attacks. The label-only attack needs to know which answers are correct."""
    return [attack for attack in ATTACKS if attack != LABELS or targets.correct is not None]


def score_block(targets: Targets, attack: str, block: slice) -> Array:
    """Score a block of records with an attack on each target, (models, records)."""
    if attack == LABELS:
        assert targets.correct is not None
        return ATTACKS[attack](targets.block(block, targets.correct[:, block].astype(np.float64)))
    return ATTACKS[attack](targets.block(block, targets.phi_of(block), targets.over_records))


def score_targets(targets: Targets) -> Iterator[tuple[str, Array]]:
    """Yield each attack's name and its scores of every record on each target, (models, records).

    Every attack overwrites the array of the previous one, so that two are never in memory.
    """
    scores = np.empty(targets.member.shape)
    for attack in attacks_on(targets):
        yield attack, score_attack(targets, attack, scores)


def score_attack(targets: Targets, attack: str, out: Array | None = None) -> Array:
    """Score every record with an attack on each target, (models, records). Writes to `out` if it is given."""
    scores = np.empty(targets.member.shape) if out is None else out

    def score(block: slice) -> None:
        scores[:, block] = score_block(targets, attack, block)

    _prepare(targets, attack)
    for_each(score, targets.blocks())
    return scores


def copy_log_odds(targets: Targets, out: Array) -> None:
    """Write the log-odds of every record for each target to `out`, (models, records)."""
    for block in targets.blocks():
        out[:, block] = targets.phi_of(block)


def _prepare(targets: Targets, attack: str) -> None:
    """Compute what the threads share before they start."""
    if attack != LABELS:
        _ = targets.over_records


def share_of_pairs_won(scores: Array, targets: Targets) -> Array:
    """Return the share of training records that score higher with the target than with its partner, (targets,).

    Ties count half.
    """

    def count(block: slice) -> Array:
        won: Array = targets.pairs_won(block, scores[:, block]).sum(axis=1)
        return won

    counts = for_each(count, targets.blocks())
    share: Array = np.sum(counts, axis=0) / targets.member.sum(axis=1)
    return share


@dataclass(frozen=True, eq=False)
class SortedScores:
    """Ascending scores of each target: of the records that it was not trained on, and of the others."""

    outside: Sequence[Array]
    inside: Sequence[Array]


def sort_scores(scores: Array, member: Mask) -> SortedScores:
    """Sort the scores (models, records) of each target in place."""

    def sort(target: int) -> tuple[Array, Array]:
        row = scores[target]
        is_member = member[target]
        inside = row[is_member]
        count = len(row) - len(inside)
        row[:count] = row[~is_member]
        row[count:] = inside
        row[:count].sort()
        row[count:].sort()
        return row[:count], row[count:]

    rows = for_each(sort, range(len(scores)))
    return SortedScores([outside for outside, _ in rows], [inside for _, inside in rows])


def areas_under_curves(scores: SortedScores) -> list[float]:
    """Return the area under the curve of each target."""
    targets = range(len(scores.inside))
    return for_each(lambda target: area_of_ascending(scores.inside[target], scores.outside[target]), targets)


def share_above(ascending: Sequence[Array], thresholds: Array) -> Array:
    """Return the share of each target's scores above its threshold, (targets,)."""
    share: Array = counts_above(ascending, thresholds) / np.array([len(row) for row in ascending])
    return share


def counts_above(ascending: Sequence[Array], thresholds: Array) -> NDArray[np.int64]:
    """Count each target's scores above its threshold, (targets,)."""
    counts = []
    for row, threshold in zip(ascending, thresholds, strict=True):
        counts.append(len(row) - int(np.searchsorted(row, threshold, side="right")))
    return np.array(counts)


@dataclass(frozen=True, eq=False)
class _Window:
    """Consecutive scores of all rows together.

    `values` are ascending. `below` is the number of scores below them, and `starts` and `stops` are the positions in
    each row.
    """

    values: Array
    below: int
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


class SortedRows:
    """Several ascending rows, and the order of all their values together, without sorting these."""

    def __init__(self, rows: Sequence[Array]) -> None:
        self.rows = rows
        self.count = sum(len(row) for row in rows)
        self._step = -(-self.count // SAMPLE)
        self._sample = np.sort(np.concatenate([row[self._step - 1 :: self._step] for row in rows]))

    def window(self, first: int, last: int) -> _Window:
        """Return a window that contains the values of these ranks, from 0 for the smallest.

        If n values of the sample are below a value, then between n steps and n steps + rows x (step - 1) of all values
        are below it.
        """
        lower = (first - len(self.rows) * (self._step - 1)) // self._step
        upper = -(-(last + 1) // self._step) - 1
        low = self._sample[lower] if lower >= 0 else -np.inf
        high = self._sample[upper] if upper < len(self._sample) else np.inf
        starts = np.array([np.searchsorted(row, low, side="left") for row in self.rows])
        stops = np.array([np.searchsorted(row, high, side="right") for row in self.rows])
        parts = [row[start:stop] for row, start, stop in zip(self.rows, starts, stops, strict=True)]
        return _Window(np.sort(np.concatenate(parts)), int(starts.sum()), starts, stops)

    def at_ranks(self, first: int, last: int) -> Array:
        """Return the values of these ranks, from 0 for the smallest."""
        window = self.window(first, last)
        return window.values[first - window.below : last - window.below + 1]


def find_thresholds(outside: Sequence[Array], nominal: Sequence[float]) -> Array:
    """Return each target's threshold at nominal false-positive rates, (rates, targets).

    It is that quantile of the scores of records that the other targets were not trained on. `outside` contains, for
    each target, the ascending scores of the records that it was not trained on itself.
    """
    rows = SortedRows(outside)
    counts = np.array([len(row) for row in outside])
    thresholds = np.empty((len(nominal), len(outside)))
    for number, rate in enumerate(nominal):
        ranks = np.maximum(0, np.ceil((1 - rate) * (rows.count - counts)).astype(np.int64) - 1)
        window = rows.window(int(ranks.min()), min(int((ranks + counts).max()), rows.count - 1))
        for target, row in enumerate(outside):
            start, stop = window.starts[target], window.stops[target]
            rank = ranks[target] - (window.below - start)
            thresholds[number, target] = _without(window.values, row[start:stop], int(rank))
    return thresholds


def _without(values: Array, own: Array, rank: int) -> float:
    """Return the value of this rank among ascending values without the target's own, which are ascending as well."""
    equal_before = np.arange(len(own)) - np.searchsorted(own, own, side="left")
    positions = np.searchsorted(values, own, side="left") + equal_before
    others_before = positions - np.arange(len(own))
    return float(values[rank + np.searchsorted(others_before, rank, side="right")])
