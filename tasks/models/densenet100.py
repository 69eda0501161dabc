"""DenseNet-BC for small images: 100 layers, growth 12, three dense blocks, compression 0.5; 0.8 M parameters.

A convolution to 24 channels, then blocks of 16 bottlenecks: batch norm, ReLU, 1x1 convolution to 48 channels, batch
norm, ReLU, 3x3 convolution to 12, put beside what came in. Between blocks, batch norm, ReLU, a 1x1 convolution to half
the channels and average pooling by 2; at the end batch norm, ReLU, the mean over places and a logit per class. Huang et
al. 2018, "Densely connected convolutional networks", section 3 and table 2 (769,162 parameters for CIFAR-10).

Weights start He normal, as in the implementation that Hartley & Tsaftaris used (Atienza, "Advanced Deep Learning with
Keras"), with Keras's batch norm. That implementation also normalises the pixels and keeps them beside the first
convolution's values, has biases in its convolutions, and leaves out the ReLU of the transitions and the last batch
norm; here it is as published.

Batch norm belongs to the network. Dropout, where asked for, is the published one for training without augmentation:
0.2 after each convolution but the first (section 4.2).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from tasks.models.layers import HE_NORMAL, Layers
from tasks.models.regularisers import PLAIN, Regularisers

GROWTH, BOTTLENECK = 12, 48  # channels that a layer adds, and those inside it: four times as many
BLOCKS, DEEP = 3, 16  # (100 - 4) / (3 blocks of 2 convolutions per bottleneck)
COMPRESSION = 0.5
RATE = 0.2  # of dropout


def network(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:
    """The logits (models, rows, classes) of images."""
    channels = 2 * GROWTH
    x = layers.conv("stem", x, channels, 3, HE_NORMAL, padding=1, bias=None)
    for block in range(1, BLOCKS + 1):
        if block > 1:
            channels = int(channels * COMPRESSION)
            x = convolve(layers, f"transition{block - 1}", x, channels, 1, regularisers)
            x = functional.avg_pool2d(x, 2)
        for layer in range(1, DEEP + 1):
            name = f"block{block}.layer{layer}"
            inside = convolve(layers, f"{name}.narrow", x, BOTTLENECK, 1, regularisers)
            new = convolve(layers, f"{name}.grow", inside, GROWTH, 3, regularisers)
            x = layers.concatenate_channels(x, new)
            channels += GROWTH
    x = normalise(layers, "norm", x).mean((2, 3), keepdim=True)
    return layers.dense("dense", layers.flat(x), classes, HE_NORMAL)


def convolve(layers: Layers, name: str, x: Tensor, channels: int, kernel: int, regularisers: Regularisers) -> Tensor:
    """Batch norm, ReLU, convolution and, where asked for, dropout."""
    x = normalise(layers, f"{name}.norm", x)
    x = layers.conv(name, x, channels, kernel, HE_NORMAL, padding=kernel // 2, bias=None)
    return layers.dropout(x, RATE) if regularisers.dropout else x


def normalise(layers: Layers, name: str, x: Tensor) -> Tensor:
    return layers.batch_norm(name, x, momentum=0.01, epsilon=1e-3).relu()
