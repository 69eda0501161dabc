"""The fully connected network mlp1: 512, 256 and 128 units with ReLU, then a logit per class.

Hartley & Tsaftaris, "Unintended memorisation of unique features in neural networks", A.3. Weights are (outputs,
inputs), named dense1.weight, dense1.bias to dense4.
"""

from __future__ import annotations

from torch import Tensor

from tasks.models.layers import GLOROT, Layers
from tasks.models.regularisers import DENSE, PLAIN, Regularisers, activate
from tasks.models.widths import MLP1

HIDDEN = MLP1.units


def network(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0) -> Tensor:
    """The logits (models, rows, classes) of images."""
    x = layers.flat(x)
    for number, units in enumerate(MLP1.times(width).units, 1):
        x = layers.dense(f"dense{number}", x, units, GLOROT, bias=regularisers.bias)
        x = activate(layers, x, number, DENSE, regularisers)
    return layers.dense(f"dense{len(HIDDEN) + 1}", x, classes, GLOROT)
