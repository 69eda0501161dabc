"""The configs of diffusion models: the published setting, and ranges."""

from dataclasses import replace
from typing import Any

import pytest

from tasks.diffusion.diffusion_config import SMALL, Diffusion, UNet


def test_the_defaults_are_the_published_network_for_128_pixels() -> None:
    config = Diffusion()
    assert (128, 1000, "linear", 256, 1e-4) == (
        *(config.resolution, config.steps, config.schedule),
        *(config.batch, config.learning_rate),
    )
    assert UNet((256, 256, 512, 768, 1024), 2, (32, 16, 8), 4) == config.unet


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widths": ()}, "widths is (); it must be at least one number of channels"),
        ({"widths": (16, 6), "heads": 4}, "widths is (16, 6); it must be at least one number of channels, each a mult"),
        ({"widths": (15,), "heads": 3}, "widths begins with 15; the first must be even"),
        ({"blocks": 0}, "blocks is 0; it must be at least 1"),
    ],
)
def test_networks_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        UNet(**settings)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resolution": 34}, "resolution is 34; with 3 widths it must divide by 4"),
        ({"resolution": 64}, "attention is (8,); it must be some of the network's resolutions, 64, 32, 16"),
        ({"schedule": "constant"}, "schedule is 'constant'; it must be one of linear, cosine"),
        ({"precision": "float16"}, "precision is 'float16'; it must be one of float32, bfloat16"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"average": 1.0}, "average is 1.0; it must be a share from 0 to below 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be a finite number above 0"),
        ({"batch": 10, "accumulate": 4}, "accumulate is 4; it must divide batch, which is 10"),
    ],
)
def test_trainings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    small = Diffusion(32, SMALL)
    with pytest.raises(ValueError, match=r".") as error:
        replace(small, **settings)
    assert message == str(error.value)
