"""Training a diffusion model: the network learns to predict the noise in noised images, given each one's vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.diffusion import unet
from tasks.diffusion.diffusion_config import Diffusion
from tasks.diffusion.noise_schedule import signal
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Layers, Mode, Weight, initial, weights_of
from tasks.models.networks import images
from tasks.training.objective import Batch

TIME, NOISE = -8, -9  # the places for draws, beside those of other objectives
AVERAGED = "average."  # begins the name of a moving average


class Denoising:
    """A U-Net learns the noise in images, conditioned on vectors (n, features): an image's label is its vector's row.

    The loss of an image x is the mean over its numbers of (e - e(x_t, t, vector))^2, for a time t drawn evenly and a
    noise e drawn from N(0, 1), x_t = sqrt(alpha_bar_t) x + sqrt(1 - alpha_bar_t) e; x is in [-1, 1]. Ho et al. 2020,
    eq. 14. After each step the moving averages of all tensors, the running means and variances of batch norm among
    them, move towards these by 1 - d, d = min(average, (1 + steps) / (10 + steps)): TensorFlow's
    ExponentialMovingAverage, so that a short training does not keep its start. Evaluated are the averages.
    """

    total = False
    stackable = True
    capturable = True
    captures_padding = True

    def __init__(self, config: Diffusion, vectors: NDArray[np.float32], steps_per_epoch: int) -> None:
        self.config, self.steps_per_epoch = config, steps_per_epoch
        self.shape = (config.resolution, config.resolution, 3)
        self._vectors = {torch.device("cpu"): torch.from_numpy(np.array(vectors, np.float32))}
        self._signal: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        features = vectors.shape[1]
        self.learned = weights_of(
            lambda layers, x: unet.network(layers, x, x.new_zeros(1, 0), x.new_zeros(1, 0, features), config.unet),
            (3, config.resolution, config.resolution),
        )

    @property
    def name(self) -> str:
        net = self.config.unet
        parts = [*map(str, net.widths), f"{net.blocks} blocks", f"attention at {net.attention}", self.config.precision]
        return f"denoising U-Net of {', '.join(parts)}"

    @property
    def weights(self) -> Mapping[str, Weight]:
        averages = {AVERAGED + name: replace(weight, learned=False) for name, weight in self.learned.items()}
        return {**self.learned, **averages}

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        begun = initial(self.learned, seed)
        return {**begun, **{AVERAGED + name: values.copy() for name, values in begun.items()}}

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self._losses({name: tensors[name] for name in self.learned}, batch)

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self._losses(averages(tensors), batch), None

    def _losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        draws, (models, rows, numbers) = batch.mode.draws, batch.pixels.shape
        assert draws is not None
        dtype = next(iter(tensors.values())).dtype
        times = (draws.uniform(TIME, (rows,), torch.float64) * self.config.steps).long()
        noise = images(draws.normal(NOISE, (rows, numbers), dtype), self.shape)
        clean = images(batch.pixels.to(dtype) / 127.5 - 1, self.shape)
        vectors = self.vectors(clean.device)[batch.labels].to(dtype)
        noised = add_noise(clean, noise, self.signal_shares(clean.device, dtype)[times])
        found = self.noise(tensors, noised, times, vectors, batch.mode)
        apart = (found - noise).square().reshape(rows, models, -1)
        return apart.mean(2).t()

    def noise(
        self, tensors: Mapping[str, Tensor], noised: Tensor, times: Tensor, vectors: Tensor, mode: Mode
    ) -> Tensor:
        """The noise predicted in images (rows, models * 3, side, side), of their precision.

        `times` are (models, rows) from 0, `vectors` (models, rows, features).
        """
        low = self.config.precision == "bfloat16"
        # No cache: a CUDA graph would keep pointing at it.
        with torch.autocast(noised.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
            found = unet.network(Layers(tensors, mode), noised, times, vectors, self.config.unet)
        return found.to(noised.dtype)

    def after_step(self, tensors: Mapping[str, Tensor], passed: Tensor) -> None:
        """Move the averages; `passed` (models,) are the epochs passed, this step included."""
        steps = (passed * self.steps_per_epoch).round()
        momentum = ((1 + steps) / (10 + steps)).clamp(max=self.config.average)
        for name in self.learned:
            average, now = tensors[AVERAGED + name], tensors[name]
            average.lerp_(now, (1 - momentum).to(now.dtype).view(-1, *[1] * (now.dim() - 1)))

    def manual_gradient(
        self,
        tensors: Mapping[str, Tensor],  # noqa: ARG002
        pixels: Tensor,  # noqa: ARG002
        labels: Tensor,  # noqa: ARG002
        shares: Tensor,  # noqa: ARG002
        draws: CounterRng,  # noqa: ARG002
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """None: autograd computes the gradients."""
        return None

    def vectors(self, place: torch.device) -> Tensor:
        """All vectors on a device, copied there once."""
        if place not in self._vectors:
            self._vectors[place] = self._vectors[torch.device("cpu")].to(place)
        return self._vectors[place]

    def signal_shares(self, place: torch.device, dtype: torch.dtype) -> Tensor:
        """alpha_bar of every time, (steps,)."""
        if (place, dtype) not in self._signal:
            values = signal(self.config.schedule, self.config.steps)
            self._signal[place, dtype] = torch.from_numpy(values).to(place, dtype)
        return self._signal[place, dtype]


def add_noise(clean: Tensor, noise: Tensor, kept: Tensor) -> Tensor:
    """Images x_t: sqrt(kept) of the clean ones and sqrt(1 - kept) of the noise, (rows, models * 3, side, side).

    `kept` (models, rows) is alpha_bar_t. Ho et al. 2020, eq. 4.
    """
    channels = clean.shape[1] // len(kept)
    share = kept.t().repeat_interleave(channels, 1)[:, :, None, None]
    return share.sqrt() * clean + (1 - share).sqrt() * noise


def averages(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The moving averages among a training's tensors, by the names of what they are averages of."""
    return {name.removeprefix(AVERAGED): each for name, each in tensors.items() if name.startswith(AVERAGED)}
