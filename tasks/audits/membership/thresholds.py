"""The thresholds of the rules, as their texts state them."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.contract.epsilon_rows import CONFIDENCE
from tasks.contract.power import SMALLEST
from tasks.external.split_audit import BLIND_LEVEL

UNLIKE = 0.05  # level of the exact test that the given model is one of those trained here
# A model trained on other records differs more from the models trained here than these do from each other, because they
# share one set of records. Let each record shift the score of an image with variance v, and chance with variance t.
# Halves of N records vary about the set's mean by N v / 4 + t. Half of N other records varies about that mean by
# N v / 2 + N v / 4 + t: at most three times as much.
WIDER = 3
MOST_DIFFERING = 0.01  # share of the repeated images
ENOUGH_POWER = 0.8  # lower limit of the share of models trained here that are identified


def thresholds(config: Membership) -> Mapping[str, str]:
    """Return the thresholds of all rules; those of other questions have their defaults."""
    question = config.question
    if isinstance(question, Canaries):
        level = Halves.level
    else:
        level = question.level
    if isinstance(question, Halves):
        negligible = question.negligible
    else:
        negligible = Halves.negligible
    return {
        "level": f"{100 * level:g}",
        "auc": f"{0.5 + negligible:g}",
        "nats": f"{SMALLEST:g}",
        "confidence": f"{100 * CONFIDENCE:g}",
        "wrong": f"{100 * (1 - CONFIDENCE):.0f}",
        "unlike": f"{100 * UNLIKE:g}",
        "told_apart": f"{100 * BLIND_LEVEL:g}",
        "wider": f"{WIDER:g}",
        "differing": f"{100 * MOST_DIFFERING:g}",
        "power": f"{100 * ENOUGH_POWER:g}",
    }
