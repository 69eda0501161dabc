"""Drawing in few steps: against the exact noise of distributions that are known."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.diffusion.denoising import Denoising
from tasks.diffusion.diffusion_config import Diffusion, UNet
from tasks.diffusion.noise_schedule import signal
from tasks.diffusion.sampling import as_bytes, denoise, noise, sample_images

KEPT = signal("linear", 1000)
TINY = Diffusion(8, UNet((4, 8), 1, (4,), 2))


def noise_of_gaussian(x: Tensor, time: int, mean: float, deviation: float) -> Tensor:
    """The expectation of the noise in x at this time, where images are N(mean, deviation^2)."""
    kept = KEPT[time]
    return (1 - kept) ** 0.5 * (x - kept**0.5 * mean) / (kept * deviation**2 + 1 - kept)


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_the_noise_of_a_single_image_draws_that_image_in_any_number_of_steps(steps: int) -> None:
    image = torch.linspace(-1, 1, 6, dtype=torch.float64)

    def predict(x: Tensor, time: int) -> Tensor:
        return (x - KEPT[time] ** 0.5 * image) / (1 - KEPT[time]) ** 0.5

    found = denoise(predict, torch.randn(6, dtype=torch.float64), KEPT, steps)
    torch.testing.assert_close(found, image)


def test_the_noise_of_a_gaussian_draws_that_gaussian() -> None:
    mean, deviation = 0.3, 0.5
    begun = torch.linspace(-3, 3, 7, dtype=torch.float64)
    found = denoise(lambda x, time: noise_of_gaussian(x, time, mean, deviation), begun, KEPT, 1000)
    # The same quantile of both: the flow is monotone. What the steps leave out is of the order of one of them.
    np.testing.assert_allclose(found, mean + deviation * begun, atol=0.02)


def test_two_steps_by_hand() -> None:
    kept = np.array([0.81, 0.25])
    # The noise is said to be 0.6 x: at time 1 from 2, x_0 = (2 - sqrt(.75) 1.2) / .5, then at time 0.
    found = denoise(lambda x, _: 0.6 * x, torch.tensor([2.0], dtype=torch.float64), kept, 2)
    clean = (2 - 0.75**0.5 * 1.2) / 0.5
    between = 0.9 * clean + 0.19**0.5 * 1.2
    np.testing.assert_allclose(found, [(between - 0.19**0.5 * 0.6 * between) / 0.9])


def test_steps_are_evenly_apart_from_the_last_to_the_first() -> None:
    seen: list[int] = []

    def predict(x: Tensor, time: int) -> Tensor:
        seen.append(time)
        return x

    denoise(predict, torch.zeros(1), KEPT, 5)
    assert [999, 749, 500, 250, 0] == seen


def test_a_bounded_image_stays_between_black_and_white() -> None:
    found = denoise(lambda x, _: -x, torch.linspace(-4, 4, 9), KEPT, 20, bounded=True)
    assert found.abs().max() <= 1
    assert denoise(lambda x, _: -x, torch.linspace(-4, 4, 9), KEPT, 20).abs().max() > 1


@pytest.mark.parametrize("steps", [0, 1001])
def test_numbers_of_steps_that_cannot_be_are_refused(steps: int) -> None:
    with pytest.raises(ValueError, match=f"steps is {steps}; it must be from 1 to 1000, which the diffusion has"):
        denoise(lambda x, _: x, torch.zeros(1), KEPT, steps)


def test_images_become_bytes_to_the_nearest() -> None:
    x = torch.tensor([-1.5, -1, 0, 0.5, 1, 2])[:, None, None, None].expand(6, 3, 1, 1)
    assert [0, 0, 128, 191, 255, 255] == as_bytes(x)[:, 0, 0, 0].tolist()


def test_an_image_begins_alike_whatever_is_drawn_beside_it() -> None:
    vectors = np.array([[0, 1], [1, 0], [5, 5]], np.float32)
    model = Denoising(TINY, vectors, 1)
    stream = np.random.default_rng(0)
    weights = {
        name: values if values.any() else stream.normal(0, 0.05, values.shape).astype(np.float32)
        for name, values in model.initial(3).items()
        if name in model.learned
    }
    weights |= {name: np.zeros_like(values) for name, values in weights.items() if name.endswith("mean")}
    whole = sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 7)
    assert (3, 8, 8, 3) == whole.shape
    np.testing.assert_array_equal(whole, sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 7))
    np.testing.assert_allclose(whole[1:2].astype(int), sample_images(TINY, weights, vectors[1:2], ["b"], 4, 7), atol=1)
    assert np.any(whole != sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 8))
    np.testing.assert_array_equal(noise(0, "a", 8), noise(0, "a", 8))
    assert np.any(noise(0, "a", 8) != noise(0, "b", 8))


def test_weights_of_another_network_are_refused_in_one_line() -> None:
    vectors = np.zeros((1, 2), np.float32)
    model = Denoising(TINY, vectors, 1)
    weights = {name: model.initial(0)[name] for name in model.learned}
    with pytest.raises(ValueError, match=r"vector.weight is \(16, 2\); its network and the vectors, which have 5 numb"):
        sample_images(TINY, weights, np.zeros((1, 5), np.float32), ["a"], 1, 0)
    del weights["last.bias"]
    with pytest.raises(ValueError, match=r"last.bias is absent; .* need \(3,\)"):
        sample_images(TINY, weights, vectors, ["a"], 1, 0)
