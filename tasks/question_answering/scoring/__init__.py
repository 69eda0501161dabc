"""How well an answer agrees with the gold answers, by the rules of the sets' official scripts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from tasks.datasets.questions.question import Answer, Scorer
from tasks.question_answering.scoring import drop, squad

RULES: Mapping[Scorer, Callable[[Answer, Answer], tuple[float, float]]] = {
    "squad": squad.agreement,
    "drop": drop.agreement,
}

MATCH_KEYS: Mapping[Scorer, Callable[[Answer], Hashable]] = {"squad": squad.match_key, "drop": drop.match_key}


def match_key(scorer: Scorer, answer: Answer) -> Hashable:
    """What exact match compares of an answer: it matches a gold answer, unless that is blank, where these are equal."""
    return MATCH_KEYS[scorer](answer)


def score_answer(scorer: Scorer, answer: Answer, golds: Sequence[Answer]) -> tuple[float, float]:
    """Exact match (0 or 1) and F1 (in [0, 1]) of the answer, each with the gold answer that it agrees with best.

    An answer without spans is as an empty text. DROP's blank gold answers agree with nothing. ValueError without any
    gold answer.
    """
    if not golds:
        raise ValueError("there is no gold answer to compare an answer with")
    scores = [RULES[scorer](answer, gold) for gold in golds]
    return max(exact for exact, _ in scores), max(f1 for _, f1 in scores)
