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
from tasks.models.regularisers import CONVOLUTIONAL, DENSE, PLAIN, Regularisers, activated

CHANNELS = (32, 64)


def network(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:
    """The logits (models, rows, classes) of images."""
    number = 0
    for channels in CHANNELS:
        for _ in range(2):
            number += 1
            x = layers.conv(f"conv{number}", x, channels, 3, GLOROT, bias=regularisers.bias)
            x = activated(layers, x, number, CONVOLUTIONAL, regularisers)
        x = functional.max_pool2d(x, 2)
    x = activated(
        layers,
        layers.dense("dense1", layers.flat(x), 1024, GLOROT, bias=regularisers.bias),
        number + 1,
        DENSE,
        regularisers,
    )
    return layers.dense("dense2", x, classes, GLOROT)
