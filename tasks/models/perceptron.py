"""A plain multilayer perceptron with its slopes written out: dense layers with ReLU between them.

Back-propagation by hand costs a CPU a fifth less than recording every operation for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tasks.models.matmul import Products

Perceptron = Sequence[tuple[Tensor, Tensor]]  # weight (outputs, inputs) and bias (outputs,) of each layer


def layers(tensors: Mapping[str, Tensor]) -> Perceptron:
    """Weight and bias of each layer, first to last."""
    count = len(tensors) // 2
    return [(tensors[f"dense{number}.weight"], tensors[f"dense{number}.bias"]) for number in range(1, count + 1)]


def activations(weights: Perceptron, rows: Tensor, by: Products) -> list[Tensor]:
    """The rows (n, inputs), every hidden layer's values after ReLU, and the logits (n, classes)."""
    values = [rows]
    for number, (weight, bias) in enumerate(weights, 1):
        values.append(by.affine(values[-1], weight, bias, number < len(weights)))
    return values


def slopes(weights: Perceptron, values: Sequence[Tensor], slope: Tensor, by: Products) -> list[Tensor]:
    """Back-propagation: the loss's slope in every weight and bias, in the order of the layers.

    `values` are the activations of the rows and `slope` (n, classes) is the loss's slope in their logits. Nothing is
    computed for the rows themselves.
    """
    return with_first(weights, values, slope, by)[0]


def with_first(
    weights: Perceptron, values: Sequence[Tensor], slope: Tensor, by: Products
) -> tuple[list[Tensor], Tensor]:
    """`slopes`, and the loss's slope in the first layer's sums (n, outputs), from which it goes on to the rows."""
    found: list[Tensor] = []
    for number in reversed(range(len(weights))):
        found += [slope.sum(0), by.weight_slope(slope, values[number])]
        if number:
            slope = by.row_slope(slope, weights[number][0])
            torch.ops.aten.threshold_backward.grad_input(slope, values[number], 0, grad_input=slope)
    return found[::-1], slope
