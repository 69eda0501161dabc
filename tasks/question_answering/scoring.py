"""Agreement of an answer with the gold answers, by the rules of the official scripts.

SQuAD v1.1: Rajpurkar et al. 2016, section 6.1. DROP: Dua et al. 2019, section 5, "Evaluation metrics".
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
PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only; Unicode dashes and quotation marks remain


def squad_agreement(answer: Answer, gold: Answer) -> tuple[float, float]:
    """Return exact match, and F1 of the words with multiplicity. Spans are joined by spaces.

    F1 is 0 if there are no common words, including for two texts without words, which match exactly.
    """
    words = squad_words(" ".join(answer))
    right = squad_words(" ".join(gold))
    exact = float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    if not common:
        return exact, 0.0
    precision = common / len(words)
    recall = common / len(right)
    return exact, 2 * precision * recall / (precision + recall)


def _squad_match_key(answer: Answer) -> Hashable:
    """Return what exact match compares in an answer."""
    return squad_words(" ".join(answer))


@lru_cache(1 << 16)
def squad_words(text: str) -> tuple[str, ...]:
    """Split a text into lower-case words without punctuation and articles: "76.5" becomes "765"."""
    return tuple(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


BETWEEN_WORDS = re.compile("[ -]")


def drop_agreement(answer: Answer, gold: Answer) -> tuple[float, float]:
    """Return exact match of the set of spans, and F1 of their words under the best one-to-one alignment.

    F1 is averaged over the spans of the longer answer and rounded to two digits. A span that contains none of the
    numbers in its gold span counts 0. A blank gold answer agrees with no answer.
    """
    if not gold or not gold[0].strip():
        return 0.0, 0.0
    from scipy.optimize import linear_sum_assignment  # not needed for planning

    spans = [drop_words(span) for span in answer]
    gold_spans = [drop_words(span) for span in gold]
    exact = float(len(spans) == len(gold_spans) and set(spans) == set(gold_spans))
    scores: list[float] = []
    for gold_span in gold_spans:
        scores += [_word_f1(set(span), set(gold_span)) for span in spans]
    aligned = np.array(scores).reshape(len(gold_spans), len(spans))
    total = aligned[linear_sum_assignment(aligned, maximize=True)].sum()
    return exact, float(np.round(total / max(aligned.shape), 2))


def _drop_match_key(answer: Answer) -> Hashable:
    """Return what exact match compares in an answer."""
    return len(answer), frozenset(drop_words(span) for span in answer)


def _word_f1(words: set[str], right: set[str]) -> float:
    """Return F1 of two sets of words. It is 0 if the gold words contain numbers and the words contain none of them."""
    numbers = {word for word in right if is_number(word)}
    if numbers and not numbers & words:
        return 0.0
    common = len(words & right)
    precision = common / len(words) if words else 1.0
    recall = common / len(right) if right else 1.0
    if not precision + recall:
        return 0.0
    return 2 * precision * recall / (precision + recall)


@lru_cache(1 << 16)
def drop_words(span: str) -> tuple[str, ...]:
    """Split a span at spaces and hyphens into lower-case words without articles and punctuation.

    Numbers become floats: "1,200" becomes "1200.0". "76.5" keeps its point, and "76.5%", which is not a number, loses
    it.
    """
    words = []
    for word in BETWEEN_WORDS.split(span.lower()):
        words.append(ARTICLES.sub(" ", _normalise_number(word)))
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
    """Return a key that is equal for two answers that match exactly.

    Blank gold answers never match.
    """
    return MATCH_KEYS[scorer](answer)


def score_answer(scorer: Scorer, answer: Answer, golds: Sequence[Answer]) -> tuple[float, float]:
    """Return exact match (0 or 1) and F1 (in [0, 1]) of the answer, each for the best gold answer.

    An answer without spans counts as an empty text. Raises ValueError if there are no gold answers.
    """
    if not golds:
        raise ValueError("expected at least one gold answer, got none")
    scores = [RULES[scorer](answer, gold) for gold in golds]
    return max(exact for exact, _ in scores), max(f1 for _, f1 in scores)
