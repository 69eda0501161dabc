"""Encoders as torch modules (backbone, projector and optional classifier), and their embeddings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.contract.extras import TIMM
from tasks.numerics.seeds import drawn_from
from tasks.self_supervised.pretraining_config import (
    RESNETS,
    TRANSFORMERS,
    EncoderConfig,
    Pretraining,
    encoder_of_pretraining,
    small_resnet_width,
)
from tasks.self_supervised.snapshots import Weights
from tasks.worker import hardware


class Block(nn.Module):
    """A basic residual block: two convolutions with batch norm, and a shortcut."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(before, channels, 3, stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = convolution(channels, channels, 3, 1)
        self.norm2 = nn.BatchNorm2d(channels)
        is_same_shape = before == channels and stride == 1
        self.shortcut = (
            nn.Identity()
            if is_same_shape
            else nn.Sequential(convolution(before, channels, 1, stride), nn.BatchNorm2d(channels))
        )

    def forward(self, x: Tensor) -> Tensor:
        inside: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu_()))
        return inside.add(self.shortcut(x)).relu_()


class SmallResNet(nn.Module):
    """A network that maps images (n, 3, height, width) of 32 x 32 to (n, 4 width).

    It can be trained in minutes without a GPU. A 3x3 stem with stride 2, then three basic blocks with `width`, 2
    `width` and 4 `width` channels, the last two with stride 2, each with a 1x1 shortcut if the shape changes, and the
    mean over positions. He et al. 2016, "Deep residual learning for image recognition", figure 5 (left), option B.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = 4 * width
        self.stem = convolution(3, width, 3, 2)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))

    def forward(self, x: Tensor) -> Tensor:
        places: Tensor = self.blocks(self.norm(self.stem(x)).relu_())
        return places.mean((2, 3))


class NarrowShortcut(nn.Conv2d):
    """A 1x1 convolution with stride 2 that selects every second position before the convolution.

    With a strided convolution, the gradient is written out of bounds on processors with AVX2 but without AVX-512, if
    there are fewer than 8 input channels in channels-last format (oneDNN 3.13, observed with torch 2.15).
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x[:, :, :: self.stride[0], :: self.stride[1]], self.weight)


def convolution(before: int, channels: int, kernel: int, stride: int) -> nn.Conv2d:
    """Return a convolution whose initial weights are He normal by fan-out, as in torchvision's residual networks."""
    kind = NarrowShortcut if kernel == 1 and stride > 1 and before < 8 else nn.Conv2d
    layer = kind(before, channels, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Network(nn.Module):
    """A backbone and the layers of its projector.

    Layer 0 is the backbone, and layer `depth` the last. Each projector layer is linear with batch norm and ReLU, except
    that the last one is linear without a bias. With `classes`, there is one more layer: batch norm, ReLU and a linear
    map.
    """

    def __init__(self, config: EncoderConfig, classes: int = 0) -> None:
        super().__init__()
        self.backbone, self.features = backbone(config.backbone, config.resolution)
        self.projector = perceptron(self.features, config.projector)
        self.classifier: nn.Module | None = None
        if classes:
            width = config.projector[-1]
            self.classifier = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, classes))

    @property
    def depth(self) -> int:
        return len(self.projector) + (self.classifier is not None)

    def forward(self, images: Tensor) -> Tensor:
        """Return the last layer's embeddings (n, d) of normalised images (n, 3, r, r)."""
        x: Tensor = self.projector(self.backbone(images))
        return x if self.classifier is None else self.classifier(x)

    def layers(self, images: Tensor) -> list[Tensor]:
        """Return the embeddings of every layer, starting with the backbone."""
        embeddings = [self.backbone(images)]
        above = [*self.projector, *([] if self.classifier is None else [self.classifier])]
        for layer in above:
            embeddings.append(layer(embeddings[-1]))
        return embeddings


def perceptron(features: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Return linear layers of these widths with batch norm and ReLU between them. The last layer has no bias."""
    sizes = [features, *widths]
    inner = []
    for before, width in itertools.pairwise(sizes[:-1]):
        inner.append(nn.Sequential(nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True)))
    return nn.Sequential(*inner, nn.Linear(sizes[-2], sizes[-1], bias=False))


def backbone(name: str, resolution: int) -> tuple[nn.Module, int]:
    """Return the backbone of this name with random weights, and its number of features.

    Raises ValueError if it needs timm and timm is not installed.
    """
    if name in RESNETS:
        import torchvision

        network: Any = getattr(torchvision.models, name)(weights=None)
        features = int(network.fc.in_features)
        network.fc = nn.Identity()
        return network, features
    if name in TRANSFORMERS:
        return transformer(TRANSFORMERS[name], resolution)
    small = SmallResNet(small_resnet_width(name))
    return small, small.features


def transformer(name: str, resolution: int) -> tuple[nn.Module, int]:
    """Return timm's vision transformer of this name, up to the class token after the last norm."""
    try:
        import timm
    except ImportError:
        raise ValueError(f"a vision transformer needs {TIMM.advice}") from None
    network = timm.create_model(name, pretrained=False, num_classes=0, img_size=resolution, global_pool="token")
    return cast(nn.Module, network), int(network.num_features)


def initial_network(config: EncoderConfig, classes: int, seed: int) -> Network:
    """Return the network on the CPU. Its initial weights depend only on the seed."""
    with drawn_from(seed, "initial weights", device=torch.device("cpu")):
        return Network(config, classes)


def unset(config: EncoderConfig, classes: int) -> Network:
    """Return the network with uninitialised weights, since drawing those of a large network takes seconds."""
    with torch.device("meta"):
        network = Network(config, classes)
    return network.to_empty(device="cpu")


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return all tensors that embeddings depend on, by name: parameters, and means and variances of batch norm."""
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return parameters | {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}


# of ImageNet's channels, in [0, 1]
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
PIXELS = {"cpu": 32 * 32 * 32, "cuda": 256 * 224 * 224}  # pixels per batch
MOST = 1024  # images per batch
CLASSIFIER = "classifier.2.weight"


class Encoder:
    """An encoder in evaluation mode, in which batch norm uses the means and variances from training."""

    def __init__(self, network: Network, device: torch.device) -> None:
        self.network = network.to(device).to(memory_format=torch.channels_last).eval()
        self.device = device

    @property
    def depth(self) -> int:
        """The number of the last layer, which for a supervised model is that of the logits."""
        return self.network.depth

    def embed(self, images: NDArray[np.uint8], layers: Sequence[int]) -> dict[int, Tensor]:
        """Return the embeddings of images (n, r, r, 3) by layer, each (n, d) float32, on the CPU.

        Layer 0 is the backbone, and layer `depth` the last. Images are normalised as in training. Batches have a
        constant size, which bounds memory and makes an image's embedding independent of the number of images. Raises
        ValueError for an unknown layer.
        """
        for layer in layers:
            if not 0 <= layer <= self.depth:
                raise ValueError(f"layer is {layer}; this encoder has the layers 0 (backbone) to {self.depth}")
        height, width = images.shape[1:3]
        batch_size = max(1, min(MOST, PIXELS[self.device.type] // (height * width)))
        parts: dict[int, list[Tensor]] = {layer: [] for layer in layers}
        with hardware.exactly(self.device), torch.inference_mode():
            for start in range(0, max(1, len(images)), batch_size):
                batch = images[start : start + batch_size]
                by_layer = self._layers(_pad_images(batch, batch_size))
                for layer, layer_parts in parts.items():
                    layer_parts.append(by_layer[layer][: len(batch)].float().cpu())
        return {layer: torch.cat(layer_parts).clone() for layer, layer_parts in parts.items()}

    def _layers(self, images: NDArray[np.uint8]) -> list[Tensor]:
        pixels = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2)  # already in channels-last format
        return self.network.layers(normalise(pixels.float() / 255))


Embed = Callable[[NDArray[np.uint8], Sequence[int]], Mapping[int, ArrayLike]]


def collect_embeddings(
    embed: Embed, layers: Sequence[int], portions: Iterable[NDArray[np.uint8]], count: int
) -> dict[int, NDArray[np.float32]]:
    """Collect the embeddings of `count` images that arrive in portions, by layer, each (count, d).

    Results are written in place, because concatenating them would double the memory.
    """
    embeddings: dict[int, NDArray[np.float32]] = {}
    start = 0
    for images in portions:
        for layer, values in embed(images, layers).items():
            rows = np.asarray(values, np.float32)
            if layer not in embeddings:
                embeddings[layer] = np.empty((count, rows.shape[1]), np.float32)
            embeddings[layer][start : start + len(images)] = rows
        start += len(images)
    return embeddings


def measure_widths(embed: Embed, layers: Sequence[int], images: NDArray[np.uint8]) -> dict[int, int]:
    """Return the columns of each layer's embeddings, from those of the first of these images."""
    by_layer = embed(images[:1], layers)
    return {layer: np.asarray(by_layer[layer]).shape[1] for layer in layers}


def _pad_images(images: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """Pad the images to this number with black ones."""
    if len(images) == count:
        return np.ascontiguousarray(images)
    return np.concatenate([images, np.zeros((count - len(images), *images.shape[1:]), np.uint8)])


def normalise(images: Tensor) -> Tensor:
    """Standardise images (n, 3, h, w) in [0, 1] with ImageNet's mean and standard deviation."""
    mean = images.new_tensor(MEAN).view(3, 1, 1)
    deviation = images.new_tensor(DEVIATION).view(3, 1, 1)
    return (images - mean) / deviation


def encoder(config: Pretraining | EncoderConfig, weights: Weights, device: torch.device) -> Encoder:
    """Return the encoder with the weights of a snapshot. Raises ValueError if they belong to another network."""
    if isinstance(config, Pretraining):
        built = encoder_of_pretraining(config)
    else:
        built = config
    classes = len(weights[CLASSIFIER]) if CLASSIFIER in weights else 0
    network = unset(built, classes)
    load(network, weights, f"{built.backbone} with a projector of {built.projector}")
    return Encoder(network, device)


def load(network: Network, weights: Weights, description: str) -> None:
    """Load these weights into the network. Raises ValueError if names or shapes differ."""
    own_tensors = tensors(network)
    shapes: Mapping[str, tuple[int, ...]] = {name: tuple(tensor.shape) for name, tensor in own_tensors.items()}
    given_shapes = {name: values.shape for name, values in weights.items()}
    differing = sorted(
        name for name in shapes.keys() | given_shapes.keys() if shapes.get(name) != given_shapes.get(name)
    )
    if differing:
        name = differing[0]
        raise ValueError(
            f"weights of {description}: {name} is {given_shapes.get(name, 'absent')}, not {shapes.get(name, 'known')}"
        )
    with torch.no_grad():
        for name, tensor in own_tensors.items():
            tensor.copy_(torch.from_numpy(np.array(weights[name])))
