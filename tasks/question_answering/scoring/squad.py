"""The rule of SQuAD v1.1's evaluation script: Rajpurkar et al. 2016, section 6.1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable
from functools import lru_cache

from tasks.datasets.questions.question import Answer

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)  # of ASCII: a dash or quotation mark of Unicode stays


def agreement(answer: Answer, gold: Answer) -> tuple[float, float]:
    """Exact match, and F1 of the words with their multiplicity; several spans are one text, with spaces between.

    F1 is 0 where no word is common, so also for two texts without any word, which match exactly.
    """
    words, right = normalise(" ".join(answer)), normalise(" ".join(gold))
    exact = float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    if not common:
        return exact, 0.0
    precision, recall = common / len(words), common / len(right)
    return exact, 2 * precision * recall / (precision + recall)


def match_key(answer: Answer) -> Hashable:
    """What exact match compares of an answer."""
    return normalise(" ".join(answer))


@lru_cache(1 << 16)
def normalise(text: str) -> tuple[str, ...]:
    """The words in small letters without punctuation and articles: "76.5" becomes "765"."""
    return tuple(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())
