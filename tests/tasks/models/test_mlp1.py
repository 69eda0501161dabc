import math

import numpy as np
import torch

from tasks.models import mlp1
from tasks.models.products import ONEDNN, TORCH, onednn_is_faster, products


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)


def torch_network(weights: dict[str, np.ndarray]) -> torch.nn.Sequential:
    modules: list[torch.nn.Module] = []
    for number in range(1, 5):
        outputs, inputs = weights[f"dense{number}.weight"].shape
        linear = torch.nn.Linear(inputs, outputs)
        linear.weight.data = torch.from_numpy(weights[f"dense{number}.weight"])
        linear.bias.data = torch.from_numpy(weights[f"dense{number}.bias"])
        modules += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


def test_layers_have_the_published_widths() -> None:
    expected = {
        "dense1.weight": (512, 784),
        "dense1.bias": (512,),
        "dense2.weight": (256, 512),
        "dense2.bias": (256,),
        "dense3.weight": (128, 256),
        "dense3.bias": (128,),
        "dense4.weight": (10, 128),
        "dense4.bias": (10,),
    }
    assert expected == {name: values.shape for name, values in mlp1.initial(0, 784, 10).items()}


def test_weights_start_uniform_within_glorots_limit_and_biases_at_zero() -> None:
    weights = mlp1.initial(3, 784, 10)
    limit = math.sqrt(6 / (784 + 512))
    first = weights["dense1.weight"]
    assert 0.999 * limit < np.abs(first).max() <= np.float32(limit)
    assert abs(first.std() - limit / math.sqrt(3)) < 0.01 * limit
    assert not any(values.any() for name, values in weights.items() if name.endswith("bias"))


def test_initial_weights_follow_the_seed() -> None:
    one, again, other = (mlp1.initial(seed, 784, 10)["dense2.weight"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_logits_are_those_of_the_same_network_in_torch() -> None:
    weights = mlp1.initial(0, 784, 10)
    weights["dense4.bias"] = np.arange(10, dtype=np.float32)
    pixels = images(mlp1.ROWS_AT_ONCE + 3)
    with torch.no_grad():
        expected = torch_network(weights)(torch.from_numpy(pixels.reshape(len(pixels), -1) / np.float32(255)))
    np.testing.assert_allclose(expected.numpy(), mlp1.logits(weights, pixels), atol=1e-5)


def test_logits_of_no_images_are_empty() -> None:
    assert (0, 10) == mlp1.logits(mlp1.initial(0, 784, 10), images(0)).shape


def test_logits_leave_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        mlp1.logits(mlp1.initial(0, 784, 10), images(1))
        assert 2 == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def test_both_libraries_compute_the_same_products() -> None:
    rows, slopes, weight, bias = (torch.randn(shape) for shape in ((37, 784), (37, 64), (64, 784), (64,)))
    for relu in (False, True):
        expected = TORCH.affine(rows.double(), weight.double(), bias.double(), relu)
        assert_close_in_float32(expected, [by.affine(rows, weight, bias, relu) for by in available()])
    assert_close_in_float32(slopes.double().t() @ rows.double(), [by.weight_slope(slopes, rows) for by in available()])
    assert_close_in_float32(slopes.double() @ weight.double(), [by.row_slope(slopes, weight) for by in available()])


def available() -> list:
    return [TORCH, ONEDNN] if onednn_is_faster() else [TORCH]


def assert_close_in_float32(expected: torch.Tensor, found: list[torch.Tensor]) -> None:
    for product in found:
        torch.testing.assert_close(expected, product.double(), atol=2e-4, rtol=1e-5)


def test_float64_is_left_to_torch() -> None:
    assert "torch" == products(torch.device("cpu"), torch.float64).name


def test_a_value_that_is_not_a_number_passes_through_every_layer() -> None:
    weights = mlp1.initial(0, 784, 10)
    weights["dense2.weight"][0, 0] = np.nan
    assert np.isnan(mlp1.logits(weights, images(2))).all()
