"""Views of images compared with torchvision's and Pillow's, one change at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torchvision.transforms import functional as pictures

from tasks.self_supervised.networks import normalise
from tasks.self_supervised.pretraining_config import Augmentation
from tasks.self_supervised.views import COLUMNS, NUMBERS, WINDOW, Drawing, draw_views, drawing, view, windows

PLAIN = Augmentation(16, min_area=1.0, flip=0.0, jitter=0.0, grey=0.0, blur=0.0, solarise=0.0)


def squares(n: int, side: int, seed: int = 0, smooth: bool = False) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    if not smooth:
        return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=draws)
    coarse = torch.rand(n, 3, 4, 4, generator=draws) * 90 + 80
    return functional.interpolate(coarse, (side, side), mode="bilinear").to(torch.uint8)


def plain(n: int) -> Drawing:
    """The entire image, unchanged."""
    return Drawing(
        torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(n, 4),
        torch.zeros(n, dtype=torch.bool),
        None,
        torch.eye(3).expand(n, 3, 3),
        torch.zeros(n),
        torch.zeros(0, dtype=torch.int64),
    )


@pytest.mark.parametrize(("side", "resolution"), [(16, 16), (40, 16), (10, 16), (17, 9)])
def test_entire_image_is_resized_with_torchs_antialiasing(side: int, resolution: int) -> None:
    images = squares(3, side)
    resized = view(replace(PLAIN, resolution=resolution), images, plain(3))
    expected = functional.interpolate(images.float() / 255, (resolution,) * 2, mode="bilinear", antialias=True)
    torch.testing.assert_close(normalise(expected), resized, atol=2e-5, rtol=0)


def test_window_equals_torchvisions_crop_away_from_edges() -> None:
    images = squares(2, 64, smooth=True)
    x_start = 8
    y_start = 16
    x_end = 40
    y_end = 56
    bounds = torch.tensor([[x_start, y_start, x_end, y_end]]).expand(2, 4) / 64
    window = view(PLAIN, images, replace(plain(2), windows=bounds))
    cropped = pictures.resized_crop(images.float() / 255, y_start, x_start, y_end - y_start, x_end - x_start, [16, 16])
    torch.testing.assert_close(normalise(cropped)[..., 1:-1, 1:-1], window[..., 1:-1, 1:-1], atol=1e-4, rtol=0)


def test_flipped_image_is_mirrored_left_to_right() -> None:
    images = squares(2, 20)
    flipped = torch.tensor([True, False])
    views = view(PLAIN, images, replace(plain(2), flipped=flipped))
    unflipped = view(PLAIN, images, plain(2))
    torch.testing.assert_close(unflipped[0].flip(2), views[0])
    torch.testing.assert_close(unflipped[1], views[1])


def test_blur_is_torchvisions() -> None:
    images = squares(2, 32)
    config = replace(PLAIN, resolution=32)
    views = view(config, images, replace(plain(2), sigma=torch.tensor([1.3, 0.0])))
    blurred = pictures.gaussian_blur(images.float() / 255, [23, 23], [1.3, 1.3])
    torch.testing.assert_close(normalise(blurred)[0, :, 6:-6, 6:-6], views[0, :, 6:-6, 6:-6], atol=2e-4, rtol=0)
    torch.testing.assert_close(normalise(images.float() / 255)[1], views[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("seed", range(4))
def test_unclipped_colour_changes_are_torchvisions(seed: int) -> None:
    """Hue is excluded: here it turns about the grey axis, which the next test checks."""
    images = squares(6, 16, seed, smooth=True)
    config = replace(PLAIN, jitter=1.0, grey=0.3)
    numbers = draw_views(seed, 1, 0, 6)[0]
    numbers[:, COLUMNS["hue"]] = 0.5
    numbers[:, COLUMNS["brightness"]] *= 0.5  # darker, so that no value is clipped
    changes = drawing(config, numbers, torch.full((6, 2), 16), 0)
    views = view(config, images, replace(changes, windows=plain(6).windows))
    for index, image in enumerate(images.float() / 255):
        row = numbers[index]

        def factor(name: str, limit: float, row: Tensor = row) -> float:
            return 1 + limit * (2 * float(row[COLUMNS[name]]) - 1)

        if row[COLUMNS["jitter"]] < 0.8:
            image = pictures.adjust_brightness(image, factor("brightness", 0.4))
            image = pictures.adjust_contrast(image, factor("contrast", 0.4))
            image = pictures.adjust_saturation(image, factor("saturation", 0.2))
        if row[COLUMNS["grey"]] < 0.3:
            image = pictures.rgb_to_grayscale(image, 3)
        torch.testing.assert_close(
            normalise(image), views[index], atol=5e-3, rtol=0
        )  # torchvision has 0.2989, not 0.299


def test_hue_turns_red_towards_green_and_keeps_grey() -> None:
    from tasks.self_supervised.views import hue

    turned = hue(torch.tensor([2 * math.pi / 3, 0.3, 0.0]))
    torch.testing.assert_close(torch.tensor([0.0, 1.0, 0.0]), turned[0] @ torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(torch.eye(3), turned[2])
    torch.testing.assert_close(torch.ones(3, 3), turned @ torch.ones(3))
    torch.testing.assert_close(torch.ones(3, 3), torch.ones(3) @ turned)


def test_colours_are_clipped_and_solarised_from_the_middle() -> None:
    images = torch.tensor([0, 127, 128, 255], dtype=torch.uint8).view(1, 1, 2, 2).repeat(2, 3, 1, 1)
    config = replace(PLAIN, resolution=8, solarise=1.0)
    images = functional.interpolate(images, (8, 8))
    views = view(config, images, replace(plain(2), solarised=torch.tensor([1])))
    torch.testing.assert_close(normalise(images.float() / 255)[0], views[0])
    torch.testing.assert_close(normalise(pictures.solarize(images, 128).float() / 255)[1], views[1])
    brighter = view(config, images, replace(plain(2), mixing=3 * torch.eye(3).expand(2, 3, 3)))
    torch.testing.assert_close(normalise((3 * images.float() / 255).clamp(max=1)), brighter)


def test_windows_have_requested_areas_and_ratios() -> None:
    sizes = torch.tensor([[300, 400]]).expand(4000, 2)
    bounds = windows(Augmentation(min_area=0.2), draw_views(0, 1, 0, 4000)[0, :, :WINDOW].view(-1, 10, 4), sizes)
    assert bounds.min() >= 0
    assert bounds.max() <= 1 + 1e-6
    wide = (bounds[:, 2] - bounds[:, 0]) * 400
    high = (bounds[:, 3] - bounds[:, 1]) * 300
    area = wide * high / 120_000
    ratio = wide / high
    assert (area >= 0.2 - 1e-5).all()
    assert ((ratio > 0.7499) & (ratio < 1.3335)).all()
    # torchvision's windows are equal except that they have whole pixels.
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    image = torch.zeros(3, 300, 400)
    reference_windows = torch.tensor(
        [RandomResizedCrop.get_params(image, [0.2, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)]
    )
    for actual, reference in [
        (high, reference_windows[:, 2]),
        (wide, reference_windows[:, 3]),
        (bounds[:, 1] * 300, reference_windows[:, 0]),
    ]:
        assert float(reference.float().mean()) == pytest.approx(float(actual.mean()), rel=0.05)
        assert float(reference.float().std()) == pytest.approx(float(actual.std()), rel=0.06)


def test_largest_central_window_if_none_fits() -> None:
    sizes = torch.tensor([[100, 1000], [1000, 100], [100, 100]])
    bounds = windows(Augmentation(min_area=1.0), torch.full((3, 10, 4), 0.999), sizes)
    torch.testing.assert_close(torch.tensor([0.5 - 1 / 15, 0, 0.5 + 1 / 15, 1]), bounds[0])
    torch.testing.assert_close(torch.tensor([0, 0.5 - 1 / 15, 1, 0.5 + 1 / 15]), bounds[1])
    torch.testing.assert_close(torch.tensor([0.0, 0, 1, 1]), bounds[2])


def test_shares_of_changes_follow_the_settings() -> None:
    numbers = draw_views(3, 1, 0, 5000)
    sizes = torch.full((5000, 2), 32)
    assert tuple(numbers.shape) == (2, 5000, NUMBERS)
    first = drawing(Augmentation(32), numbers[0], sizes, 0)
    second = drawing(Augmentation(32), numbers[1], sizes, 1)
    assert first.sigma is not None
    assert float((first.sigma > 0).float().mean()) == 1.0
    assert float(first.sigma.max()) <= 2 * 32 / 224
    assert second.sigma is None
    assert len(first.solarised) == 0
    assert pytest.approx(len(second.solarised) / 5000, abs=0.02) == 0.2
    assert pytest.approx(float(first.flipped.float().mean()), abs=0.02) == 0.5
    grey = (first.mixing - first.mixing[:, :1]).abs().amax((1, 2)) < 1e-6  # red, green and blue are the same
    assert pytest.approx(float(grey.float().mean()), abs=0.02) == 0.2
    unchanged = (first.contrast == 0).float().mean()
    assert pytest.approx(float(unchanged), abs=0.02) == 0.2


def test_draws_depend_on_seed_epoch_and_step() -> None:
    before = torch.get_rng_state()
    assert torch.equal(draw_views(1, 2, 3, 4), draw_views(1, 2, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    other_draws = [draw_views(*key, 4) for key in ((0, 2, 3), (1, 3, 3), (1, 2, 2))]
    assert not any(torch.equal(draw_views(1, 2, 3, 4), draws) for draws in other_draws)
