"""The convolutional network cnn2, for 32x32 colour images: two pairs of convolutions, a dense layer, a logit per class.

conv1, conv2 (32, 3x3), max pooling 2x2, conv3, conv4 (64, 3x3), max pooling 2x2, dense1 (1024), dense2, with ReLU after
each layer but the last. Hartley & Tsaftaris, "Unintended memorisation of unique features in neural networks", A.3, in
Keras's setting: convolutions without padding, pooling by steps of 2, Glorot uniform weights, biases from zero.

Batch norm stands directly before each activation and dropout directly after it, before the pooling (A.4).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from tasks.models.layers import GLOROT, Layers
from tasks.models.regularisers import CONVOLUTIONAL, DENSE, PLAIN, Regularisers, activate
from tasks.models.widths import CNN2


def network(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0) -> Tensor:
    """The logits (models, rows, classes) of images."""
    hidden, bias = CNN2.times(width), regularisers.bias
    for number, channels in enumerate(hidden.channels, 1):
        x = layers.conv(f"conv{number}", x, channels, 3, GLOROT, bias=bias)
        x = activate(layers, x, number, CONVOLUTIONAL, regularisers)
        if number in hidden.pooled:
            x = functional.max_pool2d(x, 2)
    (units,) = hidden.units
    x = layers.dense("dense1", layers.flat(x), units, GLOROT, bias=bias)
    x = activate(layers, x, len(hidden.channels) + 1, DENSE, regularisers)
    return layers.dense("dense2", x, classes, GLOROT)
