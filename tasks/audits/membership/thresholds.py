"""The numbers in the texts of all rules."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.contract.epsilon_rows import CONFIDENCE
from tasks.contract.power import SMALLEST
from tasks.external.split_audit import BLIND_LEVEL

UNLIKE = 0.05  # of the exact test that the given model is one of those trained here
# A model that was trained on other records lies further from the models trained here than these from one another, since
# they share one set of records. Let a record shift the answer about an image by an amount of variance v, and chance by
# t. Halves of N records vary about the set's mean by N v / 4 + t; half of N other records varies about that mean by
# N v / 2 + N v / 4 + t: three times as much at most.
WIDER = 3
MOST_DIFFERING = 0.01  # of the pictures that were handed out twice
ENOUGH_POWER = 0.8  # lower limit of the share of own models that are found out


def thresholds(config: Membership) -> Mapping[str, str]:
    """The thresholds in all rules; at their defaults in the rules for other questions."""
    question = config.question
    level = Halves.level if isinstance(question, Canaries) else question.level
    negligible = question.negligible if isinstance(question, Halves) else Halves.negligible
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
