"""Training a diffusion model: settings, two images by two vectors, links of a chain, and errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.diffusion.denoising import Scale, TrainedDiffusion, fit_diffusion, held_out, sample_images
from tasks.diffusion.diffusion_config import SMALL, Diffusion, UNet
from tasks.training.members import TrainingError
from tasks.worker import checkpoints
from tasks.worker.checkpoints import Link


def test_defaults_are_published_network_for_128_pixels() -> None:
    config = Diffusion()
    assert (
        *(config.resolution, config.steps, config.schedule),
        *(config.batch, config.learning_rate),
    ) == (128, 1000, "linear", 256, 1e-4)
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
def test_invalid_networks_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        UNet(**settings)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resolution": 34}, "resolution is 34; with 3 widths it must divide by 4"),
        ({"resolution": 64}, "attention is (8,); choose from the resolutions 64, 32, 16"),
        ({"schedule": "constant"}, "schedule is 'constant'; it must be one of linear, cosine"),
        ({"precision": "float16"}, "precision is 'float16'; it must be one of float32, bfloat16"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0; it must be a share from 0 to below 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be a finite number above 0"),
        ({"batch": 10, "accumulate": 4}, "accumulate is 4; it must divide batch, which is 10"),
    ],
)
def test_invalid_training_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    small = Diffusion(32, SMALL)
    with pytest.raises(ValueError, match=r".") as error:
        replace(small, **settings)
    assert message == str(error.value)


TINY = Diffusion(8, UNet((4, 8), 1, (4,), 2), epochs=3, batch=4, learning_rate=1e-3)


def random_images(count: int = 10) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    stream = np.random.default_rng(0)
    vectors = stream.normal(5, 3, (count, 2)).astype(np.float32)
    return stream.integers(0, 256, (count, 8, 8, 3), np.uint8), vectors


def equal(first: TrainedDiffusion, second: TrainedDiffusion) -> bool:
    same = all(np.array_equal(first.weights[name], values) for name, values in second.weights.items())
    losses = []
    for model in (first, second):
        losses.append([(epoch.train_loss, epoch.validation_loss) for epoch in model.history])
    return same and losses[0] == losses[1] and list(first.weights) == list(second.weights)


@pytest.mark.slow
def test_each_vector_draws_its_own_image() -> None:
    images = np.zeros((2, 4, 4, 3), np.uint8)
    images[0, :2] = 255  # white above black
    images[1, :, :2, 1] = 255  # green on the left, black on the right
    vectors = np.array([[1, 0, 2], [0, 1, 2]], np.float32)
    config = Diffusion(
        4, UNet((16,), 1, (), 1), epochs=24, batch=32, learning_rate=1.5e-2, ema_decay=0.98, validation_images=2
    )
    model = fit_diffusion(config, np.repeat(images, 96, 0), np.repeat(vectors, 96, 0))
    losses = [epoch.train_loss for epoch in model.history]
    assert losses[0] > 0.6
    assert np.mean(losses[-3:]) < 0.15
    images_drawn = sample_images(config, model.weights, model.scale.standardise(vectors), ["one", "two"], 20, 1).astype(
        float
    )
    apart = np.abs(images_drawn[:, None] - images[None]).mean((2, 3, 4))  # (drawn, image), in byte values
    assert apart[0, 0] < 35 < 100 < apart[0, 1]
    assert apart[1, 1] < 35 < 100 < apart[1, 0]


def test_training_is_a_function_of_its_seed() -> None:
    first = fit_diffusion(replace(TINY, seed=0), *random_images())
    repeated = fit_diffusion(replace(TINY, seed=0), *random_images())
    other_seed = fit_diffusion(replace(TINY, seed=1), *random_images())
    assert equal(first, repeated)
    assert not equal(first, other_seed)


def test_chain_equals_unbroken_training() -> None:
    saved_states: list[bytes] = []
    with checkpoints.use_links([Link(leave=saved_states.append)]):
        fit_diffusion(replace(TINY, epochs=2), *random_images(), source="these")
    state_requests: list[str] = []

    def states() -> list[bytes]:
        state_requests.append("requested")
        return saved_states

    with checkpoints.use_links([Link(earlier_states=states)]):
        continued = fit_diffusion(TINY, *random_images(), source="these")
    assert state_requests == ["requested"]
    assert equal(continued, fit_diffusion(TINY, *random_images()))


def test_state_of_other_vectors_is_ignored() -> None:
    saved_states: list[bytes] = []
    images, vectors = random_images()
    with checkpoints.use_links([Link(leave=saved_states.append)]):
        fit_diffusion(replace(TINY, epochs=2), images, vectors[::-1], source="others")
    with checkpoints.use_links([Link(earlier_states=lambda: saved_states)]):
        assert equal(fit_diffusion(TINY, images, vectors, source="these"), fit_diffusion(TINY, images, vectors))


def test_vectors_are_standardised() -> None:
    vectors = np.array([[1, 7, 0], [3, 7, 4]], np.float32)
    scale = Scale.from_vectors(vectors)
    assert scale.standardise(vectors).tolist() == [[-1, 0, -1], [1, 0, 1]]
    assert scale.standardise(np.array([[5, 8, 2]], np.float32)).tolist() == [[3, 1, 0]]


def test_at_most_an_eighth_is_held_out() -> None:
    assert len(held_out(TINY, 7)) == 0
    assert len(held_out(TINY, 100)) == 12
    rows = held_out(replace(TINY, validation_images=20), 1000)
    assert 20 == len(set(rows.tolist())) == len(rows)
    assert (
        sorted(rows.tolist()) == rows.tolist() != held_out(replace(TINY, validation_images=20, seed=1), 1000).tolist()
    )


def test_infinite_loss_ends_training() -> None:
    with pytest.raises(TrainingError, match=r"loss is not finite .*\(seed 0\); try a lower learning rate"):
        fit_diffusion(replace(TINY, learning_rate=1e30, epochs=5), *random_images())


def test_wrong_image_shapes_and_infinite_vectors_are_refused() -> None:
    images, vectors = random_images()
    with pytest.raises(ValueError, match="images are 10x8x8x3, with 9 vectors; they must be at least two"):
        fit_diffusion(TINY, images, vectors[:9])
    with pytest.raises(ValueError, match=r"images are 10x4x8x3, .* of 8 x 8 x 3"):
        fit_diffusion(TINY, images[:, :4], vectors)
    vectors[3, 1] = np.inf
    with pytest.raises(ValueError, match="vectors must be finite; 1 of 10 are not"):
        fit_diffusion(TINY, images, vectors)
