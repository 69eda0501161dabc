"""A small residual network for images of 32 x 32, that a processor without a GPU trains in minutes.

A 3x3 stem by steps of 2, then three basic blocks of `width`, 2 `width` and 4 `width` channels, the last two by steps of
2, each with a 1x1 shortcut where the shape changes, and the mean over places. He et al. 2016, "Deep residual learning
for image recognition", figure 5 (left), option B.
"""

from __future__ import annotations

from torch import Tensor, nn


class Block(nn.Module):
    """A basic block: two convolutions with batch norm beside a shortcut."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(before, channels, 3, stride), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = convolution(channels, channels, 3, 1), nn.BatchNorm2d(channels)
        same = before == channels and stride == 1
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(convolution(before, channels, 1, stride), nn.BatchNorm2d(channels))
        )

    def forward(self, x: Tensor) -> Tensor:
        inside: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu_()))
        return inside.add(self.shortcut(x)).relu_()


class SmallResNet(nn.Module):
    """Images (n, 3, height, width) to (n, 4 width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = 4 * width
        self.stem, self.norm = convolution(3, width, 3, 2), nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))

    def forward(self, x: Tensor) -> Tensor:
        places: Tensor = self.blocks(self.norm(self.stem(x)).relu_())
        return places.mean((2, 3))


def convolution(before: int, channels: int, kernel: int, stride: int) -> nn.Conv2d:
    """A convolution that starts He normal, by what goes out, as torchvision's residual networks do."""
    made = nn.Conv2d(before, channels, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(made.weight, mode="fan_out", nonlinearity="relu")
    return made
