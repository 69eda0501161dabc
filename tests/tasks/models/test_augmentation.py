from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.datasets.images import Images
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Mode, initial
from tasks.models.networks import Architecture
from tasks.training.cross_entropy import (
    CONTRAST,
    CROP,
    MIRROR,
    CrossEntropy,
    Shape,
    augment,
    central_crops,
    central_images,
    random_crops,
)
from tasks.training.members import Member, Spec, Trained
from tasks.training.objective import Batch
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many

GREY = (28, 28, 1)
COLOUR = (32, 32, 3)
KEYS = torch.tensor([3, 4, 5])


def images(shape: tuple[int, int, int], rows: int = 40, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand((len(KEYS), rows, *shape), dtype=dtype, generator=torch.Generator().manual_seed(0)).flatten(2)


def augment_by_loops(image: Tensor, factor: float, down: bool, right: bool, mirror: bool) -> Tensor:
    """One image (height, width, channels), changed in loops."""
    height, width, channels = image.shape
    result = torch.zeros_like(image)
    for c in range(channels):
        mean = image[:, :, c].mean()
        for y in range(height - 1):
            for x in range(width - 1):
                from_x = width - 2 - x if mirror else x
                value = image[y + down, from_x + right, c]
                result[y, x, c] = mean + factor * (value - mean)
    return result


@pytest.mark.parametrize("shape", [(6, 7, 1), (6, 7, 3)])
def test_image_is_changed_according_to_its_draws(shape: tuple[int, int, int]) -> None:
    pixels = images(shape, rows=8)
    draws = CounterRng(KEYS)
    augmented = augment(pixels, shape, draws)
    factors = 0.8 + 0.4 * draws.uniform(CONTRAST, (8,), torch.float64)
    later = draws.uniform(CROP, (8, 2)) < 0.5
    mirrored = (draws.uniform(MIRROR, (8,)) < 0.5) & (shape[2] > 1)
    for m in range(len(KEYS)):
        for row in range(8):
            down, right = later[m, row].tolist()
            image = pixels[m, row].view(shape)
            expected = augment_by_loops(image, float(factors[m, row]), down, right, bool(mirrored[m, row]))
            torch.testing.assert_close(expected, augmented[m, row].view(shape), atol=1e-14, rtol=0)


def test_augmentations_are_equally_frequent_and_span_their_range() -> None:
    draws = CounterRng(KEYS)
    ways = torch.cat([draws.uniform(CROP, (4000, 2)) < 0.5, (draws.uniform(MIRROR, (4000, 1)) < 0.5)], 2)
    counts = (ways.flatten(0, 1).int() @ torch.tensor([1, 2, 4], dtype=torch.int32)).bincount()
    assert (counts / 12_000 - 1 / 8).abs().max() < 5 * (1 / 8 * 7 / 8 / 12_000) ** 0.5
    two = torch.tensor([0.0, 1.0]).repeat(14 * 28)  # mean 0.5: a value of 1 becomes 0.5 + factor / 2
    brightest = augment(two.expand(3, 4000, 784), GREY, draws).amax(2)
    assert 0.9 <= float(brightest.min()) < 0.9001
    assert 1.0999 < float(brightest.max()) <= 1.1


def test_feature_near_the_edge_stays_complete() -> None:
    for shape in (GREY, COLOUR):
        burnt = torch.zeros(3, 200, *shape)
        burnt[:, :, 1:6, 1:6] = 1
        augmented = augment(burnt.flatten(2), shape, CounterRng(KEYS)).view(3, 200, *shape)
        lit = augmented > burnt.mean() * 1.5
        assert torch.all(lit.sum((2, 3, 4)) == 25 * shape[2])
        columns = lit.any(4).any(2).int().argmax(2)
        assert set(columns.unique().tolist()) == ({0, 1} if shape == GREY else {0, 1, 25, 26})
        assert not augmented[:, :, -1].any()
        assert not augmented[:, :, :, -1].any()


def test_augmentation_is_independent_of_the_batch() -> None:
    pixels = images(COLOUR, dtype=torch.float32)
    together = augment(pixels, COLOUR, CounterRng(KEYS))
    for m in range(len(KEYS)):
        assert torch.equal(together[m], augment(pixels[m : m + 1], COLOUR, CounterRng(KEYS[m : m + 1]))[0])
    fewer = augment(pixels[:, :7], COLOUR, CounterRng(KEYS))
    assert torch.equal(together[:, :7], fewer)


def test_images_are_changed_only_in_training() -> None:
    architecture = Architecture("mlp1", GREY, 10)
    tensors = {}
    for name, values in initial(architecture.weights, 0).items():
        tensors[name] = torch.from_numpy(values)[None]
    pixels = (images(GREY)[:1] * 255).to(torch.uint8)
    batch = Batch(pixels, torch.zeros(1, 40, dtype=torch.int64), Mode(training=True, draws=CounterRng(KEYS[:1])))
    plain = CrossEntropy(architecture)
    augmenting = CrossEntropy(architecture, augmentation=True)
    assert not torch.equal(plain.losses(tensors, batch), augmenting.losses(tensors, batch))
    judged = Batch(batch.pixels, batch.labels, Mode())
    assert torch.equal(plain.evaluate_rows(tensors, judged)[0], augmenting.evaluate_rows(tensors, judged)[0])
    shares = torch.full((40,), 1 / 40)
    parts = {name: tensor[0] for name, tensor in tensors.items()}
    assert plain.manual_gradient(parts, pixels[0], batch.labels[0], shares, CounterRng(KEYS[:1])) is not None
    assert augmenting.manual_gradient(parts, pixels[0], batch.labels[0], shares, CounterRng(KEYS[:1])) is None


SHAPE = (5, 7, 3)
SIDE = 3


def places(shape: Shape, rows: int) -> Tensor:
    """Images whose values are their positions: (models, rows, height * width * channels)."""
    one = torch.arange(shape[0] * shape[1] * shape[2])
    return one.expand(len(KEYS), rows, -1).contiguous()


def square(shape: Shape, row: int, column: int, side: int) -> list[int]:
    """The values of a square, by loops."""
    _, width, channels = shape
    result = []
    for y in range(side):
        for x in range(side):
            for c in range(channels):
                result.append(((row + y) * width + column + x) * channels + c)
    return result


@pytest.mark.parametrize(("shape", "row", "column"), [(SHAPE, 1, 2), ((6, 4, 1), 1, 0), ((3, 3, 1), 0, 0)])
def test_central_square_has_larger_margin_at_end(shape: Shape, row: int, column: int) -> None:
    squares = central_crops(places(shape, 2), shape, SIDE)
    assert [[square(shape, row, column, SIDE)] * 2] * len(KEYS) == squares.tolist()
    images = places(shape, 2)[0].view(2, *shape).numpy().astype(np.uint8)
    assert squares[0].tolist() == central_images(images, SIDE).reshape(2, -1).tolist()


def test_every_crop_is_equally_likely_and_square() -> None:
    rows, (height, width, channels) = 5000, SHAPE
    crops = random_crops(places(SHAPE, rows), SHAPE, SIDE, CounterRng(KEYS)).flatten(0, 1)
    counts = Counter(divmod(first // channels, width) for first in crops[:, 0].tolist())
    ways = (height - SIDE + 1) * (width - SIDE + 1)
    assert {(top, column) for top in range(3) for column in range(5)} == set(counts)
    expected = 3 * rows / ways
    assert max(abs(count - expected) for count in counts.values()) < 5 * (expected * (1 - 1 / ways)) ** 0.5
    squares = {corner: square(SHAPE, *corner, SIDE) for corner in counts}
    assert all(squares[divmod(cut[0] // channels, width)] == cut for cut in crops[:500].tolist())


def test_full_square_is_the_image() -> None:
    pixels = places((4, 4, 3), 2)
    assert torch.equal(pixels, random_crops(pixels, (4, 4, 3), 4, CounterRng(KEYS)))
    assert torch.equal(pixels, central_crops(pixels, (4, 4, 3), 4))


def test_crops_depend_on_image_and_step_only() -> None:
    pixels = places(SHAPE, 40)
    together = random_crops(pixels, SHAPE, SIDE, CounterRng(KEYS))
    assert len({tuple(crops[:, 0].tolist()) for crops in together}) == 3
    for m in range(len(KEYS)):
        assert torch.equal(together[m], random_crops(pixels[m : m + 1], SHAPE, SIDE, CounterRng(KEYS[m : m + 1]))[0])
    assert torch.equal(together[:, :7], random_crops(pixels[:, :7], SHAPE, SIDE, CounterRng(KEYS)))
    steps = []
    for step in (0, 1):
        steps.append(random_crops(pixels, SHAPE, SIDE, CounterRng(KEYS, torch.full((3,), step))))
    assert not torch.equal(*steps)


def test_square_larger_than_image_is_refused() -> None:
    for cut in (
        lambda: random_crops(places(SHAPE, 1), SHAPE, 6, CounterRng(KEYS)),
        lambda: central_crops(places(SHAPE, 1), SHAPE, 6),
        lambda: central_images(np.zeros((1, *SHAPE), np.uint8), 6),
        lambda: CrossEntropy(Architecture("mlp1", (6, 6, 3), 10), crop=6, shape=SHAPE),
    ):
        with pytest.raises(ValueError, match="crop is 6; it must be at most the side of 5 x 7 images, from 1 to 5"):
            cut()
    with pytest.raises(ValueError, match="differ in shape from the network's images: 5x5x1 and 4x4x1"):
        CrossEntropy(Architecture("mlp1", (5, 5, 1), 10), crop=4, shape=(6, 6, 1))
    with pytest.raises(ValueError, match="crop is 5; it requires the shape of the images to crop"):
        CrossEntropy(Architecture("mlp1", (5, 5, 1), 10), crop=5)


def cropped(augmentation: bool = False) -> CrossEntropy:
    return CrossEntropy(Architecture("mlp1", (6, 6, 1), 10), augmentation, crop=6, shape=(8, 8, 1))


def test_classifier_crops_randomly_in_training_centrally_in_evaluation() -> None:
    learning = cropped()
    plain = CrossEntropy(learning.architecture)
    tensors = {}
    for name, values in initial(plain.weights, 0).items():
        tensors[name] = torch.from_numpy(values)[None]
    pixels = torch.randint(256, (1, 9, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(9)[None]
    draws = CounterRng(KEYS[:1])
    training = Mode(training=True, draws=draws)
    crops = random_crops(pixels, (8, 8, 1), 6, draws)
    expected = plain.losses(tensors, Batch(crops, labels, training))
    assert torch.equal(expected, learning.losses(tensors, Batch(pixels, labels, training)))
    centres = central_crops(pixels, (8, 8, 1), 6)
    expected = plain.evaluate_rows(tensors, Batch(centres, labels, Mode()))[0]
    assert torch.equal(expected, learning.evaluate_rows(tensors, Batch(pixels, labels, Mode()))[0])
    augmenting = CrossEntropy(learning.architecture, augmentation=True)
    expected = augmenting.losses(tensors, Batch(crops, labels, training))
    assert torch.equal(expected, cropped(augmentation=True).losses(tensors, Batch(pixels, labels, training)))
    parts = {name: tensor[0] for name, tensor in tensors.items()}
    assert learning.manual_gradient(parts, pixels[0], labels[0], torch.full((9,), 1 / 9), draws) is None


def test_training_on_crops_is_independent_of_the_batch() -> None:
    stream = np.random.default_rng(0)
    pixels = stream.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    images = Images(pixels, np.arange(40) % 10, pixels[:10], np.arange(10), 10)
    spec = Spec(cropped(), Recipe(2, 16, 1e-3), images)
    members = [Member(seed, np.arange(40 - seed), {}) for seed in (1, 2)]
    together = dict(train_many(spec, members, torch.device("cpu")))
    for index, member in enumerate(members):
        (alone,) = dict(train_many(spec, [member], torch.device("cpu"))).values()
        stacked = together[index]
        assert isinstance(alone, Trained)
        assert isinstance(stacked, Trained)
        assert all((alone.weights[name] == stacked.weights[name]).all() for name in alone.weights)
