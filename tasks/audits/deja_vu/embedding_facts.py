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


def describe_encoder(
    equal_crops: EqualRows, public: Embeddings, labels: NDArray[np.integer], k: int
) -> dict[str, float | int | None]:
    """Return the NEIGHBOURS columns that describe the whole encoder. `labels` are those of the public images."""
    equal_public = EqualRows()
    equal_public.add(public)
    tied = max(equal_crops.share(), equal_public.share())
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


class EqualRows:
    """Counts equal embeddings, which arrive in shards. Keeps a few bytes per row for any width."""

    def __init__(self) -> None:
        self._digests: Counter[bytes] = Counter()

    def add(self, embeddings: Embeddings) -> None:
        # Adding 0 makes -0 equal to 0.
        self._digests.update(hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest() for row in embeddings)

    def share(self) -> float:
        """Return the share of image pairs with equal embeddings. 0 for a single image."""
        n = self._digests.total()
        if n < 2:
            return 0.0
        return sum(count * (count - 1) for count in self._digests.values()) / (n * (n - 1))


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
