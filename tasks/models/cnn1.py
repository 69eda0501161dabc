"""The convolutional network cnn1, for 28x28 images: two convolutions, two dense layers of 128, a logit per class.

conv1 (32, 3x3), ReLU, conv2 (64, 3x3), max pooling 2x2, ReLU, dense1 (128), ReLU, dense2 (128), ReLU, dense3. Hartley &
Tsaftaris, "Unintended memorisation of unique features in neural networks", A.3, in Keras's setting: convolutions
without padding, pooling by steps of 2, Glorot uniform weights, biases from zero.

Batch norm stands directly before each activation (A.4), so that the second one follows the pooling, as A.3 prints the
order; dropout follows the activation. Without batch norm the order of pooling and ReLU makes no difference.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from tasks.models.layers import GLOROT, Layers
from tasks.models.regularisers import CONVOLUTIONAL, DENSE, PLAIN, Regularisers, activate
from tasks.models.widths import CNN1


def network(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0) -> Tensor:
    """The logits (models, rows, classes) of images."""
    hidden, bias = CNN1.times(width), regularisers.bias
    (first, second), dense = hidden.channels, hidden.units
    x = activate(layers, layers.conv("conv1", x, first, 3, GLOROT, bias=bias), 1, CONVOLUTIONAL, regularisers)
    x = functional.max_pool2d(layers.conv("conv2", x, second, 3, GLOROT, bias=bias), 2)
    x = layers.flat(activate(layers, x, 2, CONVOLUTIONAL, regularisers))
    x = activate(layers, layers.dense("dense1", x, dense[0], GLOROT, bias=bias), 3, DENSE, regularisers)
    x = activate(layers, layers.dense("dense2", x, dense[1], GLOROT, bias=bias), 4, DENSE, regularisers)
    return layers.dense("dense3", x, classes, GLOROT)
