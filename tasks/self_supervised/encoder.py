"""The embeddings of a trained encoder, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tasks.self_supervised.networks import Network, tensors, unset
from tasks.self_supervised.pretraining_config import EncoderConfig, Pretraining, encoder_of_pretraining
from tasks.self_supervised.snapshots import Weights
from tasks.worker import hardware

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue, from 0 to 1
PIXELS = {"cpu": 32 * 32 * 32, "cuda": 256 * 224 * 224}  # embedded at once
MOST = 1024  # pictures embedded at once
CLASSIFIER = "classifier.2.weight"


class Encoder:
    """An encoder in evaluation mode: batch norm takes the means and variances of training."""

    def __init__(self, network: Network, place: torch.device) -> None:
        self.network, self.place = network.to(place).to(memory_format=torch.channels_last).eval(), place

    @property
    def depth(self) -> int:
        """The number of the last layer; a supervised model's is that of its logits."""
        return self.network.depth

    def embed(self, images: NDArray[np.uint8], layers: Sequence[int]) -> dict[int, Tensor]:
        """The embeddings of images (n, r, r, 3) by layer: each (n, d) float32, on the CPU.

        Layer 0 is the backbone, `depth` the last. Images are normalised as in training. A few are embedded at a time,
        always as many, so that memory is bounded and an image's embedding does not depend on how many there are.
        ValueError for a layer that there is not.
        """
        for layer in layers:
            if not 0 <= layer <= self.depth:
                raise ValueError(f"layer is {layer}; this encoder has the layers 0 (backbone) to {self.depth}")
        height, width = images.shape[1:3]
        together = max(1, min(MOST, PIXELS[self.place.type] // (height * width)))
        parts: dict[int, list[Tensor]] = {layer: [] for layer in layers}
        with hardware.exactly(self.place), torch.inference_mode():
            for start in range(0, max(1, len(images)), together):
                some = images[start : start + together]
                found = self._layers(pad_images(some, together))
                for layer, kept in parts.items():
                    kept.append(found[layer][: len(some)].float().cpu())
        return {layer: torch.cat(kept).clone() for layer, kept in parts.items()}

    def _layers(self, images: NDArray[np.uint8]) -> list[Tensor]:
        pixels = torch.from_numpy(images).to(self.place).permute(0, 3, 1, 2)  # already by channels last
        return self.network.layers(normalise(pixels.float() / 255))


Embed = Callable[[NDArray[np.uint8], Sequence[int]], Mapping[int, ArrayLike]]


def collect_embeddings(
    embed: Embed, layers: Sequence[int], portions: Iterable[NDArray[np.uint8]], count: int
) -> dict[int, NDArray[np.float32]]:
    """The embeddings of `count` images that come some at a time, by layer, (count, d) each.

    They are put where they belong at once, since joining parts would take the memory twice.
    """
    found: dict[int, NDArray[np.float32]] = {}
    start = 0
    for images in portions:
        for layer, values in embed(images, layers).items():
            rows = np.asarray(values, np.float32)
            if layer not in found:
                found[layer] = np.empty((count, rows.shape[1]), np.float32)
            found[layer][start : start + len(images)] = rows
        start += len(images)
    return found


def pad_images(images: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """The images, and black ones to make up the number."""
    if len(images) == count:
        return np.ascontiguousarray(images)
    return np.concatenate([images, np.zeros((count - len(images), *images.shape[1:]), np.uint8)])


def normalise(images: Tensor) -> Tensor:
    """Images (n, 3, h, w) from 0 to 1, minus ImageNet's mean and over its standard deviation."""
    mean, deviation = (images.new_tensor(numbers).view(3, 1, 1) for numbers in (MEAN, DEVIATION))
    return (images - mean) / deviation


def encoder(config: Pretraining | EncoderConfig, weights: Weights, place: torch.device) -> Encoder:
    """The encoder with these weights, as a snapshot has them; ValueError, in one line, where they are another's."""
    built = encoder_of_pretraining(config) if isinstance(config, Pretraining) else config
    classes = len(weights[CLASSIFIER]) if CLASSIFIER in weights else 0
    network = unset(built, classes)
    load(network, weights, f"{built.backbone} with a projector of {built.projector}")
    return Encoder(network, place)


def load(network: Network, weights: Weights, what: str) -> None:
    """Give the network these weights; ValueError where they are not those of such a network."""
    held = tensors(network)
    shapes: Mapping[str, tuple[int, ...]] = {name: tuple(tensor.shape) for name, tensor in held.items()}
    given = {name: values.shape for name, values in weights.items()}
    wrong = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
    if wrong:
        name = wrong[0]
        raise ValueError(f"weights of {what}: {name} is {given.get(name, 'absent')}, not {shapes.get(name, 'known')}")
    with torch.no_grad():
        for name, tensor in held.items():
            tensor.copy_(torch.from_numpy(np.array(weights[name])))
