"""A diffusion model of images, conditioned on vectors: training by noise prediction, and sampling.

In training, noise is added up to a uniformly random time, and the network predicts the noise. Sampling transforms noise
into an image in a few deterministic steps (DDIM).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.images import Images
from tasks.diffusion import unet
from tasks.diffusion.diffusion_config import Diffusion, ScheduleName
from tasks.models.layers import EVALUATION, Layers, Mode, Weight, initial, weights_of
from tasks.models.networks import Weights, images
from tasks.numerics import seeds
from tasks.numerics.precision import autocast
from tasks.training.chains import Linked, train_chains
from tasks.training.members import Epoch, Member, Spec, minibatches
from tasks.training.objective import Batch
from tasks.worker import hardware

Array = NDArray[np.float64]

# variances of the first and last of a thousand steps
FIRST = 1e-4
LAST = 0.02
OFFSET = 0.008  # keeps the first steps of the cosine above the resolution of a byte
MOST = 0.999  # largest variance


def variances(schedule: ScheduleName, steps: int) -> Array:
    """Return the variance of the noise that each step adds, (steps,): beta_1, beta_2, ...

    `linear` rises from 0.0001 to 0.02 in 1000 steps (Ho et al. 2020, section 4). For other numbers of steps, variances
    are scaled by 1000 / steps, so that the final noise is similar. `cosine` has 1 - beta_t = f(t) / f(t - 1), f(t) =
    cos^2((t / steps + 0.008) / 1.008 pi / 2) (Nichol & Dhariwal 2021, eq. 17).
    """
    if schedule == "linear":
        rising: Array = np.minimum(np.linspace(FIRST, LAST, steps) * (1000 / steps), MOST)
        return rising
    signal_curve: Array = np.cos((np.arange(steps + 1) / steps + OFFSET) / (1 + OFFSET) * np.pi / 2) ** 2
    noise_variances: Array = np.minimum(1 - signal_curve[1:] / signal_curve[:-1], MOST)
    return noise_variances


def signal(schedule: ScheduleName, steps: int) -> Array:
    """Return the share of the image's variance that remains after each step, (steps,), falling from nearly 1.

    alpha_bar_t = (1 - beta_1) ... (1 - beta_t), so that x_t given x_0 is normal with mean sqrt(alpha_bar_t) x_0 and
    variance 1 - alpha_bar_t. Ho et al. 2020, eq. 4.
    """
    return np.asarray(np.cumprod(1 - variances(schedule, steps)), np.float64)


TIME = -8  # random number sites
NOISE = -9  # distinct from those of other objectives
AVERAGED = "average."  # prefix of moving averages


class Denoising:
    """A U-Net that predicts the noise in images, conditioned on vectors (n, features). Labels are rows of the vectors.

    The loss of an image x is the mean over its values of (e - e(x_t, t, vector))^2, for a uniformly random time t and
    noise e from N(0, 1), with x_t = sqrt(alpha_bar_t) x + sqrt(1 - alpha_bar_t) e and x in [-1, 1]. Ho et al. 2020, eq.
    14. After each step, the moving averages of all tensors, including the running means and variances of batch norm,
    move towards the tensors by 1 - d, d = min(ema_decay, (1 + steps) / (10 + steps)). This is TensorFlow's
    ExponentialMovingAverage, which prevents initial weights from dominating a short training. Evaluation uses the
    averages.
    """

    total = False
    stackable = True
    capturable = True
    captures_padding = True

    def __init__(self, config: Diffusion, vectors: NDArray[np.float32], steps_per_epoch: int) -> None:
        self.config = config
        self.steps_per_epoch = steps_per_epoch
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
        averages = {}
        for name, weight in self.learned.items():
            averages[AVERAGED + name] = replace(weight, learned=False)
        return {**self.learned, **averages}

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        start = initial(self.learned, seed)
        return {**start, **{AVERAGED + name: values.copy() for name, values in start.items()}}

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
        predicted = self.noise(tensors, noised, times, vectors, batch.mode)
        squared_errors = (predicted - noise).square().reshape(rows, models, -1)
        return squared_errors.mean(2).t()

    def noise(
        self, tensors: Mapping[str, Tensor], noised: Tensor, times: Tensor, vectors: Tensor, mode: Mode
    ) -> Tensor:
        """Return the predicted noise in images (rows, models * 3, side, side), in the precision of the images.

        `times` are (models, rows), counted from 0, and `vectors` (models, rows, features).
        """
        with autocast(noised.device.type, self.config.precision):
            predicted = unet.network(Layers(tensors, mode), noised, times, vectors, self.config.unet)
        return predicted.to(noised.dtype)

    def after_step(self, tensors: Mapping[str, Tensor], passed: Tensor) -> None:
        """Update the averages. `passed` (models,) is the number of epochs, including this step."""
        steps = (passed * self.steps_per_epoch).round()
        momentum = ((1 + steps) / (10 + steps)).clamp(max=self.config.ema_decay)
        for name in self.learned:
            average = tensors[AVERAGED + name]
            current = tensors[name]
            average.lerp_(current, (1 - momentum).to(current.dtype).view(-1, *[1] * (current.dim() - 1)))

    def vectors(self, device: torch.device) -> Tensor:
        """Return all vectors on a device, where they are copied once."""
        if device not in self._vectors:
            self._vectors[device] = self._vectors[torch.device("cpu")].to(device)
        return self._vectors[device]

    def signal_shares(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return alpha_bar for every time, (steps,)."""
        if (device, dtype) not in self._signal:
            values = signal(self.config.schedule, self.config.steps)
            self._signal[device, dtype] = torch.from_numpy(values).to(device, dtype)
        return self._signal[device, dtype]


def add_noise(clean: Tensor, noise: Tensor, signal_share: Tensor) -> Tensor:
    """Return x_t = sqrt(alpha_bar_t) clean + sqrt(1 - alpha_bar_t) noise, for images (rows, models * 3, side, side).

    `signal_share` (models, rows) is alpha_bar_t. Ho et al. 2020, eq. 4.
    """
    channels = clean.shape[1] // len(signal_share)
    share = signal_share.t().repeat_interleave(channels, 1)[:, :, None, None]
    return share.sqrt() * clean + (1 - share).sqrt() * noise


def averages(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the moving averages among a training's tensors, keyed by the names of the averaged tensors."""
    result = {}
    for name, tensor in tensors.items():
        if name.startswith(AVERAGED):
            result[name.removeprefix(AVERAGED)] = tensor
    return result


TOGETHER = {"cpu": 32, "cuda": 256}  # images per batch

Predict = Callable[[Tensor, int], Tensor]


def sample_images(
    config: Diffusion, weights: Weights, vectors: NDArray[np.float32], names: Sequence[str], steps: int, seed: int
) -> NDArray[np.uint8]:
    """Sample an image for each vector (n, features), (n, side, side, 3), with the network that has these weights.

    The initial noise of an image depends only on the seed and the image's name. Raises ValueError if the weights do not
    fit the network.
    """
    device = hardware.device()
    learning = Denoising(config, vectors, 1)
    _check_weights(learning, weights)
    tensors = {}
    for name, values in weights.items():
        tensors[name] = torch.from_numpy(np.array(values))[None].to(device)
    images = np.empty((len(vectors), *learning.shape), np.uint8)
    with hardware.exactly(device), torch.inference_mode():
        for first in range(0, len(vectors), TOGETHER[device.type]):
            batch = slice(first, first + TOGETHER[device.type])
            started = np.stack([initial_noise(seed, name, config.resolution) for name in names[batch]])
            images[batch] = as_bytes(
                _sample(learning, tensors, vectors[batch], torch.from_numpy(started).to(device), steps)
            )
    return images


def _sample(
    learning: Denoising, tensors: Mapping[str, Tensor], vectors: NDArray[np.float32], started: Tensor, steps: int
) -> Tensor:
    conditions = torch.from_numpy(np.array(vectors, np.float32)).to(started.device)[None]

    def predict(x: Tensor, time: int) -> Tensor:
        times = torch.full((1, len(x)), time, device=x.device)
        return learning.noise(tensors, x, times, conditions, EVALUATION)

    shares = learning.signal_shares(torch.device("cpu"), torch.float64).numpy()
    return denoise(predict, started, shares, steps, bounded=True)


def denoise(predict: Predict, x: Tensor, signal_shares: Array, steps: int, bounded: bool = False) -> Tensor:
    """Transform noise into images of the shape of `x` in `steps` evenly spaced steps of the diffusion.

        x_(t-1) = sqrt(alpha_bar_(t-1)) x_0 + sqrt(1 - alpha_bar_(t-1)) e,
        x_0 = (x_t - sqrt(1 - alpha_bar_t) e) / sqrt(alpha_bar_t)

    with the predicted noise e = `predict(x_t, t)` and alpha_bar_0 = 1: Song et al. 2021, "Denoising diffusion implicit
    models", eq. 12 without added noise. If `bounded`, x_0 is clipped to [-1, 1] and e is adjusted accordingly.
    `signal_shares` is alpha_bar at every time. Raises ValueError if steps is not between 1 and the number of times.
    """
    if not 1 <= steps <= len(signal_shares):
        raise ValueError(f"steps is {steps}; it must be from 1 to {len(signal_shares)}, the steps of the diffusion")
    if steps > 1:
        times = np.linspace(len(signal_shares) - 1, 0, steps).round().astype(int)
    else:
        times = np.array([len(signal_shares) - 1])
    for index, time in enumerate(times.tolist()):
        signal_share = float(signal_shares[time])
        next_share = 1.0
        if index + 1 < steps:
            next_share = float(signal_shares[times[index + 1]])
        predicted = predict(x, time)
        clean = (x - (1 - signal_share) ** 0.5 * predicted) / signal_share**0.5
        if bounded:
            clean = clean.clamp(-1, 1)
            predicted = (x - signal_share**0.5 * clean) / (1 - signal_share) ** 0.5
        x = next_share**0.5 * clean + (1 - next_share) ** 0.5 * predicted
    return x


def initial_noise(seed: int, name: str, resolution: int) -> NDArray[np.float32]:
    """Return the initial noise of the image with this name, (3, resolution, resolution)."""
    stream = seeds.generator(seed, "noise", name)
    return stream.standard_normal((3, resolution, resolution), np.float32)


def as_bytes(images: Tensor) -> NDArray[np.uint8]:
    """Convert images (n, 3, side, side) in [-1, 1] to bytes (n, side, side, 3), rounding to nearest."""
    pixels: NDArray[np.uint8] = ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
    return pixels.transpose(0, 2, 3, 1)


def _check_weights(learning: Denoising, weights: Weights) -> None:
    """Raise ValueError if names or shapes of the weights differ from those of the network."""
    shapes = {name: weight.shape for name, weight in learning.learned.items()}
    actual_shapes = {name: tuple(values.shape) for name, values in weights.items()}
    for name in [*shapes, *actual_shapes]:
        if shapes.get(name) != actual_shapes.get(name):
            raise ValueError(
                f"the diffusion model's {name} is {actual_shapes.get(name, 'absent')}; its network and the vectors, "
                f"which have {learning.vectors(torch.device('cpu')).shape[1]} numbers, need {shapes.get(name, 'none')}"
            )


Vectors = NDArray[np.float32]  # (n, features)


@dataclass(frozen=True, eq=False)
class Scale:
    """Standardises each feature of vectors by its mean and deviation over the training vectors, both (features,)."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def from_vectors(cls, vectors: Vectors) -> Scale:
        """Return the scale of these vectors.

        A constant feature has deviation 1. Raises ValueError if a vector is not finite.
        """
        invalid_count = int((~np.isfinite(vectors).all(1)).sum())
        if invalid_count:
            raise ValueError(f"vectors must be finite; {invalid_count} of {len(vectors)} are not")
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
    config: Diffusion, pixels: NDArray[np.uint8], vectors: Vectors, source: str = "", index: int = 0
) -> TrainedDiffusion:
    """Train a diffusion model on these images (n, side, side, 3), given a vector for each.

    As the job with this index in a call, it resumes from a checkpoint and writes its own if requested
    (`tasks.worker.checkpoints`). `source` identifies images and vectors, so that checkpoints for others are not used.
    Raises TrainingError if a loss is not finite, and ValueError if images do not have the configured shape.
    """
    side = config.resolution
    if pixels.shape[1:] != (side, side, 3) or len(pixels) != len(vectors) or len(pixels) < 2:
        raise ValueError(
            f"images are {'x'.join(map(str, pixels.shape))}, with {len(vectors)} vectors; they must be at least two, "
            f"one per vector, of {side} x {side} x 3"
        )
    scale = Scale.from_vectors(vectors)
    validation_rows = held_out(config, len(pixels))
    training_rows = np.setdiff1d(np.arange(len(pixels)), validation_rows)
    # use the training loss if there are too few images for validation
    if len(validation_rows):
        evaluated_rows = validation_rows
    else:
        evaluated_rows = training_rows
    images = Images(pixels[training_rows], training_rows, pixels[evaluated_rows], evaluated_rows, len(pixels))
    learning = Denoising(config, scale.standardise(vectors), minibatches(len(training_rows), config.batch))
    spec = Spec(learning, config.recipe, images)
    member = Member(config.seed, np.arange(len(training_rows)))
    linked = Linked(f"diffusion 1: {replace(config, epochs=1)} of {source}", config.epochs)
    ((_, outcome),) = train_chains(spec, {index: member}, {index: linked})
    if isinstance(outcome, Exception):
        raise outcome
    return TrainedDiffusion(averages(outcome.weights), scale, outcome.history)


def held_out(config: Diffusion, count: int) -> NDArray[np.int64]:
    """Return the held-out rows, ascending: drawn with the seed, at most an eighth of all rows."""
    size = min(config.validation_images, count // 8)
    return np.sort(seeds.generator(config.seed, "held out").permutation(count)[:size])
