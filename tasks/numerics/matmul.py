"""The three matrix products of a dense layer, each computed by the fastest library that is exact on this device.

On a GPU, the products of many models are a single operation. On a CPU, they are computed model by model, which is not
slower and makes a model's bits independent of the number of models.

For float32 on a CPU with AVX-512, the fastest library is oneDNN. torch's default, MKL, is limited to AVX2 on non-Intel
processors and runs at half the rate there (103 against 239 GF/s on one Zen 5 core). The choice depends only on the
machine, not on measured times, so the same machine always rounds in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

# Below this number of rows, inputs or outputs, setting up a oneDNN product takes more time than it saves.
NARROW = 64


@dataclass(frozen=True)
class MatMul:
    """Products of rows (n, inputs), gradients (n, outputs) and a weight (outputs, inputs).

    `stacked` products take the arguments of several models, (models, ...), in a single operation.
    """

    name: str
    affine: Callable[[Tensor, Tensor, Tensor, bool], Tensor]  # rows, weight, bias, relu -> (n, outputs)
    weight_gradient: Callable[[Tensor, Tensor], Tensor]  # gradients, rows -> (outputs, inputs)
    row_gradient: Callable[[Tensor, Tensor], Tensor]  # gradients, weight -> (n, inputs)
    stacked: bool = False


def products(device: torch.device, dtype: torch.dtype) -> MatMul:
    """Return the products for tensors with this device and dtype. If they are `stacked`, they take several models."""
    if device.type == "cpu":
        return single_products(device, dtype)
    return BATCHED


def single_products(device: torch.device, dtype: torch.dtype) -> MatMul:
    """Return the products for matrices (n, inputs) and (outputs, inputs) with this device and dtype."""
    if device.type == "cpu" and dtype == torch.float32 and onednn_is_faster():
        return ONEDNN
    return TORCH


@cache
def onednn_is_faster() -> bool:
    """Return whether this CPU has AVX-512 and torch has oneDNN with the product that its compiler calls."""
    wide: bool = torch.backends.cpu.get_cpu_capability() == "AVX512"
    built: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return wide and built and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _torch_affine(rows: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    sums = torch.addmm(bias, rows, weight.t())
    return sums.relu_() if relu else sums


def _torch_weight_gradient(gradients: Tensor, rows: Tensor) -> Tensor:
    return torch.mm(gradients.t(), rows)


def _torch_row_gradient(gradients: Tensor, weight: Tensor) -> Tensor:
    return torch.mm(gradients, weight)


def _onednn_affine(rows: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    # oneDNN's fused ReLU turns NaN into 0, which would hide a failed training.
    sums = onednn(rows, weight, bias)
    return sums.relu_() if relu else sums


def _onednn_weight_gradient(gradients: Tensor, rows: Tensor) -> Tensor:
    return onednn(gradients.t(), rows.t(), None)


def _onednn_row_gradient(gradients: Tensor, weight: Tensor) -> Tensor:
    return onednn(gradients, weight.t(), None)


def onednn(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return rows weight^T + bias."""
    if min(rows.shape[0], weight.shape[0], rows.shape[1]) < NARROW:
        if bias is None:
            return torch.mm(rows, weight.t())
        return torch.addmm(bias, rows, weight.t())
    sums: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return sums


def _batched_affine(rows: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    sums = torch.baddbmm(bias[:, None], rows, weight.mT)
    return sums.relu_() if relu else sums


def _batched_weight_gradient(gradients: Tensor, rows: Tensor) -> Tensor:
    return torch.bmm(gradients.mT, rows)


TORCH = MatMul("torch", _torch_affine, _torch_weight_gradient, _torch_row_gradient)
ONEDNN = MatMul("onednn", _onednn_affine, _onednn_weight_gradient, _onednn_row_gradient)
BATCHED = MatMul("batched", _batched_affine, _batched_weight_gradient, torch.bmm, stacked=True)
