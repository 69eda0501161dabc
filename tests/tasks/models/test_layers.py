"""Every layer of a stack of models compared with torch's modules, one model at a time, in float64."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tasks.models.counter_rng import CounterRng
from tasks.models.layers import (
    FAN_IN_UNIFORM,
    GLOROT,
    HE_NORMAL,
    ONE,
    ZERO,
    Layers,
    Mode,
    constant,
    initial,
    weights_of,
)
from tasks.numerics.matmul import BATCHED, TORCH, MatMul

MODELS = 3
ROWS = 5
Stack = dict[str, Tensor]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def side_by_side(images: Tensor) -> Tensor:
    """Images (models, rows, channels, height, width) as layers take them."""
    return images.transpose(0, 1).flatten(1, 2)


def apart(images: Tensor) -> Tensor:
    return images.unflatten(1, (MODELS, -1)).transpose(0, 1)


@pytest.mark.parametrize("by", [TORCH, BATCHED], ids=lambda by: by.name)
def test_dense_layer_equals_each_models_linear(by: MatMul) -> None:
    x = numbers(MODELS, ROWS, 7).requires_grad_()
    tensors = {"a.weight": numbers(MODELS, 4, 7, seed=1), "a.bias": numbers(MODELS, 4, seed=2)}
    for tensor in tensors.values():
        tensor.requires_grad_()
    y = Layers(tensors, by=by).dense("a", x, 4, GLOROT)
    gradients = torch.autograd.grad(y.square().sum(), [x, *tensors.values()])
    expected = torch.stack(
        [nn.functional.linear(x[m], tensors["a.weight"][m], tensors["a.bias"][m]) for m in range(MODELS)]
    )
    torch.testing.assert_close(expected, y, atol=1e-13, rtol=0)
    for gradient, reference in zip(
        gradients, torch.autograd.grad(expected.square().sum(), [x, *tensors.values()]), strict=True
    ):
        torch.testing.assert_close(reference, gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_convolution_equals_each_models_own(transposed: bool, bias: bool) -> None:
    images = numbers(MODELS, ROWS, 2, 6, 6)
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    modules = []
    for _ in range(MODELS):
        modules.append(kind(2, 3, 4, stride=2, padding=1, bias=bias, dtype=torch.float64))
    tensors = {"a.weight": torch.stack([module.weight.detach() for module in modules])}
    if bias:
        tensors["a.bias"] = torch.stack([module.bias.detach() for module in modules])  # type: ignore[union-attr]
    layers = Layers(tensors)
    convolve = layers.transposed_conv if transposed else layers.conv
    y = convolve("a", side_by_side(images), 3, 4, GLOROT, stride=2, padding=1, bias=ZERO if bias else None)
    expected = torch.stack([module(x) for module, x in zip(modules, images, strict=True)])
    torch.testing.assert_close(expected, apart(y), atol=1e-13, rtol=0)


def normalised_by_torch(
    values: Tensor, real: Tensor | None, image: bool, training: bool
) -> tuple[list[Tensor], list[nn.BatchNorm1d | nn.BatchNorm2d]]:
    modules: list[nn.BatchNorm1d | nn.BatchNorm2d] = []
    results = []
    for m, x in enumerate(values):
        module = (nn.BatchNorm2d if image else nn.BatchNorm1d)(values.shape[2], eps=1e-3, momentum=0.1).double()
        module.running_mean.copy_(numbers(values.shape[2], seed=m))  # type: ignore[union-attr]
        module.weight.data.copy_(numbers(values.shape[2], seed=10 + m))
        module.bias.data.copy_(numbers(values.shape[2], seed=20 + m))
        module.train(training)
        modules.append(module)
        results.append(module(x if real is None else x[real[m].bool()]).detach())
    return results, modules


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("image", [True, False])
def test_batch_norm_covers_real_rows_of_each_model(image: bool, training: bool, padded: bool) -> None:
    values = numbers(MODELS, ROWS, 4, 3, 2) if image else numbers(MODELS, ROWS, 4)
    real = None
    if padded:
        real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    expected, modules = normalised_by_torch(values, real, image, training)
    tensors = {
        "n.gamma": torch.stack([numbers(4, seed=10 + m) for m in range(MODELS)]),
        "n.beta": torch.stack([numbers(4, seed=20 + m) for m in range(MODELS)]),
        "n.mean": torch.stack([numbers(4, seed=m) for m in range(MODELS)]),
        "n.variance": torch.ones(MODELS, 4, dtype=torch.float64),
    }
    layers = Layers(tensors, Mode(training, real=real))
    y = layers.batch_norm("n", side_by_side(values) if image else values, momentum=0.1, epsilon=1e-3)
    normalised = apart(y) if image else y
    for m in range(MODELS):
        rows = slice(None) if real is None else real[m].bool()
        torch.testing.assert_close(expected[m], normalised[m][rows], atol=1e-12, rtol=0)
        torch.testing.assert_close(modules[m].running_mean, tensors["n.mean"][m], atol=1e-13, rtol=0)
        torch.testing.assert_close(modules[m].running_var, tensors["n.variance"][m], atol=1e-13, rtol=0)


def test_single_row_is_normalised_to_its_shift() -> None:
    tensors = {"n.gamma": torch.ones(1, 2), "n.beta": torch.tensor([[3.0, 4.0]])}
    tensors |= {"n.mean": torch.zeros(1, 2), "n.variance": torch.ones(1, 2)}
    y = Layers(tensors, Mode(training=True)).batch_norm("n", torch.randn(1, 1, 2), momentum=0.5, epsilon=1e-3)
    assert y.tolist() == [[[3, 4]]]
    assert tensors["n.variance"].tolist() == [[0.5, 0.5]]  # one number has no unbiased variance: 0 is used


def test_model_without_real_rows_keeps_statistics() -> None:
    real = torch.tensor([[1, 1], [0, 0]])
    tensors = {}
    for name in ("n.gamma", "n.beta", "n.mean", "n.variance"):
        tensors[name] = torch.ones(2, 1)
    Layers(tensors, Mode(training=True, real=real)).batch_norm("n", torch.randn(2, 2, 1), momentum=0.5, epsilon=1e-3)
    assert [bool(mean != 1) for mean in tensors["n.mean"]] == [True, False]
    assert tensors["n.variance"][1] == 1


def test_gradients_of_batch_norm_cover_only_real_rows() -> None:
    x = numbers(1, ROWS, 4).requires_grad_()
    real = torch.tensor([[1, 1, 1, 0, 0]])
    tensors = {"n.gamma": torch.ones(1, 4).double(), "n.beta": torch.zeros(1, 4).double()}
    tensors |= {"n.mean": torch.zeros(1, 4).double(), "n.variance": torch.ones(1, 4).double()}
    y = Layers(tensors, Mode(training=True, real=real)).batch_norm("n", x, momentum=0.1, epsilon=1e-3)
    (gradient,) = torch.autograd.grad((y * numbers(1, ROWS, 4, seed=3) * real[..., None]).sum(), x)
    real_rows = x.detach()[0, :3].clone().requires_grad_()
    expected = nn.functional.batch_norm(real_rows, None, None, training=True, eps=1e-3)
    (reference,) = torch.autograd.grad((expected * numbers(1, ROWS, 4, seed=3)[0, :3]).sum(), real_rows)
    torch.testing.assert_close(reference, gradient[0, :3], atol=1e-12, rtol=0)
    assert not gradient[0, 3:].any()


@pytest.mark.parametrize("shape", [(MODELS, ROWS, 8), (ROWS, MODELS * 2, 3, 4)])
def test_dropout_is_separate_and_only_in_training(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    keys = torch.tensor([5, 6, 7])
    tensors = {"w": torch.zeros(MODELS, 1)}
    together = Layers(tensors, Mode(training=True, draws=CounterRng(keys))).dropout(x, 0.25)
    assert sorted(together.unique().tolist()) == [0, pytest.approx(4 / 3)]
    masks = together if len(shape) == 3 else apart(together)
    for m in range(MODELS):
        one = Layers({"w": torch.zeros(1, 1)}, Mode(training=True, draws=CounterRng(keys[m : m + 1])))
        alone = one.dropout(x[m : m + 1] if len(shape) == 3 else x[:, 2 * m : 2 * m + 2], 0.25)
        assert torch.equal(masks[m], alone[0] if len(shape) == 3 else alone)
    assert torch.equal(x, Layers(tensors).dropout(x, 0.25))


def test_dropouts_of_a_network_differ() -> None:
    layers = Layers({"w": torch.zeros(1, 1)}, Mode(training=True, draws=CounterRng(torch.tensor([5]))))
    x = torch.ones(1, 4, 64)
    assert not torch.equal(layers.dropout(x, 0.5), layers.dropout(x, 0.5))


def test_images_and_flat_values_convert_exactly() -> None:
    images = numbers(MODELS, ROWS, 2, 3, 4)
    layers = Layers({"w": torch.zeros(MODELS, 1)})
    flat = layers.flat(side_by_side(images))
    assert torch.equal(images.flatten(2), flat)
    assert torch.equal(side_by_side(images), layers.images(flat, (2, 3, 4)))
    one = Layers({"w": torch.zeros(1, 1)})
    assert torch.equal(images[0].flatten(1)[None], one.flat(images[0]))


def small(layers: Layers, x: Tensor) -> Tensor:
    x = layers.batch_norm("norm", layers.conv("conv", x, 4, 3, HE_NORMAL), momentum=0.1, epsilon=1e-5)
    return layers.dense("out", layers.flat(x.relu()), 2, FAN_IN_UNIFORM, bias=constant(0.5))


def test_weights_are_listed_without_computation() -> None:
    weights = weights_of(small, (1, 8, 8))
    assert {name: weight.shape for name, weight in weights.items()} == {
        "conv.weight": (4, 1, 3, 3),
        "conv.bias": (4,),
        "norm.gamma": (4,),
        "norm.beta": (4,),
        "norm.mean": (4,),
        "norm.variance": (4,),
        "out.weight": (2, 144),
        "out.bias": (2,),
    }
    assert [name for name, weight in weights.items() if not weight.learned] == ["norm.mean", "norm.variance"]


def test_listing_weights_loads_no_compiler() -> None:
    script = """
import sys
from tasks.models.networks import DEFINITIONS, Architecture
from tasks.models.vae import celeba, cifar10, mnist

classifiers = [Architecture(name, (32, 32, 3), 10) for name in DEFINITIONS]
told = [len(each.weights) for each in (*classifiers, mnist(), cifar10(), celeba())]
print(min(told) > 0, [name for name in ("torch._dynamo", "sympy", "triton") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_weights_start_as_declared_and_follow_seed() -> None:
    weights = weights_of(small, (1, 8, 8))
    start = initial(weights, 3)
    assert {name: weight.shape for name, weight in weights.items()} == {n: values.shape for n, values in start.items()}
    assert [
        float(start[name].mean())
        for name in ("conv.bias", "norm.gamma", "norm.beta", "norm.mean", "norm.variance", "out.bias")
    ] == [0, 1, 0, 0, 1, 0.5]
    assert np.abs(start["out.weight"]).max() <= 1 / np.sqrt(144)
    np.testing.assert_array_equal(start["conv.weight"], initial(weights, 3)["conv.weight"])
    assert not np.array_equal(start["conv.weight"], initial(weights, 4)["conv.weight"])


@pytest.mark.parametrize(
    ("start", "variance"),
    [(GLOROT, 2 / (300 + 500)), (HE_NORMAL, 2 / 300), (FAN_IN_UNIFORM, 1 / (3 * 300))],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
def test_start_has_the_published_variance(start: object, variance: float) -> None:
    draw: Callable[..., np.ndarray] = start.draw  # type: ignore[attr-defined]
    values = draw(np.random.default_rng(0), (500, 300), 300, 500)
    assert abs(values.var() / variance - 1) < 0.02
    assert abs(values.mean()) < 5 * np.sqrt(variance / values.size)


def test_tensor_of_another_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"a\.weight is 4x6; this network has it 4x7"):
        Layers({"a.weight": torch.zeros(1, 4, 6), "a.bias": torch.zeros(1, 4)}).dense("a", torch.zeros(1, 2, 7), 4, ONE)


def test_two_layers_of_one_name_are_refused() -> None:
    def twice(layers: Layers, x: Tensor) -> Tensor:
        return layers.dense("a", layers.dense("a", layers.flat(x), 4, ONE), 3, ONE)

    with pytest.raises(ValueError, match=r"two layers of the network are called a\.weight"):
        weights_of(twice, (1, 2, 2))
