"""Deduplication around one image: the images nearest to it, by the Euclidean distance of their pixels.

Near copies of a record are what deduplication takes out of training data. Lee et al. 2022, "Deduplicating training data
makes language models better", and Kandpal et al. 2022, "Deduplicating training data mitigates privacy risks in language
models", do so for text. Here a number of images is left out and no distance is set, so that all trainings have equally
many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.ranges import check_minimums


@dataclass(frozen=True)
class NearestImages:
    """The `count` images nearest to the one in `row`, which is none of them itself."""

    row: int
    count: int

    def __post_init__(self) -> None:
        check_minimums(self, {"row": 0, "count": 1})

    def rows_among(self, images: NDArray[Any]) -> NDArray[np.int64]:
        """Their rows among these images (n, h, w, c), ascending: (count,).

        Exact; of equally near images the lower row goes first. ValueError where there are no so many beside the one.
        """
        from tasks.nearest_neighbours import nearest

        if self.row >= len(images):
            raise ValueError(f"row {self.row} has no neighbours; the rows are 0 to {len(images) - 1}")
        if self.count >= len(images):
            raise ValueError(
                f"{self.count} images nearest to another are left out; they must be at most {len(images) - 1}, the "
                "training images beside it"
            )
        pixels = images.reshape(len(images), -1)
        others = np.delete(pixels, self.row, axis=0)
        rows = nearest(pixels[self.row : self.row + 1], others, self.count).rows[0]
        return np.sort(rows + (rows >= self.row))
