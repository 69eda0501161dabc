"""Private trainings of the linear model: three mechanisms, and the attack on what they give.

Neighbouring data sets differ in one sample z_i, whose number is public (replacement).

randomised_response: every x_i is kept with probability e^epsilon / (e^epsilon + k - 1), else it is replaced by one of
the k - 1 other values at random; training to its end on that is post-processing. Between any two values of x_i the
probabilities of what replaces it differ by e^epsilon at most: selective epsilon-DP on x, y unprotected. Warner 1965;
Kairouz, Oh & Viswanath 2014.

output_perturbation: the weights of the clipped descent plus b, with density proportional to exp(-epsilon |b| / s).
Proof that it is epsilon-DP: for two data sets let |w - w'| <= s. By the triangle inequality the densities of w + b
differ by e^epsilon at most. And s = 2 rate clip steps / n: the clipped gradient of a sample, z_i r_i clamped so that
|r_i| <= clip / |z_i|, with r_i = w.z_i - x_i, is the gradient of Huber's loss of r_i, convex and |z_i|^2 smooth. The
mean over the n - 1 common samples is convex and smooth too, so that a step along it brings two weights no further apart
for rate <= 2 / max |z|^2; the two samples that differ move them apart by 2 rate clip / n at most in each step.
Chaudhuri, Monteleoni & Sarwate 2011, algorithm 1, with the sensitivity of Hardt, Recht & Singer 2016, lemmas 2.5 and
3.7, as Wu et al. 2017 use it.

noisy_descent: in every step the sum of the clipped gradients, which one sample changes by 2 clip at most, gets normal
noise of the standard deviation 2 clip sigma. Opacus's accountant gives sigma for (epsilon, delta) over all steps, every
sample in each. Abadi et al. 2016, algorithm 1, without sampling.

Noise comes from the config's seed, in floating-point numbers, by a generator that is not cryptographic: this is for
measuring what privacy does, not for releasing a model. One training has the same noise, scaled, for every epsilon:
epsilon is that of each setting by itself.
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

    x: Tensor  # (trainings, samples), places among the values
    y: Tensor  # (trainings, samples, features)
    fresh_x: Tensor  # as x and y, for validation
    fresh_y: Tensor
    kept: Tensor  # (trainings, samples), uniform on [0, 1): x_i is kept where it is below the probability of that
    replaced: Tensor  # (trainings, samples), by how many places x_i is moved on where it is not kept
    output_noise: Tensor  # (trainings, 1 + features), density proportional to exp(-|b|)
    step_noise: Tensor  # (trainings, steps, 1 + features), standard normal


def successes(config: Private) -> Mapping[Setting, Array]:
    """The shares of right answers by setting, (queries, 2, trainings): in training and in validation."""
    multipliers = noise_multipliers(config)
    parts = [
        {
            setting: attack(config, stack, weights)
            for setting, weights in _weights_by_setting(config, stack, multipliers)
        }
        for stack in stacks(config)
    ]
    return {setting: np.concatenate([part[setting] for part in parts], axis=-1) for setting in parts[0]}


def noise_multipliers(config: Private) -> Array:
    """Sigma of the noisy descent for each epsilon, (epsilons,)."""
    if "noisy_descent" not in config.mechanisms:
        return np.zeros(len(config.epsilons))
    # Steps that all samples are in compose to a single one with sigma / sqrt(steps): one step is quicker to account.
    return math.sqrt(config.steps) * np.array(
        [_single_step_multiplier(epsilon, config.delta) for epsilon in config.epsilons]
    )


def _single_step_multiplier(epsilon: float, delta: float) -> float:
    """Sigma of a single step; ValueError where opacus is not installed, or no noise is enough."""
    try:
        return dp_sgd.noise(Privacy(epsilon, delta), 1, 1)
    except ImportError:
        raise ValueError(f"mechanisms holds noisy_descent, which needs {OPACUS.advice}") from None
    except ValueError:
        raise ValueError(
            f"epsilons holds {epsilon:g}; the noisy descent cannot have so little at delta {delta:g}: give a larger one"
        ) from None


def stacks(config: Private) -> Iterator[Stack]:
    """The trainings, as many at a time as fit into memory."""
    place = hardware.device()
    columns = 1 + config.features
    held = columns * (4 * config.samples + config.steps) + (columns + 3 * config.samples) * (2 + len(config.epsilons))
    at_once = fitting(held, place.type == "cuda")
    for first in range(0, config.trainings, at_once):
        each = [draw_training(config, number) for number in range(first, min(first + at_once, config.trainings))]
        yield Stack(*(torch.from_numpy(np.stack(arrays)).to(place) for arrays in zip(*each, strict=True)))


def draw_training(config: Private, training: int) -> tuple[NDArray[np.int64] | Array, ...]:
    """The fields of Stack for one training, from streams of its own."""

    def stream(name: str) -> np.random.Generator:
        return seeds.generator(config.seed, f"private linear {name}", training)

    def samples(name: str) -> tuple[NDArray[np.int64], Array]:
        chance = stream(name)
        places = chance.integers(config.values, size=config.samples)
        directions = chance.standard_normal((config.samples, config.features))
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        return places, directions * (math.sqrt(config.features) / lengths)

    columns = 1 + config.features
    response, output, steps = (stream(name) for name in ("response", "output", "steps"))
    kept, moved = response.random(config.samples), response.integers(1, config.values, size=config.samples)
    direction = output.standard_normal(columns)
    output_noise = direction / np.linalg.norm(direction) * output.gamma(columns)
    return (
        *samples("training"),
        *samples("validation"),
        kept,
        moved,
        output_noise,
        steps.standard_normal((config.steps, columns)),
    )


def _weights_by_setting(config: Private, stack: Stack, multipliers: Array) -> Iterator[tuple[Setting, Tensor]]:
    """The weights by setting, (trainings, 1 + features)."""
    z = torch.cat([_level_values(config, stack.x)[..., None], stack.y], -1)
    # The first descent is without noise.
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
    """Gradient descent from 0 with clipped gradients and noise, (multipliers, trainings, 1 + features).

    `z` is (trainings, samples, 1 + features), `noise` (trainings, steps, 1 + features).
    """
    n = z.shape[1]
    target, limits = z[:, :, :1], config.clip / z.norm(dim=2, keepdim=True)
    scales = torch.from_numpy(2 * config.clip * multipliers).to(z.device)
    weights = z.new_zeros(len(z), z.shape[2], len(multipliers))
    for step in range(config.steps):
        # |r_i z_i| <= clip where |r_i| <= clip / |z_i|
        residuals = (z @ weights - target).clamp(-limits, limits)
        gradients = z.mT @ residuals + noise[:, step, :, None] * scales
        weights = weights - config.step / n * gradients
    return weights.permute(2, 0, 1)


def sensitivity(config: Private) -> float:
    """The largest distance between the weights of two descents whose data differ in one sample."""
    return 2 * config.step * config.clip * config.steps / config.samples


def _randomised_response_weights(config: Private, stack: Stack, epsilon: float) -> Tensor:
    """The weights at the end of training on randomised x, (trainings, 1 + features)."""
    told = randomised_response(stack.x, stack.kept, stack.replaced, epsilon, config.values)
    return least_norm(torch.cat([_level_values(config, told)[..., None], stack.y], -1))


def randomised_response(x: Tensor, kept: Tensor, moved: Tensor, epsilon: float, values: int) -> Tensor:
    """The places that randomised response tells instead of `x`."""
    probability = 1 / (1 + (values - 1) * math.exp(-epsilon))
    return torch.where(kept < probability, x, (x + moved) % values)


def attack(config: Private, stack: Stack, weights: Tensor) -> Array:
    """The share of right answers, (queries, 2, trainings): in training and in validation."""
    training = _success_rates(config, weights, stack.x, stack.y)
    validation = _success_rates(config, weights, stack.fresh_x, stack.fresh_y)
    return torch.stack([training, validation], 1).cpu().numpy()


def _success_rates(config: Private, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The share of right answers to both queries, (queries, trainings)."""
    return torch.stack(
        [(nearest_level(config, answers) == x).double().mean(1) for answers in query_answers(weights, y)]
    )


def query_answers(weights: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The answers to the raw query, and these over 1 - w.e1; (trainings, samples) each."""
    raw = (y @ weights[:, 1:, None])[..., 0]
    return raw, raw / (1 - weights[:, :1])


def nearest_level(config: Private, answers: Tensor) -> Tensor:
    """The places of the values that are nearest; a success is an error below half the distance of two values."""
    first, second = levels(config.values)[:2]
    places = torch.round((answers - first) / (second - first))
    return places.nan_to_num(0.0).clamp(0, config.values - 1).long()


def _level_values(config: Private, places: Tensor) -> Tensor:
    """The values of x at these places."""
    return torch.from_numpy(levels(config.values)).to(places.device)[places]
