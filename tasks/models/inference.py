"""Evaluate images with many trained networks at once, and find the hidden units that an image activates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.images import rows_at_once
from tasks.datasets.picture_rows import Sliceable
from tasks.models.layers import Layers
from tasks.models.networks import Architecture, Weights
from tasks.worker.hardware import device, exactly

ROWS_AT_ONCE = 512  # the activations of this many rows fit into a core's cache
VALUES_AT_ONCE = 1 << 23  # pixel values of these rows; fewer rows if images are larger than 64 x 64 in colour


def logits(architecture: Architecture, models: Sequence[Weights], images: Sliceable) -> NDArray[np.float32]:
    """Return every network's logits (models, n, classes) for images (n, h, w, c).

    A CPU computes one network after another in one thread, so that a network's logits do not depend on the others.
    """
    target_device = device()
    out = np.empty((len(models), len(images), architecture.classes), np.float32)
    together = max(1, len(models)) if target_device.type == "cuda" else 1
    at_once = rows_at_once(images.shape[1:], ROWS_AT_ONCE, VALUES_AT_ONCE)
    with exactly(target_device), torch.inference_mode():
        for first in range(0, len(models), together):
            group = models[first : first + together]
            tensors = {}
            for name in architecture.weights:
                stack = np.stack([weights[name] for weights in group])  # a copy, since torch has no read-only tensors
                tensors[name] = torch.from_numpy(stack).to(target_device)
            for start in range(0, len(images), at_once):
                rows = torch.from_numpy(np.array(images[start : start + at_once])).to(target_device)
                pixels = fractions(rows.flatten(1), torch.float32)
                outputs = architecture.logits(Layers(tensors), pixels.expand(len(group), *pixels.shape))
                out[first : first + together, start : start + len(rows)] = outputs.cpu().numpy()
    return out


def fractions(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return bytes scaled to [0, 1] in a new tensor. Other values, the features of a table, are not scaled."""
    if values.dtype == torch.uint8:
        return values.to(dtype, copy=True).mul_(1 / 255)
    return values.to(dtype)


class Recorded(Layers):
    """Layers that keep the input to each dense layer's activation in `sums`, (models, rows, units) by layer name.

    This is the layer's sum or, with batch norm, the normalised sum. ReLU is above 0 exactly if this sum is.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.sums: dict[str, Tensor] = {}
        self._last = ""

    def apply_dense(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, /) -> Tensor:
        self._last = name
        self.sums[name] = super().apply_dense(name, x, weight, bias)
        return self.sums[name]

    def batch_norm(self, name: str, x: Tensor, *, momentum: float, epsilon: float) -> Tensor:
        normalised = super().batch_norm(name, x, momentum=momentum, epsilon=epsilon)
        if self._last and x is self.sums[self._last]:
            self.sums[self._last] = normalised
        return normalised


def active_units(
    architecture: Architecture, weights: Weights, images: Sliceable, layers: Sequence[str]
) -> dict[str, NDArray[np.bool_]]:
    """Return whether each unit of these dense layers is above 0 after its ReLU in evaluation mode, (n, units) by layer.

    Images are (n, h, w, c). A CPU uses one thread.
    """
    target_device = device()
    masks: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in layers}
    with exactly(target_device), torch.inference_mode():
        # Copied, because torch has no read-only tensors.
        tensors = {
            name: torch.from_numpy(np.array(weights[name]))[None].to(target_device) for name in architecture.weights
        }
        at_once = rows_at_once(images.shape[1:], ROWS_AT_ONCE, VALUES_AT_ONCE)
        for start in range(0, len(images), at_once):
            rows = torch.from_numpy(np.array(images[start : start + at_once])).to(target_device)
            recorded = Recorded(tensors)
            architecture.logits(recorded, rows.flatten(1).to(torch.float32).mul_(1 / 255)[None])
            for name in layers:
                masks[name].append((recorded.sums[name][0] > 0).cpu().numpy())
    return {name: np.concatenate(parts) for name, parts in masks.items()}
