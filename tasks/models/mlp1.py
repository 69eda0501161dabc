"""The fully connected network mlp1: 512, 256 and 128 units with ReLU, then a logit per class.

Hartley & Tsaftaris, "Unintended memorisation of unique features in neural networks", appendix A. Pixels enter as
[0, 1]. Weights are (outputs, inputs), named dense1.weight, dense1.bias to dense4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks import seeds
from tasks.models.products import Products, products
from tasks.models.weights import Weights
from tasks.threads import threads

HIDDEN = (512, 256, 128)
ROWS_AT_ONCE = 512  # activations of that many rows stay in a core's cache

Layers = Sequence[tuple[Tensor, Tensor]]  # weight (outputs, inputs) and bias (outputs,) of each


def shapes(inputs: int, classes: int) -> dict[str, tuple[int, ...]]:
    """The shape of every weight, in the order of the layers."""
    widths = (inputs, *HIDDEN, classes)
    named: dict[str, tuple[int, ...]] = {}
    for number, (before, after) in enumerate(pairwise(widths), 1):
        named[f"dense{number}.weight"] = (after, before)
        named[f"dense{number}.bias"] = (after,)
    return named


def initial(seed: int, inputs: int, classes: int) -> dict[str, NDArray[np.float32]]:
    """Glorot uniform weights and zero biases, the same on every device.

    U(-a, a) with a = sqrt(6 / (inputs + outputs)) of the layer. Glorot & Bengio 2010, eq. 16.
    """
    stream = seeds.generator(seed, "initial weights")
    weights = {}
    for name, shape in shapes(inputs, classes).items():
        limit = math.sqrt(6 / sum(shape)) if name.endswith("weight") else 0.0
        values = stream.uniform(-limit, limit, shape) if limit else np.zeros(shape)
        weights[name] = values.astype(np.float32)
    return weights


def layers(tensors: Mapping[str, Tensor]) -> Layers:
    """Weight and bias of each layer, first to last."""
    count = len(tensors) // 2
    return [(tensors[f"dense{number}.weight"], tensors[f"dense{number}.bias"]) for number in range(1, count + 1)]


def scaled(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers in [0, 1]."""
    return pixels.to(dtype).mul_(1 / 255)


def activations(weights: Layers, rows: Tensor, by: Products) -> list[Tensor]:
    """The rows (n, inputs), every hidden layer's values after ReLU, and the logits (n, classes)."""
    values = [rows]
    for number, (weight, bias) in enumerate(weights, 1):
        values.append(by.affine(values[-1], weight, bias, number < len(weights)))
    return values


def slopes(weights: Layers, values: Sequence[Tensor], slope: Tensor, by: Products) -> list[Tensor]:
    """Back-propagation: the loss's slope in every weight and bias, in the order of `shapes`.

    `values` are the activations of the rows and `slope` (n, classes) is the loss's slope in their logits. Nothing is
    computed for the rows themselves.
    """
    found: list[Tensor] = []
    for number in reversed(range(len(weights))):
        found += [slope.sum(0), by.weight_slope(slope, values[number])]
        if number:
            slope = by.row_slope(slope, weights[number][0])
            torch.ops.aten.threshold_backward.grad_input(slope, values[number], 0, grad_input=slope)
    return found[::-1]


def logits(weights: Weights, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The network's logits (n, classes) for images (n, h, w, c), on one CPU thread."""
    # Copied, because torch has no read-only tensors.
    tensors = {name: torch.from_numpy(np.array(values, np.float32)) for name, values in weights.items()}
    by = products(torch.device("cpu"), torch.float32)
    pixels = images.reshape(len(images), math.prod(images.shape[1:]))
    out = np.empty((len(images), len(weights["dense4.bias"])), np.float32)
    with threads(1), torch.inference_mode():
        network = layers(tensors)
        for start in range(0, len(pixels), ROWS_AT_ONCE):
            rows = scaled(torch.from_numpy(np.array(pixels[start : start + ROWS_AT_ONCE])), torch.float32)
            out[start : start + ROWS_AT_ONCE] = activations(network, rows, by)[-1].numpy()
    return out
