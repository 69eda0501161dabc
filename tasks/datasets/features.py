"""Features burnt into images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GLYPH_A = ("01110", "10001", "11111", "10001", "10001")


@dataclass(frozen=True)
class Feature:
    kind: str = "letter"
    text: str = "A"
    size: int = 5
    top: int = 1
    left: int = 1
    seed: int = 0


def burn(images: NDArray[np.uint8], feature: Feature) -> NDArray[np.uint8]:
    """A copy of the images (n, h, w, c) with the feature written over each."""
    glyph = np.array([[int(pixel) for pixel in row] for row in GLYPH_A], np.uint8) * 255
    burnt = images.copy()
    rows, columns = (slice(start, start + feature.size) for start in (feature.top, feature.left))
    burnt[:, rows, columns, :] = glyph[..., None]
    return burnt
