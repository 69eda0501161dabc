"""The hand-written gradients of a plain network compared with torch's."""

from __future__ import annotations

import pytest
import torch

from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Layers
from tasks.models.networks import Architecture
from tasks.training.cross_entropy import CrossEntropy

ROWS = 12
CLASSES = 3


@pytest.mark.parametrize("shape", [(4, 4, 1), (4, 4, 3), (3, 5, 3)])
def test_manual_gradients_equal_autograd(shape: tuple[int, int, int]) -> None:
    network = Architecture("mlp1", shape, CLASSES)
    drawing = torch.Generator().manual_seed(0)
    height, width, channels = shape
    pixels = torch.randint(256, (ROWS, height * width * channels), dtype=torch.uint8, generator=drawing)
    labels = torch.arange(ROWS) % CLASSES
    shares = torch.rand(ROWS, generator=drawing, dtype=torch.float64)
    weights = {name: torch.from_numpy(values).double() for name, values in network.initial(1).items()}
    manual = CrossEntropy(network).manual_gradient(weights, pixels, labels, shares, CounterRng(torch.tensor([0])))
    assert manual is not None

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    stacked = {name: tensor[None] for name, tensor in leaves.items()}
    logits = network.logits(Layers(stacked), pixels.double()[None] / 255)[0]
    loss = (torch.nn.functional.cross_entropy(logits, labels, reduction="none") * shares).sum()
    loss.backward()
    assert float(loss) == pytest.approx(float(manual[0]), rel=1e-12)
    for (name, leaf), gradient in zip(leaves.items(), manual[1], strict=True):
        assert leaf.grad is not None
        torch.testing.assert_close(gradient, leaf.grad, rtol=1e-10, atol=1e-12, msg=name)
