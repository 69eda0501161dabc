import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from tasks.models.counter_rng import CounterRng
from tasks.models.likelihoods import Binary, Dequantised, Logit, fixed_inputs, observation_keys

F64 = torch.float64


def keys(*values: int) -> CounterRng:
    return CounterRng(torch.tensor(values))


def bytes_of(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_pixel_is_one_with_probability_of_its_brightness() -> None:
    count = 20_000
    levels = torch.tensor([0, 1, 64, 128, 200, 254, 255], dtype=torch.uint8)
    ones = Binary((1, 7, 1), padding=0).to_model_inputs(levels.expand(1, count, 7), keys(3), F64)[0]
    assert set(ones.unique().tolist()) == {0, 1}
    chances = levels.double() / 255
    error = (chances * (1 - chances) / count).sqrt()
    assert bool(((ones.mean(0) - chances).abs() <= 5 * error).all())  # exact where the pixel is 0 or 255


def test_binary_images_have_a_frame_of_zeros() -> None:
    white = torch.full((2, 3, 4 * 5 * 2), 255, dtype=torch.uint8)
    binary = Binary((4, 5, 2))
    assert binary.seen_shape == (2, 8, 9)
    images = binary.to_model_inputs(white, keys(1, 2), F64).unflatten(2, binary.seen_shape)
    assert 2 * 3 * 2 * 20 == images.sum() == images[..., 2:-2, 2:-2].sum()


PREPARATIONS = [Binary((4, 5, 2)), Logit((4, 5, 2)), Dequantised((4, 5, 2)), Binary((4, 5, 2), padding=0)]


@pytest.mark.parametrize("preparation", PREPARATIONS, ids=["binary", "logit", "dequantised", "unframed"])
def test_model_inputs_convert_back_to_pixels(preparation: Binary | Logit | Dequantised) -> None:
    pixels = bytes_of(2, 3, 40)
    if isinstance(preparation, Binary):
        pixels = (pixels > 127).to(torch.uint8) * 255
    displayed = preparation.displayed_pixels(preparation.to_model_inputs(pixels, keys(1, 2), F64))
    # Noise on a byte is less than a step.
    assert bool(((displayed * (255 if isinstance(preparation, Binary) else 256) - pixels).floor() == 0).all())


def test_model_receives_its_own_draw_of_inputs() -> None:
    pixels = bytes_of(1, 4, 60).expand(2, -1, -1)
    for preparation in (Binary((4, 5, 3)), Logit((4, 5, 3)), Dequantised((4, 5, 3))):
        together = preparation.to_model_inputs(pixels, keys(1, 2), F64, training=True)
        alone = preparation.to_model_inputs(pixels[1:], keys(2), F64, training=True)
        assert torch.equal(together[1:], alone)
        assert not torch.equal(together[0], together[1])


def test_colours_are_arranged_by_channel() -> None:
    pixels = bytes_of(1, 1, 2 * 3 * 3)
    inputs = Logit((2, 3, 3)).to_model_inputs(pixels, keys(5), F64)
    expected = pixels.view(2, 3, 3).permute(2, 0, 1).flatten()
    share = (inputs[0, 0].sigmoid() - 0.05) / 0.9
    assert torch.equal(expected.double(), (share * 256).floor())


def test_images_are_mirrored_only_in_training() -> None:
    pixels = torch.tensor([0, 128, 255], dtype=torch.uint8).expand(1, 4000, 3)
    preparation = Logit((1, 3, 1))
    ascending = []
    for training in (False, True):
        ascending.append(
            float(
                (preparation.to_model_inputs(pixels, keys(1), F64, training)[0].diff(dim=1) > 0).all(1).double().mean()
            )
        )
    assert ascending[0] == 1
    assert abs(ascending[1] - 0.5) < 5 * 0.5 / math.sqrt(4000)
    assert torch.equal(
        Logit((1, 3, 1), mirrored=False).to_model_inputs(pixels, keys(1), F64, True),
        preparation.to_model_inputs(pixels, keys(1), F64),
    )


def test_logit_density_of_bytes_integrates_to_one() -> None:
    preparation = Logit((1, 1, 1))

    def density(byte: float) -> float:
        share = 0.05 + 0.9 * byte / 256
        y = torch.tensor([math.log(share / (1 - share))], dtype=F64)
        return math.exp(stats.norm(0.3, 0.7).logpdf(float(y)) + float(preparation.to_pixels(y)))

    ends = stats.norm(0.3, 0.7).cdf([math.log(1 / 19), math.log(19)])
    assert ends[1] - ends[0] == pytest.approx(integrate.quad(density, 0, 256)[0], abs=1e-10)


def test_change_of_variables_is_the_published_formula() -> None:
    y = torch.linspace(-3, 3, 12, dtype=F64).view(3, 4)
    published = 4 * math.log(0.9) - 4 * math.log(256) - (y - 2 * torch.nn.functional.softplus(y)).sum(-1)
    torch.testing.assert_close(published, Logit((2, 2, 1)).to_pixels(y), atol=1e-12, rtol=0)


def test_binary_images_need_no_change_of_variables() -> None:
    assert torch.equal(torch.zeros(2, 3), Binary((2, 2, 1)).to_pixels(torch.ones(2, 3, 36)))


def test_observation_is_fixed_by_row_and_seed() -> None:
    pixels = bytes_of(5, 28 * 28)
    rows = torch.tensor([7, 3, 9, 1, 4])
    binary = Binary((28, 28, 1))
    inputs = fixed_inputs(binary, pixels, observation_keys(1, rows), F64)
    assert inputs.shape == (5, 1024)
    repeated = fixed_inputs(binary, pixels[[3, 1]], observation_keys(1, rows[[3, 1]]), F64)
    np.testing.assert_array_equal(inputs[[3, 1]], repeated)
    assert not torch.equal(inputs, fixed_inputs(binary, pixels, observation_keys(2, rows), F64))


def test_dequantised_values_are_exact_and_inside_interval() -> None:
    count = 60_000
    for byte in (0, 1, 128, 255):
        pixels = torch.full((1, count, 1), byte, dtype=torch.uint8)
        inputs = Dequantised((1, 1, 1)).to_model_inputs(pixels, keys(byte), torch.float32)
        assert torch.equal(inputs.double(), Dequantised((1, 1, 1)).to_model_inputs(pixels, keys(byte), F64))
        noise = inputs.double() * 256 - byte
        assert 0 < float(noise.min()) <= float(noise.max()) < 1
        assert 0 < float(inputs.min()) <= float(inputs.max()) < 1
        assert stats.kstest(noise.flatten().numpy(), "uniform").pvalue > 1e-4


def test_density_of_pixels_becomes_one_of_bytes() -> None:
    inputs = torch.rand(2, 3, 5, dtype=F64)
    assert torch.equal(torch.full((2, 3), -5 * math.log(256), dtype=F64), Dequantised((1, 5, 1)).to_pixels(inputs))
