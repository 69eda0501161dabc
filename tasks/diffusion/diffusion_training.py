"""The training of a diffusion model, arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Images
from tasks.diffusion.denoising import Denoising, averages
from tasks.diffusion.diffusion_config import Diffusion
from tasks.numerics import seeds
from tasks.training.chains import Linked, train_chains
from tasks.training.members import Epoch, Member, Spec, minibatches

Vectors = NDArray[np.float32]  # (n, features)


@dataclass(frozen=True, eq=False)
class Scale:
    """Brings each number of vectors to mean 0 and deviation 1 over those that were trained on; (features,) each."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def from_vectors(cls, vectors: Vectors) -> Scale:
        """ValueError where a vector is not finite. A number that never changes has deviation 1."""
        wrong = int((~np.isfinite(vectors).all(1)).sum())
        if wrong:
            raise ValueError(f"vectors must be finite; {wrong} of {len(vectors)} are not")
        deviation = vectors.std(0, dtype=np.float64)
        deviation[deviation == 0] = 1
        return cls(vectors.mean(0, dtype=np.float64).astype(np.float32), deviation.astype(np.float32))

    def standardise(self, vectors: Vectors) -> Vectors:
        return ((vectors - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True, eq=False)
class TrainedDiffusion:
    """A trained diffusion model: the moving averages of its weights, the scale of its vectors, and its losses."""

    weights: Mapping[str, NDArray[np.float32]]
    scale: Scale
    history: tuple[Epoch, ...]


def fit_diffusion(
    config: Diffusion, pixels: NDArray[np.uint8], vectors: Vectors, of: str = "", index: int = 0
) -> TrainedDiffusion:
    """The diffusion model of these images (n, side, side, 3), given the vector of each.

    As the job at this index of a call it continues from a given state, and leaves its own where that is wanted
    (`tasks.worker.checkpoints`); `of` says what images and vectors are, so that no state of others is taken for it.
    TrainingError where a loss is not finite; ValueError where images are not of the config's shape.
    """
    side = config.resolution
    if pixels.shape[1:] != (side, side, 3) or len(pixels) != len(vectors) or len(pixels) < 2:
        raise ValueError(
            f"there are {len(vectors)} vectors, and images {'x'.join(map(str, pixels.shape))}; they must be two or "
            f"more, as many as vectors, of {side} x {side} x 3"
        )
    scale = Scale.from_vectors(vectors)
    held = held_out(config, len(pixels))
    learnt = np.setdiff1d(np.arange(len(pixels)), held)
    assessed = held if len(held) else learnt  # the training's loss, where there are too few to hold any out
    images = Images(pixels[learnt], learnt, pixels[assessed], assessed, len(pixels))
    learning = Denoising(config, scale.standardise(vectors), minibatches(len(learnt), config.batch))
    spec = Spec(learning, config.recipe, images)
    member = Member(config.seed, np.arange(len(learnt)))
    linked = Linked(f"diffusion 1: {replace(config, epochs=1)} of {of}", config.epochs)
    ((_, outcome),) = train_chains(spec, {index: member}, {index: linked})
    if isinstance(outcome, Exception):
        raise outcome
    return TrainedDiffusion(averages(outcome.weights), scale, outcome.history)


def held_out(config: Diffusion, count: int) -> NDArray[np.int64]:
    """The rows that are not trained on, ascending: drawn by the seed, an eighth of all at most."""
    some = min(config.held_out, count // 8)
    return np.sort(seeds.generator(config.seed, "held out").permutation(count)[:some])
