"""Embedding statistics of an encoder: the share of equal pairs, and the accuracy of votes on public images."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tasks.audits.deja_vu.accuracy import votes
from tasks.contract.learning import chance_accuracy

Embeddings = NDArray[np.float32]
MOST_ASKED = 2000  # maximum number of public images to classify


def embedding_facts(
    cropped: Embeddings, public: Embeddings, labels: NDArray[np.integer], k: int
) -> dict[str, float | int | None]:
    """Return the NEIGHBOURS columns that describe the whole encoder. `labels` are those of the public images."""
    tied = max(equal_share(cropped), equal_share(public))
    if len(public) < 2:
        return {"tied": tied, "public_asked": None, "public_right": None, "public_commonest": None}
    queries = np.unique(np.linspace(0, len(public) - 1, min(MOST_ASKED, len(public))).astype(np.int64))
    right = public_correct(public, labels.astype(np.int64), queries, k)
    return {
        "tied": tied,
        "public_asked": len(queries),
        "public_right": int(right.sum()),
        "public_commonest": chance_accuracy(labels[queries]),
    }


def equal_share(embeddings: Embeddings) -> float:
    """Return the share of image pairs with equal embeddings. 0 for a single image."""
    n = len(embeddings)
    if n < 2:
        return 0.0
    # Digests keep memory at a few bytes per row for any embedding width. Adding 0 makes -0 equal to 0.
    digests = Counter(hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest() for row in embeddings)
    return sum(count * (count - 1) for count in digests.values()) / (n * (n - 1))


def public_correct(
    public: Embeddings, labels: NDArray[np.int64], queries: NDArray[np.int64], k: int
) -> NDArray[np.bool_]:
    """Return whether the k nearest other public images of each query vote for its label, (queries,)."""
    from tasks.numerics.nearest_neighbours import nearest

    k = min(k, len(public) - 1)
    rows = nearest(public[queries], public, k + 1).rows
    is_itself = rows == queries[:, None]
    is_itself[~is_itself.any(axis=1), -1] = True  # an image with more than k duplicates may not find itself
    neighbours = rows[~is_itself].reshape(len(queries), k)
    return np.asarray(votes(labels[neighbours], int(labels.max()) + 1).predicted == labels[queries])
