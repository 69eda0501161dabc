"""Private trainings of the linear model: three mechanisms, and an attack on the models they produce.

Neighbouring data sets differ in one sample z_i with a public index (replacement).

randomised_response: every x_i is kept with probability e^epsilon / (e^epsilon + k - 1), and otherwise replaced by a
random one of the k - 1 other values. Training on the result is post-processing. For any two values of x_i, the
probabilities of a response differ by at most a factor e^epsilon: selective epsilon-DP on x, without protection of y.
Warner 1965; Kairouz, Oh & Viswanath 2014.

output_perturbation: the weights of the clipped descent plus b, with density proportional to exp(-epsilon |b| / s).
Proof of epsilon-DP: for two data sets let |w - w'| <= s. By the triangle inequality, the densities of w + b differ by
at most a factor e^epsilon. And s = 2 rate clip steps / n: the clipped gradient of a sample, z_i r_i clamped so that
|r_i| <= clip / |z_i|, with r_i = w.z_i - x_i, is the gradient of Huber's loss of r_i, convex and |z_i|^2 smooth. The
mean over the n - 1 common samples is also convex and smooth, so a step along it does not move two weights further apart
for rate <= 2 / max |z|^2. The two samples that differ move them apart by at most 2 rate clip / n per step. Chaudhuri,
Monteleoni & Sarwate 2011, algorithm 1, with the sensitivity of Hardt, Recht & Singer 2016, lemmas 2.5 and 3.7, as Wu et
al. 2017 use it.

noisy_descent: every step adds normal noise of standard deviation 2 clip sigma to the sum of the clipped gradients,
which one sample changes by at most 2 clip. Opacus's accountant gives sigma for (epsilon, delta) over all full-batch
steps. Abadi et al. 2016, algorithm 1, without sampling.

Noise is drawn from the seed in floating point, by a non-cryptographic generator. This measures the effect of privacy
and is not suitable for releasing a model. A training uses the same noise, rescaled, for every epsilon, so epsilon
applies to each setting separately.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.contract.extras import OPACUS
from tasks.linear_memorization.gaussian_samples import Array, fitting
from tasks.linear_memorization.gradient_flow import least_norm
from tasks.linear_memorization.private_config import Mechanism, Private, levels, settings
from tasks.numerics import seeds
from tasks.training import dp_sgd
from tasks.training.recipe import Privacy
from tasks.worker import hardware

Setting = tuple[Mechanism, float | None]


@dataclass(frozen=True, eq=False)
class Stack:
    """The samples and noise of several trainings."""

    x: Tensor  # (trainings, samples), indices of the values
    y: Tensor  # (trainings, samples, features)
    fresh_x: Tensor  # like x and y, for validation
    fresh_y: Tensor
    keep_draws: Tensor  # (trainings, samples), uniform on [0, 1): x_i is kept if it is below the probability
    replaced: Tensor  # (trainings, samples), shift of the index if x_i is replaced
    output_noise: Tensor  # (trainings, 1 + features), with density proportional to exp(-|b|)
    step_noise: Tensor  # (trainings, steps, 1 + features), standard normal


def successes(config: Private) -> Mapping[Setting, Array]:
    """Return the fraction of correct answers by setting, (queries, 2, trainings), in training and validation."""
    multipliers = noise_multipliers(config)
    parts = []
    for stack in stacks(config):
        weights_by_setting = _weights_by_setting(config, stack, multipliers)
        parts.append({setting: attack(config, stack, weights) for setting, weights in weights_by_setting})
    shares_by_setting = {}
    for setting in parts[0]:
        shares_by_setting[setting] = np.concatenate([part[setting] for part in parts], axis=-1)
    return shares_by_setting


def noise_multipliers(config: Private) -> Array:
    """Return sigma of the noisy descent for each epsilon, (epsilons,)."""
    if "noisy_descent" not in config.mechanisms:
        return np.zeros(len(config.epsilons))
    # Full-batch steps compose to a single step with sigma / sqrt(steps), for which accounting is faster.
    return math.sqrt(config.steps) * np.array(
        [_single_step_multiplier(epsilon, config.delta) for epsilon in config.epsilons]
    )


def _single_step_multiplier(epsilon: float, delta: float) -> float:
    """Return sigma for a single step. Raises ValueError without opacus, or if no amount of noise suffices."""
    try:
        return dp_sgd.noise(Privacy(epsilon, delta), 1, 1)
    except ImportError:
        raise ValueError(f"mechanisms: noisy_descent needs {OPACUS.advice}") from None
    except ValueError:
        raise ValueError(
            f"epsilons: {epsilon:g} is too small for the noisy descent at delta {delta:g}. Pass a larger epsilon."
        ) from None


def stacks(config: Private) -> Iterator[Stack]:
    """Yield the trainings in stacks that fit into memory."""
    device = hardware.device()
    columns = 1 + config.features
    numbers_per_training = columns * (4 * config.samples + config.steps) + (columns + 3 * config.samples) * (
        2 + len(config.epsilons)
    )
    at_once = fitting(numbers_per_training, device.type == "cuda")
    for first in range(0, config.trainings, at_once):
        trainings = [draw_training(config, number) for number in range(first, min(first + at_once, config.trainings))]
        yield Stack(*(torch.from_numpy(np.stack(arrays)).to(device) for arrays in zip(*trainings, strict=True)))


def draw_training(config: Private, training: int) -> tuple[NDArray[np.int64] | Array, ...]:
    """Draw the fields of Stack for one training, each from its own stream."""

    def stream(name: str) -> np.random.Generator:
        return seeds.generator(config.seed, f"private linear {name}", training)

    def samples(name: str) -> tuple[NDArray[np.int64], Array]:
        chance = stream(name)
        places = chance.integers(config.values, size=config.samples)
        directions = chance.standard_normal((config.samples, config.features))
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        return places, directions * (math.sqrt(config.features) / lengths)

    columns = 1 + config.features
    response = stream("response")
    output = stream("output")
    steps = stream("steps")
    keep_draws = response.random(config.samples)
    moved = response.integers(1, config.values, size=config.samples)
    direction = output.standard_normal(columns)
    output_noise = direction / np.linalg.norm(direction) * output.gamma(columns)
    return (
        *samples("training"),
        *samples("validation"),
        keep_draws,
        moved,
        output_noise,
        steps.standard_normal((config.steps, columns)),
    )


def _weights_by_setting(config: Private, stack: Stack, multipliers: Array) -> Iterator[tuple[Setting, Tensor]]:
    """Yield the weights (trainings, 1 + features) of each setting."""
    z = torch.cat([_level_values(config, stack.x)[..., None], stack.y], -1)
    # The first descent has no noise.
    descents = clipped_descent(config, z, stack.step_noise, np.concatenate([[0.0], multipliers]))
    noisy = dict(zip(config.epsilons, descents[1:], strict=True))
    for mechanism, epsilon in settings(config):
        if epsilon is None:
            weights = descents[0]
        elif mechanism == "randomised_response":
            weights = _randomised_response_weights(config, stack, epsilon)
        elif mechanism == "output_perturbation":
            weights = descents[0] + stack.output_noise * (sensitivity(config) / epsilon)
        else:
            weights = noisy[epsilon]
        yield (mechanism, epsilon), weights


def clipped_descent(config: Private, z: Tensor, noise: Tensor, multipliers: Array) -> Tensor:
    """Run gradient descent from 0 with clipped gradients and noise, (multipliers, trainings, 1 + features).

    `z` is (trainings, samples, 1 + features) and `noise` (trainings, steps, 1 + features).
    """
    n = z.shape[1]
    target = z[:, :, :1]
    limits = config.clip / z.norm(dim=2, keepdim=True)
    scales = torch.from_numpy(2 * config.clip * multipliers).to(z.device)
    weights = z.new_zeros(len(z), z.shape[2], len(multipliers))
    for step in range(config.steps):
        # |r_i z_i| <= clip if |r_i| <= clip / |z_i|
        residuals = (z @ weights - target).clamp(-limits, limits)
        gradients = z.mT @ residuals + noise[:, step, :, None] * scales
        weights = weights - config.step / n * gradients
    return weights.permute(2, 0, 1)


def sensitivity(config: Private) -> float:
    """Return the largest possible distance between the weights of two descents whose data differ in one sample."""
    return 2 * config.step * config.clip * config.steps / config.samples


def _randomised_response_weights(config: Private, stack: Stack, epsilon: float) -> Tensor:
    """Return the final weights, (trainings, 1 + features), of training on randomised x."""
    responses = randomised_response(stack.x, stack.keep_draws, stack.replaced, epsilon, config.values)
    return least_norm(torch.cat([_level_values(config, responses)[..., None], stack.y], -1))


def randomised_response(x: Tensor, keep_draws: Tensor, moved: Tensor, epsilon: float, values: int) -> Tensor:
    """Apply randomised response to the indices `x`."""
    probability = 1 / (1 + (values - 1) * math.exp(-epsilon))
    return torch.where(keep_draws < probability, x, (x + moved) % values)


def attack(config: Private, stack: Stack, weights: Tensor) -> Array:
    """Return the fraction of correct answers, (queries, 2, trainings), in training and validation."""
    training = _success_rates(config, weights, stack.x, stack.y)
    validation = _success_rates(config, weights, stack.fresh_x, stack.fresh_y)
    return torch.stack([training, validation], 1).cpu().numpy()


def _success_rates(config: Private, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of correct answers to both queries, (queries, trainings)."""
    return torch.stack(
        [(nearest_level(config, answers) == x).double().mean(1) for answers in query_answers(weights, y)]
    )


def query_answers(weights: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the answers to the raw query, and these divided by 1 - w.e1, each (trainings, samples)."""
    raw = (y @ weights[:, 1:, None])[..., 0]
    return raw, raw / (1 - weights[:, :1])


def nearest_level(config: Private, answers: Tensor) -> Tensor:
    """Return the indices of the nearest values.

    An index is correct if the error is below half the distance between two values.
    """
    first, second = levels(config.values)[:2]
    places = torch.round((answers - first) / (second - first))
    return places.nan_to_num(0.0).clamp(0, config.values - 1).long()


def _level_values(config: Private, places: Tensor) -> Tensor:
    """Return the values of x at these indices."""
    return torch.from_numpy(levels(config.values)).to(places.device)[places]
