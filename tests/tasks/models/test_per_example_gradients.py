"""Every row's squared gradient compared with autograd, row by row."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tasks.models import per_example_gradients
from tasks.models.catalog import Regularisers
from tasks.models.layers import GLOROT, Layers
from tasks.models.networks import Architecture
from tasks.models.per_example_gradients import Measured, convolution_squares, squared_gradients, squared_row_gradients
from tasks.numerics.matmul import BATCHED, TORCH, MatMul
from tasks.worker.hardware import threads

GREY = (28, 28, 1)
COLOUR = (32, 32, 3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other on busy cores take four times as long."""
    with threads(1):
        yield


def stack(network: Architecture, models: int) -> dict[str, Tensor]:
    stream = np.random.default_rng(0)
    starts = [network.initial(seed) for seed in range(models)]
    tensors = {}
    for name in network.weights:
        values = np.stack([start[name] for start in starts]).astype(np.float64)
        tensors[name] = torch.from_numpy(values + stream.uniform(0, 0.1, values.shape) * (values[0].ndim == 1))
    return tensors


def rows(network: Architecture, models: int, count: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(1)
    pixels = torch.rand((models, count, int(np.prod(network.shape))), dtype=torch.float64, generator=stream)
    return pixels, torch.randint(network.classes, (models, count), generator=stream)


def one_by_one(network: Architecture, tensors: dict[str, Tensor], pixels: Tensor, labels: Tensor) -> Tensor:
    squares = torch.zeros(labels.shape, dtype=torch.float64)
    for m, row in np.ndindex(*labels.shape):
        one = {name: tensor[m : m + 1].clone() for name, tensor in tensors.items()}
        learned = [one[name].requires_grad_() for name, weight in network.weights.items() if weight.learned]
        logits = network.logits(Layers(one), pixels[m : m + 1, row : row + 1])[0]
        loss = functional.cross_entropy(logits, labels[m, row : row + 1])
        squares[m, row] = sum(float(gradient.square().sum()) for gradient in torch.autograd.grad(loss, learned))
    return squares


@pytest.mark.parametrize(
    ("name", "shape", "options", "models"),
    [
        ("mlp1", GREY, Regularisers(), 1),
        ("mlp1", GREY, Regularisers(dropout=True, batch_norm=True), 2),
        ("cnn1", GREY, Regularisers(), 1),
        ("cnn1", GREY, Regularisers(), 2),
        ("cnn2", COLOUR, Regularisers(dropout=True, batch_norm=True), 2),
        ("densenet100", (12, 12, 3), Regularisers(), 1),
        ("resnet18", (12, 12, 3), Regularisers(), 2),
    ],
)
def test_gradient_of_row_is_independent_of_batch(
    name: str, shape: tuple[int, int, int], options: Regularisers, models: int
) -> None:
    network = Architecture(name, shape, 5, options)
    tensors = stack(network, models)
    pixels, labels = rows(network, models, 3)
    expected = one_by_one(network, tensors, pixels, labels)
    squares = squared_row_gradients(network, tensors, pixels, labels)
    torch.testing.assert_close(expected, squares, atol=1e-12, rtol=1e-12)


USERS = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, classes, branching):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Linear(12, classes)
        self.branching = branching

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        if self.branching and x.sum().item() < 0:
            x = -x
        return self.out(nn.functional.dropout(x.flatten(1), 0.5, self.training))

def smooth(shape, classes):
    return Own(classes, False)

def branching(shape, classes):
    return Own(classes, True)
"""


@pytest.mark.parametrize("function", ["smooth", "branching"])
def test_gradients_of_users_modules_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    (tmp_path / "measured_module.py").write_text(USERS)
    monkeypatch.syspath_prepend(tmp_path)
    network = Architecture(f"measured_module:{function}", (4, 4, 1), 3)
    user_module = network.own
    assert user_module is not None
    assert (function == "smooth") == user_module.separable
    tensors = stack(network, 2)
    pixels, labels = rows(network, 2, 4)
    expected = one_by_one(network, tensors, pixels, labels)
    torch.testing.assert_close(
        expected, squared_row_gradients(network, tensors, pixels, labels), atol=1e-12, rtol=1e-12
    )


@pytest.mark.parametrize("by", [TORCH, BATCHED], ids=lambda by: by.name)
@pytest.mark.parametrize("together", [1, 2**26])
@pytest.mark.parametrize(("inputs", "size", "channels"), [(5, 3, 8), (5, 9, 2), (9, 18, 70), (16, 3, 64)])
def test_sum_over_positions_is_squared_gradient(
    monkeypatch: pytest.MonkeyPatch, inputs: int, size: int, channels: int, together: int, by: MatMul
) -> None:
    monkeypatch.setitem(per_example_gradients.SEEN, "cpu", together)
    images = torch.randn(4, inputs, size, size, dtype=torch.float64)
    weight = torch.randn(channels, inputs, 3, 3, dtype=torch.float64, requires_grad=True)
    expected = []
    for image in images:
        y = functional.conv2d(image[None], weight, stride=2, padding=1)
        (gradient,) = torch.autograd.grad(y.square().sum() / 2, weight)  # y is its own gradient
        expected.append(gradient.square().sum())
    y = functional.conv2d(images, weight, stride=2, padding=1).detach().flatten(2).mT
    torch.testing.assert_close(torch.stack(expected), convolution_squares(images, y, 3, 2, 1, by))


@pytest.mark.parametrize("name", ["mlp1", "cnn1"])
def test_gradients_are_measured_in_parts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    network = Architecture(name, GREY, 10)
    models = [network.initial(seed) for seed in range(2)]
    images = np.random.default_rng(0).integers(0, 256, (7, *GREY), dtype=np.uint8)
    labels = np.arange(7)
    squares = squared_gradients(network, models, images, labels)
    tensors = {}
    for n in network.weights:
        tensors[n] = torch.from_numpy(np.stack([model[n] for model in models])).double()
    pixels = torch.from_numpy(images / 255.0).flatten(1).expand(2, -1, -1)
    expected = one_by_one(network, tensors, pixels, torch.from_numpy(labels).expand(2, -1))
    np.testing.assert_allclose(expected.numpy(), squares, rtol=1e-4)
    monkeypatch.setitem(per_example_gradients.ROWS_AT_ONCE, "cpu", 3)
    np.testing.assert_allclose(squares, squared_gradients(network, models, images, labels), rtol=1e-5)
    np.testing.assert_array_equal(
        squared_gradients(network, models, images, labels)[1:], squared_gradients(network, models[1:], images, labels)
    )
    assert squared_gradients(network, models, images[:0], labels[:0]).shape == (2, 0)


def test_shared_weight_raises_an_error() -> None:
    layers = Measured({"a.weight": torch.eye(4)[None], "a.bias": torch.zeros(1, 4)}, (1, 2))
    x = layers.dense("a", torch.ones(1, 2, 4), 4, GLOROT)
    with pytest.raises(AssertionError, match="a weight that two layers share"):
        layers.dense("a", x, 4, GLOROT)
