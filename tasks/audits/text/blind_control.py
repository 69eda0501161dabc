"""A blind control for two sets of texts: a bag-of-words classifier that uses no model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BLIND = "blind control"
WORDS = 1000  # number of most common words that the blind control counts
PIECE = re.compile(r"[^\W\d_]+|\d|[^\w\s]")


def bag_of_words(texts: Sequence[str]) -> Array:
    """Count the most common words of each text, and its length. The shape is (texts, words + 1)."""
    counts = [Counter(PIECE.findall(text.lower())) for text in texts]
    total = sum(counts, Counter[str]())
    commonest = sorted(total, key=lambda word: (-total[word], word))[:WORDS]
    rows = []
    for count, text in zip(counts, texts, strict=True):
        rows.append([*(count[word] for word in commonest), len(text)])
    return np.array(rows, dtype=np.float64)
