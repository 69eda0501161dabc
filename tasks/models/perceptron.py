"""A plain multilayer perceptron with its gradients written out: dense layers with ReLU between them.

Back-propagation by hand costs a CPU a fifth less than recording every operation for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tasks.models.matmul import MatMul

Perceptron = Sequence[tuple[Tensor, Tensor]]  # weight (outputs, inputs) and bias (outputs,) of each layer


def layers(tensors: Mapping[str, Tensor]) -> Perceptron:
    """Weight and bias of each layer, first to last."""
    count = len(tensors) // 2
    return [(tensors[f"dense{number}.weight"], tensors[f"dense{number}.bias"]) for number in range(1, count + 1)]


def activations(weights: Perceptron, rows: Tensor, by: MatMul) -> list[Tensor]:
    """The rows (n, inputs), every hidden layer's values after ReLU, and the logits (n, classes)."""
    values = [rows]
    for number, (weight, bias) in enumerate(weights, 1):
        values.append(by.affine(values[-1], weight, bias, number < len(weights)))
    return values


def gradients(weights: Perceptron, values: Sequence[Tensor], gradient: Tensor, by: MatMul) -> list[Tensor]:
    """Back-propagation: the loss's gradient in every weight and bias, in the order of the layers.

    `values` are the activations of the rows and `gradient` (n, classes) is the loss's gradient in their logits. Nothing
    is computed for the rows themselves.
    """
    return with_first(weights, values, gradient, by)[0]


def with_first(
    weights: Perceptron, values: Sequence[Tensor], gradient: Tensor, by: MatMul
) -> tuple[list[Tensor], Tensor]:
    """`gradients`, and the loss's gradient in the first layer's sums (n, outputs), from which the rows' follow."""
    gradients: list[Tensor] = []
    for number in reversed(range(len(weights))):
        gradients += [gradient.sum(0), by.weight_gradient(gradient, values[number])]
        if number:
            gradient = by.row_gradient(gradient, weights[number][0])
            torch.ops.aten.threshold_backward.grad_input(gradient, values[number], 0, grad_input=gradient)
    return gradients[::-1], gradient
