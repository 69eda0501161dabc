"""Thresholds of the rules, as their texts state them."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.audits.membership.loss_config import LossAttack
from tasks.contract.epsilon_rows import CONFIDENCE
from tasks.external.split_audit import BLIND_LEVEL

UNLIKE = 0.05  # level of the exact test of whether the given model is like those trained here
# A model trained on other records differs more from the models trained here than these differ from each other, because
# they share one set of records. Suppose that each record shifts the score of an image with variance v, and chance with
# variance t. Halves of N records then vary around the set's mean by N v / 4 + t. Half of N other records varies around
# that mean by N v / 2 + N v / 4 + t, at most three times as much.
WIDER = 3
MOST_DIFFERING = 0.01  # as a share of the repeated images
ENOUGH_POWER = 0.8  # lower limit of the identified share of models trained here


def thresholds(config: Membership) -> Mapping[str, str]:
    """Return the thresholds of all rules, with defaults for those of other questions."""
    question = config.question
    if isinstance(question, Canaries | LossAttack):
        level = Halves.level
    else:
        level = question.level
    if isinstance(question, Halves):
        negligible = question.negligible
    else:
        negligible = Halves.negligible
    return {
        "evidence": f"{1 / level:g}",
        "level": f"{100 * level:g}",
        "auc": f"{0.5 + negligible:g}",
        "nats": f"{config.smallest_effect:g}",
        "confidence": f"{100 * CONFIDENCE:g}",
        "wrong": f"{100 * (1 - CONFIDENCE):.0f}",
        "unlike": f"{100 * UNLIKE:g}",
        "told_apart": f"{100 * BLIND_LEVEL:g}",
        "wider": f"{WIDER:g}",
        "differing": f"{100 * MOST_DIFFERING:g}",
        "power": f"{100 * ENOUGH_POWER:g}",
    }
