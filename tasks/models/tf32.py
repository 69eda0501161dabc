"""Layers whose products and convolutions have TF32 factors and float32 sums.

TF32 has the exponents of float32 and 11 significant bits instead of 24. GPUs multiply in it natively. Elsewhere,
factors are rounded and then multiplied in float32, which yields the same numbers up to the order of sums and the way
in which a GPU rounds factors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tasks.models.layers import Layers
from tasks.worker.hardware import tf32_products

HALF = 1 << 12  # half a unit in the last place of TF32, as float32 bits
KEPT = ~((1 << 13) - 1)


def round_to_tf32(values: Tensor) -> Tensor:
    """Round float32 values to the nearest TF32 value, ties away from zero, as PTX's cvt.rna.tf32.f32 does."""
    bits = values.contiguous().view(torch.int32)
    return torch.where(values.isfinite(), ((bits + HALF) & KEPT).view(torch.float32), values)


class Tf32Layers(Layers):
    """Layers of float32 tensors that compute in TF32, without gradients. Biases are not rounded."""

    def apply_dense(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, /) -> Tensor:
        if x.is_cuda:
            with tf32_products():
                return super().apply_dense(name, x, weight, bias)
        return super().apply_dense(name, round_to_tf32(x), round_to_tf32(weight), bias)

    def apply_conv(
        self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, /
    ) -> Tensor:
        if x.is_cuda:
            with tf32_products():
                return super().apply_conv(name, x, weight, bias, stride, padding)
        return super().apply_conv(name, round_to_tf32(x), round_to_tf32(weight), bias, stride, padding)

    def apply_transposed_conv(
        self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, /
    ) -> Tensor:
        if x.is_cuda:
            with tf32_products():
                return super().apply_transposed_conv(name, x, weight, bias, stride, padding)
        return super().apply_transposed_conv(name, round_to_tf32(x), round_to_tf32(weight), bias, stride, padding)
