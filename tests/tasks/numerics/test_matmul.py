import torch

from tasks.numerics.matmul import BATCHED, ONEDNN, TORCH, MatMul, onednn_is_faster, products, single_products


def test_all_libraries_compute_the_same_products() -> None:
    rows = torch.randn((71, 784))
    gradients = torch.randn((71, 64))
    weight = torch.randn((64, 784))
    bias = torch.randn((64,))
    for relu in (False, True):
        expected = TORCH.affine(rows.double(), weight.double(), bias.double(), relu)
        assert_close_in_float32(expected, [by.affine(rows, weight, bias, relu) for by in available()])
        assert_close_in_float32(expected[None], [BATCHED.affine(rows[None], weight[None], bias[None], relu)])
    expected = gradients.double().t() @ rows.double()
    assert_close_in_float32(expected, [by.weight_gradient(gradients, rows) for by in available()])
    assert_close_in_float32(expected[None], [BATCHED.weight_gradient(gradients[None], rows[None])])
    expected = gradients.double() @ weight.double()
    assert_close_in_float32(expected, [by.row_gradient(gradients, weight) for by in available()])
    assert_close_in_float32(expected[None], [BATCHED.row_gradient(gradients[None], weight[None])])


def available() -> list[MatMul]:
    return [TORCH, ONEDNN] if onednn_is_faster() else [TORCH]


def assert_close_in_float32(expected: torch.Tensor, actual: list[torch.Tensor]) -> None:
    for product in actual:
        torch.testing.assert_close(expected, product.double(), atol=2e-4, rtol=1e-5)


def test_float64_uses_torch() -> None:
    assert products(torch.device("cpu"), torch.float64).name == "torch"


def test_matrices_of_one_model_use_single_products() -> None:
    for device in (torch.device("cpu"), torch.device("cuda")):
        product = single_products(device, torch.float32)
        assert not product.stacked, device
        assert product in available()
