"""Drawing with a diffusion model in few steps: from noise to an image, without further chance (DDIM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks import hardware, seeds
from tasks.diffusion.denoising import Denoising
from tasks.diffusion.diffusion_config import Diffusion
from tasks.diffusion.noise_schedule import Array
from tasks.models.layers import EVALUATION
from tasks.models.networks import Weights

TOGETHER = {"cpu": 32, "cuda": 256}  # images that are drawn at a time

Predict = Callable[[Tensor, int], Tensor]


def sample_images(
    config: Diffusion,
    weights: Weights,
    vectors: NDArray[np.float32],
    names: Sequence[str],
    steps: int,
    seed: int,
    place: torch.device | None = None,
) -> NDArray[np.uint8]:
    """An image for each vector (n, features), (n, side, side, 3), by the network with these weights.

    An image begins as noise from the stream of the seed that its name names, so that images of one name begin alike
    whatever is drawn beside them. ValueError where the weights are not the network's.
    """
    place = place or hardware.device()
    learning = Denoising(config, vectors, 1)
    check(learning, weights)
    tensors = {name: torch.from_numpy(np.array(values))[None].to(place) for name, values in weights.items()}
    images = np.empty((len(vectors), *learning.shape), np.uint8)
    with hardware.exactly(place), torch.inference_mode():
        for first in range(0, len(vectors), TOGETHER[place.type]):
            some = slice(first, first + TOGETHER[place.type])
            started = np.stack([noise(seed, name, config.resolution) for name in names[some]])
            images[some] = as_bytes(
                _sample(learning, tensors, vectors[some], torch.from_numpy(started).to(place), steps)
            )
    return images


def _sample(
    learning: Denoising, tensors: Mapping[str, Tensor], vectors: NDArray[np.float32], started: Tensor, steps: int
) -> Tensor:
    conditions = torch.from_numpy(np.array(vectors, np.float32)).to(started.device)[None]

    def predict(x: Tensor, time: int) -> Tensor:
        times = torch.full((1, len(x)), time, device=x.device)
        return learning.noise(tensors, x, times, conditions, EVALUATION)

    kept = learning.signal_shares(torch.device("cpu"), torch.float64).numpy()
    return denoise(predict, started, kept, steps, bounded=True)


def denoise(predict: Predict, x: Tensor, kept: Array, steps: int, bounded: bool = False) -> Tensor:
    """The images that noise becomes, of the shape of `x`, in so many of the diffusion's steps, evenly apart.

        x_(t-1) = sqrt(alpha_bar_(t-1)) x_0 + sqrt(1 - alpha_bar_(t-1)) e,
        x_0 = (x_t - sqrt(1 - alpha_bar_t) e) / sqrt(alpha_bar_t)

    with e the noise that `predict(x_t, t)` finds and alpha_bar_0 = 1 at the end: Song et al. 2021, "Denoising diffusion
    implicit models", eq. 12 without noise of its own. Where `bounded`, x_0 is kept within [-1, 1] and e follows it.
    `kept` is alpha_bar of every time. ValueError unless there are 1 to all steps.
    """
    if not 1 <= steps <= len(kept):
        raise ValueError(f"steps is {steps}; it must be from 1 to {len(kept)}, which the diffusion has")
    times = np.linspace(len(kept) - 1, 0, steps).round().astype(int) if steps > 1 else np.array([len(kept) - 1])
    for place, time in enumerate(times.tolist()):
        now = float(kept[time])
        following = float(kept[times[place + 1]]) if place + 1 < steps else 1.0
        found = predict(x, time)
        clean = (x - (1 - now) ** 0.5 * found) / now**0.5
        if bounded:
            clean = clean.clamp(-1, 1)
            found = (x - now**0.5 * clean) / (1 - now) ** 0.5
        x = following**0.5 * clean + (1 - following) ** 0.5 * found
    return x


def noise(seed: int, name: str, resolution: int) -> NDArray[np.float32]:
    """The noise that the image of this name begins as, (3, resolution, resolution)."""
    stream = seeds.generator(seed, "noise", name)
    return stream.standard_normal((3, resolution, resolution), np.float32)


def as_bytes(images: Tensor) -> NDArray[np.uint8]:
    """Images (n, 3, side, side) in [-1, 1] as bytes (n, side, side, 3), to the nearest."""
    pixels: NDArray[np.uint8] = ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
    return pixels.transpose(0, 2, 3, 1)


def check(learning: Denoising, weights: Weights) -> None:
    """ValueError, in one line, unless the weights are those of the network, by name and shape."""
    shapes = {name: weight.shape for name, weight in learning.learned.items()}
    given = {name: tuple(values.shape) for name, values in weights.items()}
    for name in [*shapes, *given]:
        if shapes.get(name) != given.get(name):
            raise ValueError(
                f"the diffusion model's {name} is {given.get(name, 'absent')}; its network and the vectors, which have "
                f"{learning.vectors(torch.device('cpu')).shape[1]} numbers, need {shapes.get(name, 'none')}"
            )
