"""The fully connected network mlp1: 512, 256 and 128 units with ReLU, then a logit per class.

Hartley & Tsaftaris, "Unintended memorisation of unique features in neural networks", A.3. Weights are (outputs,
inputs), named dense1.weight, dense1.bias to dense4.
"""

from __future__ import annotations

from torch import Tensor

from tasks.models.layers import GLOROT, ZERO, Layers
from tasks.models.regularisers import PLAIN, Regularisers

HIDDEN = (512, 256, 128)


def network(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:
    """The logits (models, rows, classes) of images. Dropout 0.2 after each hidden layer's activation."""
    x = layers.flat(x)
    for number, units in enumerate(HIDDEN, 1):
        # Batch norm takes a bias away again: it would have no slope but rounding.
        x = layers.dense(f"dense{number}", x, units, GLOROT, bias=None if regularisers.batch_norm else ZERO)
        if regularisers.batch_norm:
            x = layers.batch_norm(f"norm{number}", x, momentum=0.01, epsilon=1e-3)
        x = x.relu()
        if regularisers.dropout:
            x = layers.dropout(x, 0.2)
    return layers.dense(f"dense{len(HIDDEN) + 1}", x, classes, GLOROT)
