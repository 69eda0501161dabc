"""The blind control of two sets of texts: a bag of words, which never sees a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.contract.summaries import Row

Array = NDArray[np.float64]
BLIND = "blind control"
WORDS = 1000  # the commonest, of which the blind control counts each
PIECE = re.compile(r"[^\W\d_]+|\d|[^\w\s]")


def bag_of_words(texts: Sequence[str]) -> Array:
    """What the blind control sees of each text: how often it has each of the commonest words, and its length."""
    counts = [Counter(PIECE.findall(text.lower())) for text in texts]
    total = sum(counts, Counter[str]())
    commonest = sorted(total, key=lambda word: (-total[word], word))[:WORDS]
    rows = [[*(count[word] for word in commonest), len(text)] for count, text in zip(counts, texts, strict=True)]
    return np.array(rows, dtype=np.float64)


def describe_area(row: Row) -> str:
    return f"{row['estimate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
