"""How well an answer agrees with the gold answers, by the rules of the sets' official scripts.

SQuAD v1.1's: Rajpurkar et al. 2016, section 6.1. DROP's: Dua et al. 2019, section 5, "Evaluation metrics".
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from tasks.datasets.questions.question import Answer, Scorer

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)  # of ASCII: a dash or quotation mark of Unicode stays


def squad_agreement(answer: Answer, gold: Answer) -> tuple[float, float]:
    """Exact match, and F1 of the words with their multiplicity; several spans are one text, with spaces between.

    F1 is 0 where no word is common, so also for two texts without any word, which match exactly.
    """
    words, right = squad_words(" ".join(answer)), squad_words(" ".join(gold))
    exact = float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    if not common:
        return exact, 0.0
    precision, recall = common / len(words), common / len(right)
    return exact, 2 * precision * recall / (precision + recall)


def _squad_match_key(answer: Answer) -> Hashable:
    """What exact match compares of an answer."""
    return squad_words(" ".join(answer))


@lru_cache(1 << 16)
def squad_words(text: str) -> tuple[str, ...]:
    """The words in small letters without punctuation and articles: "76.5" becomes "765"."""
    return tuple(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
BETWEEN_WORDS = re.compile("[ -]")


def drop_agreement(answer: Answer, gold: Answer) -> tuple[float, float]:
    """Exact match of the set of spans, and F1 of the spans' words under the best one-to-one alignment.

    F1 is averaged over the spans of the longer of both answers, and rounded to two digits. A span whose gold span has
    numbers, none of which is in it, counts 0. A blank gold answer agrees with nothing.
    """
    if not gold or not gold[0].strip():
        return 0.0, 0.0
    from scipy.optimize import linear_sum_assignment  # which planning does without

    spans, right = [drop_words(span) for span in answer], [drop_words(span) for span in gold]
    exact = float(len(spans) == len(right) and set(spans) == set(right))
    scores = np.array([[_word_f1(set(span), set(other)) for span in spans] for other in right])  # (golds, spans)
    aligned = scores.reshape(len(right), len(spans))
    total = aligned[linear_sum_assignment(aligned, maximize=True)].sum()
    return exact, float(np.round(total / max(aligned.shape), 2))


def _drop_match_key(answer: Answer) -> Hashable:
    """What exact match compares of an answer."""
    return len(answer), frozenset(drop_words(span) for span in answer)


def _word_f1(words: set[str], right: set[str]) -> float:
    """F1 of two sets of words; 0 where the right ones have numbers and none of them is among the words."""
    numbers = {word for word in right if is_number(word)}
    if numbers and not numbers & words:
        return 0.0
    common = len(words & right)
    precision = common / len(words) if words else 1.0
    recall = common / len(right) if right else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@lru_cache(1 << 16)
def drop_words(span: str) -> tuple[str, ...]:
    """The words in small letters without articles and punctuation, numbers as floats; hyphens part words as spaces do.

    "1,200" becomes "1200.0"; "76.5" keeps its point, and "76.5%", which is no number, loses it.
    """
    words = [ARTICLES.sub(" ", _normalise_number(word)) for word in BETWEEN_WORDS.split(span.lower())]
    return tuple(part for word in words for part in word.split())


def _normalise_number(word: str) -> str:
    bare = word if is_number(word) else word.translate(PUNCTUATION)
    return str(float(bare)) if is_number(bare) else bare


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


RULES: Mapping[Scorer, Callable[[Answer, Answer], tuple[float, float]]] = {
    "squad": squad_agreement,
    "drop": drop_agreement,
}

MATCH_KEYS: Mapping[Scorer, Callable[[Answer], Hashable]] = {"squad": _squad_match_key, "drop": _drop_match_key}


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
