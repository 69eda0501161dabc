"""The texts of a data set, as far as an audit reads them."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.datasets.catalog import load_texts
from tasks.datasets.dataset import Dataset, DatasetError


def documents(data: Dataset, examples: int) -> Sequence[str]:
    """The first texts of the data set."""
    texts = load_texts(data)
    if examples > len(texts):
        raise DatasetError(f"examples is {examples}; {data.name} has {len(texts)} texts")
    return texts[: examples or None]
