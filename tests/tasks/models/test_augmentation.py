import pytest
import torch
from torch import Tensor

from tasks.models.augmentation import CONTRAST, CROP, MIRROR, augment
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Mode, initial
from tasks.models.networks import Architecture
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.objective import Batch

GREY, COLOUR = (28, 28, 1), (32, 32, 3)
KEYS = torch.tensor([3, 4, 5])


def images(shape: tuple[int, int, int], rows: int = 40, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand((len(KEYS), rows, *shape), dtype=dtype, generator=torch.Generator().manual_seed(0)).flatten(2)


def manual_gradient(image: Tensor, factor: float, down: bool, right: bool, mirror: bool) -> Tensor:
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
def test_an_image_is_changed_as_its_draws_say(shape: tuple[int, int, int]) -> None:
    pixels, draws = images(shape, rows=8), CounterRng(KEYS)
    found = augment(pixels, shape, draws)
    factors = 0.8 + 0.4 * draws.uniform(CONTRAST, (8,), torch.float64)
    later = draws.uniform(CROP, (8, 2)) < 0.5
    mirrored = (draws.uniform(MIRROR, (8,)) < 0.5) & (shape[2] > 1)
    for m in range(len(KEYS)):
        for row in range(8):
            down, right = later[m, row].tolist()
            image = pixels[m, row].view(shape)
            expected = manual_gradient(image, float(factors[m, row]), down, right, bool(mirrored[m, row]))
            torch.testing.assert_close(expected, found[m, row].view(shape), atol=1e-14, rtol=0)


def test_every_way_to_crop_and_mirror_is_about_as_frequent_and_contrast_spans_its_range() -> None:
    draws = CounterRng(KEYS)
    ways = torch.cat([draws.uniform(CROP, (4000, 2)) < 0.5, (draws.uniform(MIRROR, (4000, 1)) < 0.5)], 2)
    counts = (ways.flatten(0, 1).int() @ torch.tensor([1, 2, 4], dtype=torch.int32)).bincount()
    assert (counts / 12_000 - 1 / 8).abs().max() < 5 * (1 / 8 * 7 / 8 / 12_000) ** 0.5
    two = torch.tensor([0.0, 1.0]).repeat(14 * 28)  # mean 0.5: what was 1 becomes 0.5 + factor / 2
    brightest = augment(two.expand(3, 4000, 784), GREY, draws).amax(2)
    assert 0.9 <= float(brightest.min()) < 0.9001
    assert 1.0999 < float(brightest.max()) <= 1.1


def test_a_feature_one_pixel_from_the_edges_stays_whole() -> None:
    for shape in (GREY, COLOUR):
        burnt = torch.zeros(3, 200, *shape)
        burnt[:, :, 1:6, 1:6] = 1
        found = augment(burnt.flatten(2), shape, CounterRng(KEYS)).view(3, 200, *shape)
        lit = found > burnt.mean() * 1.5
        assert torch.all(lit.sum((2, 3, 4)) == 25 * shape[2])
        columns = lit.any(4).any(2).int().argmax(2)
        assert set(columns.unique().tolist()) == ({0, 1} if shape == GREY else {0, 1, 25, 26})
        assert not found[:, :, -1].any()
        assert not found[:, :, :, -1].any()


def test_an_image_does_not_depend_on_its_company() -> None:
    pixels = images(COLOUR, dtype=torch.float32)
    together = augment(pixels, COLOUR, CounterRng(KEYS))
    for m in range(len(KEYS)):
        assert torch.equal(together[m], augment(pixels[m : m + 1], COLOUR, CounterRng(KEYS[m : m + 1]))[0])
    fewer = augment(pixels[:, :7], COLOUR, CounterRng(KEYS))
    assert torch.equal(together[:, :7], fewer)


def test_images_are_changed_in_training_alone() -> None:
    architecture = Architecture("mlp1", GREY, 10)
    tensors = {name: torch.from_numpy(values)[None] for name, values in initial(architecture.weights, 0).items()}
    pixels = (images(GREY)[:1] * 255).to(torch.uint8)
    batch = Batch(pixels, torch.zeros(1, 40, dtype=torch.int64), Mode(training=True, draws=CounterRng(KEYS[:1])))
    plain, augmenting = CrossEntropy(architecture), CrossEntropy(architecture, augmentation=True)
    assert not torch.equal(plain.losses(tensors, batch), augmenting.losses(tensors, batch))
    judged = Batch(batch.pixels, batch.labels, Mode())
    assert torch.equal(plain.evaluate_rows(tensors, judged)[0], augmenting.evaluate_rows(tensors, judged)[0])
    shares = torch.full((40,), 1 / 40)
    parts = {name: tensor[0] for name, tensor in tensors.items()}
    assert plain.manual_gradient(parts, pixels[0], batch.labels[0], shares, CounterRng(KEYS[:1])) is not None
    assert augmenting.manual_gradient(parts, pixels[0], batch.labels[0], shares, CounterRng(KEYS[:1])) is None
