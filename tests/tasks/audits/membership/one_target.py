"""The scores and thresholds of one target after another, from lists of its references: slow, and easy to check."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.audits.membership.attacks import ATTACKS, LABELS, ListedReferences, ListedSide
from tasks.audits.membership.left_out import Mask, Numbers, Targets

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def partners(pairs: Numbers, target: int) -> Rows:
    """Return the partner of the target for each record, (records,)."""
    has_same_pair = pairs == pairs[target]
    has_same_pair[target] = False
    rows: Rows = has_same_pair.argmax(axis=0)
    return rows


def leave_pairs_out(
    phi: Array, member: Mask, pairs: Numbers, target: int, max_pairs: int | None = None
) -> ListedReferences:
    """Return the references of a target, without the target and its partner.

    With `max_pairs`, they are the pairs that follow the target's own.
    """
    models = len(member)
    after = (pairs.astype(int) - pairs[target] - 1) % (models // 2)  # the target's own pair comes last
    is_reference = after < (models // 2 - 1 if max_pairs is None else max_pairs)
    sides = []
    for side in (is_reference & member, is_reference & ~member):
        of_record, numbers = np.nonzero(side.T)  # every record has equally many references
        sides.append(ListedSide(phi[numbers, of_record].reshape(member.shape[1], -1).T))
    return ListedReferences(phi[target], *sides)


def score_slowly(targets: Targets) -> dict[str, Array]:
    """Score every record with each attack on each target, (models, records) each."""
    assert targets.correct is not None
    odds = targets.phi_of(slice(0, targets.member.shape[1]))
    scores = {attack: np.empty(odds.shape) for attack in ATTACKS}
    design = (targets.member, targets.pairs)
    for target in range(len(odds)):
        by_odds = leave_pairs_out(odds, *design, target, targets.max_pairs)
        by_labels = leave_pairs_out(targets.correct.astype(float), *design, target, targets.max_pairs)
        for attack, score in ATTACKS.items():
            scores[attack][target] = score(by_labels if attack == LABELS else by_odds)
    return scores


def thresholds_slowly(scores: Array, member: Mask, nominal: Sequence[float]) -> Array:
    """Return each target's threshold: a quantile of the scores of all other targets' non-members, (rates, targets)."""
    thresholds = np.empty((len(nominal), len(scores)))
    for target in range(len(scores)):
        is_other_target = np.arange(len(scores)) != target
        null = np.sort(scores[is_other_target][~member[is_other_target]])
        for number, rate in enumerate(nominal):
            thresholds[number, target] = null[max(0, int(np.ceil((1 - rate) * len(null))) - 1)]
    return thresholds
