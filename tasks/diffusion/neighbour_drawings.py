"""Drawings of what an encoder's neighbours of a picture have in common: from the mean of their backbone embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.diffusion.embedding_diffusion import EmbeddingDiffusion, draw, embed_pictures, last_weights

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures


def drawn_from_neighbours(
    config: EmbeddingDiffusion,
    snapshots: pa.Table,
    diffusion: pa.Table,
    pictures: BoxedPictures,
    neighbours: NDArray[np.int64],
    names: Sequence[str],
    steps: int,
    seed: int,
) -> NDArray[np.uint8]:
    """A drawing for each row of neighbours (n, k), which are rows of the pictures: (n, side, side, 3).

    `snapshots` and `diffusion` hold the encoder and its diffusion model, `steps` are DDIM's. A drawing begins as the
    noise that its name names, the same for drawings of other models. Meehan et al. 2023, appendix A.2.4.
    """
    from tasks import hardware
    from tasks.self_supervised.encoder import encoder

    model = encoder(config.encoder, last_weights(snapshots), hardware.device())
    rows, places = np.unique(neighbours, return_inverse=True)
    vectors = embed_pictures(model, pictures, rows, config.encoder.resolution)
    return draw(config.diffusion, diffusion, mean_of(vectors, places.reshape(neighbours.shape)), names, steps, seed)


def mean_of(vectors: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The mean of the vectors (m, features) in each row of numbers (n, k): (n, features)."""
    return np.stack([vectors[some].mean(0, dtype=np.float64) for some in rows]).astype(np.float32)
