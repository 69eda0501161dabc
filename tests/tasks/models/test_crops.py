from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.datasets.images import Images
from tasks.models import crops
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Mode, initial
from tasks.models.networks import Architecture
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.members import Member, Spec, Trained
from tasks.training.objective import Batch
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many

SHAPE, SIDE = (5, 7, 3), 3
KEYS = torch.tensor([3, 4, 5])


def places(shape: crops.Shape, rows: int) -> Tensor:
    """Images whose every value says where it lies: (models, rows, height * width * channels)."""
    one = torch.arange(shape[0] * shape[1] * shape[2])
    return one.expand(len(KEYS), rows, -1).contiguous()


def square(shape: crops.Shape, top: int, left: int, side: int) -> list[int]:
    """What lies in a square, in loops."""
    _, width, channels = shape
    return [
        ((top + y) * width + left + x) * channels + c for y in range(side) for x in range(side) for c in range(channels)
    ]


@pytest.mark.parametrize(("shape", "top", "left"), [(SHAPE, 1, 2), ((6, 4, 1), 1, 0), ((3, 3, 1), 0, 0)])
def test_the_central_square_is_in_the_middle_with_the_larger_rest_behind(
    shape: crops.Shape, top: int, left: int
) -> None:
    found = crops.central(places(shape, 2), shape, SIDE)
    assert [[square(shape, top, left, SIDE)] * 2] * len(KEYS) == found.tolist()
    images = places(shape, 2)[0].view(2, *shape).numpy().astype(np.uint8)
    assert found[0].tolist() == crops.central_images(images, SIDE).reshape(2, -1).tolist()


def test_every_place_is_cut_from_about_as_often_and_is_a_whole_square() -> None:
    rows, (height, width, channels) = 5000, SHAPE
    found = crops.random(places(SHAPE, rows), SHAPE, SIDE, CounterRng(KEYS)).flatten(0, 1)
    counts = Counter(divmod(first // channels, width) for first in found[:, 0].tolist())
    ways = (height - SIDE + 1) * (width - SIDE + 1)
    assert {(top, left) for top in range(3) for left in range(5)} == set(counts)
    expected = 3 * rows / ways
    assert max(abs(count - expected) for count in counts.values()) < 5 * (expected * (1 - 1 / ways)) ** 0.5
    squares = {place: square(SHAPE, *place, SIDE) for place in counts}
    assert all(squares[divmod(cut[0] // channels, width)] == cut for cut in found[:500].tolist())


def test_a_square_of_the_whole_image_is_the_image() -> None:
    pixels = places((4, 4, 3), 2)
    assert torch.equal(pixels, crops.random(pixels, (4, 4, 3), 4, CounterRng(KEYS)))
    assert torch.equal(pixels, crops.central(pixels, (4, 4, 3), 4))


def test_an_image_is_cut_without_regard_to_its_company_and_anew_in_every_step() -> None:
    pixels = places(SHAPE, 40)
    together = crops.random(pixels, SHAPE, SIDE, CounterRng(KEYS))
    assert 3 == len({tuple(each[:, 0].tolist()) for each in together})
    for m in range(len(KEYS)):
        assert torch.equal(together[m], crops.random(pixels[m : m + 1], SHAPE, SIDE, CounterRng(KEYS[m : m + 1]))[0])
    assert torch.equal(together[:, :7], crops.random(pixels[:, :7], SHAPE, SIDE, CounterRng(KEYS)))
    steps = [crops.random(pixels, SHAPE, SIDE, CounterRng(KEYS, torch.full((3,), step))) for step in (0, 1)]
    assert not torch.equal(*steps)


def test_a_square_that_is_larger_than_the_image_is_refused() -> None:
    for cut in (
        lambda: crops.random(places(SHAPE, 1), SHAPE, 6, CounterRng(KEYS)),
        lambda: crops.central(places(SHAPE, 1), SHAPE, 6),
        lambda: crops.central_images(np.zeros((1, *SHAPE), np.uint8), 6),
        lambda: CrossEntropy(Architecture("mlp1", (6, 6, 3), 10), crop=6, shape=SHAPE),
    ):
        with pytest.raises(ValueError, match="crop is 6; of images of 5 x 7 it must be from 1 to 5"):
            cut()
    with pytest.raises(ValueError, match="differ in shape: 5x5x1 and 4x4x1"):
        CrossEntropy(Architecture("mlp1", (5, 5, 1), 10), crop=4, shape=(6, 6, 1))
    with pytest.raises(ValueError, match="crop is 5; the shape of the images that are cropped must be given too"):
        CrossEntropy(Architecture("mlp1", (5, 5, 1), 10), crop=5)


def cropped(augmentation: bool = False) -> CrossEntropy:
    return CrossEntropy(Architecture("mlp1", (6, 6, 1), 10), augmentation, crop=6, shape=(8, 8, 1))


def test_a_classifier_sees_random_squares_in_training_and_central_ones_in_evaluation() -> None:
    learning = cropped()
    plain = CrossEntropy(learning.architecture)
    tensors = {name: torch.from_numpy(values)[None] for name, values in initial(plain.weights, 0).items()}
    pixels = torch.randint(256, (1, 9, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels, draws = torch.arange(9)[None], CounterRng(KEYS[:1])
    training = Mode(training=True, draws=draws)
    seen = crops.random(pixels, (8, 8, 1), 6, draws)
    expected = plain.losses(tensors, Batch(seen, labels, training))
    assert torch.equal(expected, learning.losses(tensors, Batch(pixels, labels, training)))
    centres = crops.central(pixels, (8, 8, 1), 6)
    expected = plain.evaluate_rows(tensors, Batch(centres, labels, Mode()))[0]
    assert torch.equal(expected, learning.evaluate_rows(tensors, Batch(pixels, labels, Mode()))[0])
    augmenting = CrossEntropy(learning.architecture, augmentation=True)
    expected = augmenting.losses(tensors, Batch(seen, labels, training))
    assert torch.equal(expected, cropped(augmentation=True).losses(tensors, Batch(pixels, labels, training)))
    parts = {name: tensor[0] for name, tensor in tensors.items()}
    assert learning.manual_gradient(parts, pixels[0], labels[0], torch.full((9,), 1 / 9), draws) is None


def test_a_model_learns_from_squares_the_same_alone_and_beside_others() -> None:
    stream = np.random.default_rng(0)
    pixels = stream.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    images = Images(pixels, np.arange(40) % 10, pixels[:10], np.arange(10), 10)
    spec = Spec(cropped(), Recipe(2, 16, 1e-3), images)
    members = [Member(seed, np.arange(40 - seed), {}) for seed in (1, 2)]
    together = dict(train_many(spec, members, torch.device("cpu")))
    for index, member in enumerate(members):
        (alone,) = dict(train_many(spec, [member], torch.device("cpu"))).values()
        other = together[index]
        assert isinstance(alone, Trained)
        assert isinstance(other, Trained)
        assert all((alone.weights[name] == other.weights[name]).all() for name in alone.weights)
