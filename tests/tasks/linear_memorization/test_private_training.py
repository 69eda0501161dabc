"""The mechanisms against plain loops, and their guarantees on simulated and adversarial pairs."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from tasks.linear_memorization.private import private
from tasks.linear_memorization.private_config import Private, levels
from tasks.linear_memorization.private_training import (
    clipped_descent,
    draw_training,
    nearest_level,
    noise_multipliers,
    query_answers,
    randomised_response,
    sensitivity,
)

CONFIG = Private(samples=6, features=9, steps=15, time=1.5, clip=0.8, trainings=2, epsilons=(1.0, 8.0))


def samples(config: Private, seed: int) -> np.ndarray:
    """Return z of one training, (samples, 1 + features)."""
    x, y, *_ = draw_training(config, seed)
    return np.column_stack([levels(config.values)[x.astype(int)], y])


def by_loops(config: Private, z: np.ndarray, noise: np.ndarray, multiplier: float) -> np.ndarray:
    weights = np.zeros(z.shape[1])
    for step in range(config.steps):
        total = 2 * config.clip * multiplier * noise[step]
        for sample in z:
            gradient = (weights @ sample - sample[0]) * sample
            total = total + gradient * min(1.0, config.clip / max(float(np.linalg.norm(gradient)), 1e-300))
        weights = weights - config.time / config.steps * total / len(z)
    return weights


def test_batched_descent_equals_plain_loops() -> None:
    z = np.stack([samples(CONFIG, seed) for seed in range(3)])
    noise = np.random.default_rng(0).standard_normal((3, CONFIG.steps, 10))
    multipliers = np.array([0.0, 0.3, 2.0])
    final_weights = clipped_descent(CONFIG, torch.from_numpy(z), torch.from_numpy(noise), multipliers)
    assert final_weights.shape == (3, 3, 10)
    for index, multiplier in enumerate(multipliers):
        for number in range(3):
            expected = by_loops(CONFIG, z[number], noise[number], multiplier)
            np.testing.assert_allclose(final_weights[index, number], expected, atol=1e-12)


def descent(config: Private, z: np.ndarray) -> np.ndarray:
    noise = torch.zeros(len(z), config.steps, z.shape[2], dtype=torch.float64)
    return clipped_descent(config, torch.from_numpy(z), noise, np.array([0.0]))[0].numpy()


@pytest.mark.parametrize("clip", [0.01, 0.8, 100.0])
def test_one_sample_changes_weights_within_sensitivity(clip: float) -> None:
    """Return 500 pairs of data sets that differ in one sample, at random or by the opposite x."""
    config = Private(samples=6, features=9, steps=15, time=2 / (9 + 1.8) * 15, clip=clip, values=4)
    z = np.stack([samples(config, seed) for seed in range(500)])
    neighbours = z.copy()
    neighbours[:, 0] = np.stack([samples(config, 1000 + seed)[0] for seed in range(500)])
    neighbours[:100, 0] = z[:100, 0] * ([-1] + [1] * 9)
    distances = np.linalg.norm(descent(config, z) - descent(config, neighbours), axis=1)
    assert distances.max() <= sensitivity(config)
    if clip == 0.01:  # every gradient is clipped: the bound is all but attained
        assert distances.max() > 0.9 * sensitivity(config)


def test_step_noise_agrees_with_opacus() -> None:
    """Exact delta(epsilon) of all steps: Balle & Wang 2018, theorem 8, for a sum that changes by 2 clip."""
    for epsilon, sigma in zip(CONFIG.epsilons, noise_multipliers(CONFIG), strict=True):
        moved = math.sqrt(CONFIG.steps) / sigma
        spent = stats.norm.cdf(moved / 2 - epsilon / moved)
        spent -= math.exp(epsilon) * stats.norm.cdf(-moved / 2 - epsilon / moved)
        assert 0.5 * CONFIG.delta < spent <= CONFIG.delta


def test_output_noise_has_the_stated_density() -> None:
    config = Private(samples=2, features=4, steps=15)
    noise = np.stack([draw_training(config, seed)[6] for seed in range(4000)])
    lengths = np.linalg.norm(noise, axis=1)
    # exp(-|b|) in 5 dimensions: |b| has the density b^4 exp(-b) / 4!.
    assert stats.kstest(lengths, stats.gamma(5).cdf).pvalue > 1e-3
    assert stats.kstest((noise[:, 0] / lengths + 1) / 2, stats.beta(2, 2).cdf).pvalue > 1e-3  # on a sphere


def test_randomised_response_has_the_stated_rates() -> None:
    chance = np.random.default_rng(0)
    count = 200_000
    x = torch.full((count,), 2)
    keep_draws = torch.from_numpy(chance.random(count))
    moved = torch.from_numpy(chance.integers(1, 4, size=count))
    shares = np.bincount(randomised_response(x, keep_draws, moved, math.log(5), 4).numpy(), minlength=4) / count
    np.testing.assert_allclose(shares, [1 / 8, 1 / 8, 5 / 8, 1 / 8], atol=0.005)


def test_nearest_value_is_answered() -> None:
    config = Private(values=4)  # at -1.34, -.45, .45, 1.34
    answers = torch.tensor([[-9.0, -1.0, -0.8, 0.1, 0.8, 1.0, math.inf, -math.inf, math.nan]], dtype=torch.float64)
    assert nearest_level(config, answers).tolist() == [[0, 0, 1, 2, 2, 3, 3, 0, 0]]


def test_ratio_divides_by_remaining_first_weight() -> None:
    weights = torch.tensor([[0.75, 1.0, -2.0]], dtype=torch.float64)
    raw, ratio = query_answers(weights, torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64))
    assert raw.tolist() == [[1.0, -2.0]]
    assert ratio.tolist() == [[4.0, -8.0]]


def test_samples_are_public_in_length_and_streams_differ() -> None:
    config = Private(samples=5, features=7, steps=30)
    x, y, fresh_x, fresh_y, *_ = draw_training(config, 0)
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), math.sqrt(7), rtol=1e-12)
    assert (np.linalg.norm(samples(config, 0), axis=1) ** 2 <= 2 / config.longest_step + 1e-9).all()
    assert not np.array_equal(y, fresh_y)
    assert not np.array_equal(y, draw_training(config, 1)[1])
    assert x.shape == fresh_x.shape == (5,)


def test_missing_opacus_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants.utils", None)
    private(dataclasses.replace(CONFIG, mechanisms=("none", "randomised_response", "output_perturbation")), [])
    with pytest.raises(ValueError, match="mechanisms: noisy_descent needs opacus: "):
        private(dataclasses.replace(CONFIG, epsilons=(3.21,)), [])
