"""ResNet-18 for small images: a 3x3 stem without pooling, then 64, 128, 256 and 512 channels, two basic blocks each.

He et al. 2016, "Deep residual learning for image recognition", table 1 and figure 5 (left); where the shape changes,
the shortcut is a 1x1 convolution with batch norm (option B). The stem is the usual one for 32x32 images: theirs, a 7x7
convolution by steps of 2 and max pooling, would leave 8x8. 11,173,962 parameters for ten classes in colour.

Convolutions start He normal, the last layer and batch norm as torch's. Batch norm belongs to the network, and it has no
dropout.
"""

from __future__ import annotations

from torch import Tensor

from tasks.models.layers import FAN_IN_UNIFORM, HE_NORMAL, Layers
from tasks.models.regularisers import PLAIN, Regularisers

CHANNELS = (64, 128, 256, 512)


def network(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:  # noqa: ARG001
    """The logits (models, rows, classes) of images."""
    x = convolve(layers, "stem", x, CHANNELS[0], 3, 1).relu()
    before = CHANNELS[0]
    for stage, channels in enumerate(CHANNELS, 1):
        for number in (1, 2):
            name = f"stage{stage}.block{number}"
            stride = 2 if stage > 1 and number == 1 else 1
            inside = convolve(layers, f"{name}.conv1", x, channels, 3, stride).relu()
            inside = convolve(layers, f"{name}.conv2", inside, channels, 3, 1)
            if before != channels:
                x = convolve(layers, f"{name}.shortcut", x, channels, 1, stride)
            x, before = (x + inside).relu(), channels
    x = x.mean((2, 3), keepdim=True)
    return layers.dense("dense", layers.flat(x), classes, FAN_IN_UNIFORM, bias=FAN_IN_UNIFORM)


def convolve(layers: Layers, name: str, x: Tensor, channels: int, kernel: int, stride: int) -> Tensor:
    """Convolution and batch norm."""
    x = layers.conv(name, x, channels, kernel, HE_NORMAL, stride=stride, padding=kernel // 2, bias=None)
    return layers.batch_norm(f"{name}.norm", x, momentum=0.1, epsilon=1e-5)
