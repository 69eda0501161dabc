"""What a change of weights does to the response to features, to first order: the white-box score of a pair.

    r(f) = <dw, grad_w c(x_f)>      mean over the images x; dw: the canary's model less its twin, c the centred logit

The gradients are the canary's model's. Where the first layer is dense and has biases, each unit's gradient is that in
its bias, and only the change of its weights counts: what a canary leaves at the pixels that it inked stands there.
Elsewhere dw is the change of every learned weight. The score is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.images import Pixels

if TYPE_CHECKING:
    from tasks.models.networks import Architecture, Weights

Array = NDArray[np.float64]

ROWS_AT_ONCE = 512  # images whose activations are held together


def responses(canary: pa.Table, twin: pa.Table, sets: Sequence[Pixels], label: int) -> Array:
    """r(f) for sets of images (n, h, w, c) that carry a feature each: (features,).

    The models are MODEL tables of one architecture.
    """
    from tasks.models.networks import architecture_of, weights_of_model

    network, weights, before = architecture_of(canary), weights_of_model(canary), weights_of_model(twin)
    learned = [name for name, weight in network.weights.items() if weight.learned]
    change = {name: weights[name].astype(np.float64) - before[name] for name in learned}
    dense = first_dense(network)
    if dense is None:
        gradients = mean_gradients(network, weights, learned, sets, label)
        return np.array([sum((change[name] * values[name]).sum() for name in learned) for values in gradients])
    weight, bias = dense
    of_units = np.mean([values[bias] for values in mean_gradients(network, weights, [bias], sets, label)], axis=0)
    height, width, channels = network.shape
    of_pixels = (of_units @ change[weight]).reshape(channels, height, width).transpose(1, 2, 0)
    return np.array([(of_pixels * images.mean(axis=0)).sum() / 255 for images in sets])


def first_dense(network: Architecture) -> tuple[str, str] | None:
    """The names of the first layer's weights and biases, where it is dense and every unit sees every pixel."""
    name = next(iter(network.weights))
    bias = f"{name.removesuffix('weight')}bias"
    shape = network.weights[name].shape
    whole = len(shape) == 2 and shape[1] == np.prod(network.shape)
    return (name, bias) if whole and name.endswith("weight") and bias in network.weights else None


def mean_gradients(
    network: Architecture, weights: Weights, names: Sequence[str], sets: Sequence[Pixels], label: int
) -> Iterator[Mapping[str, Array]]:
    """The gradients of the mean centred logit of each set of images, in the weights of these names."""
    import torch

    from tasks.hardware import device, exactly
    from tasks.models.layers import Layers

    place = device()
    with exactly(place), torch.enable_grad():
        tensors = {name: torch.from_numpy(weights[name].copy())[None].to(place) for name in network.weights}
        for name in names:
            tensors[name].requires_grad_()
        for images in sets:
            total: dict[str, Array] = {}
            for first in range(0, len(images), ROWS_AT_ONCE):
                rows = torch.from_numpy(np.array(images[first : first + ROWS_AT_ONCE])).to(place)
                pixels = rows.flatten(1).to(torch.float32).mul_(1 / 255)
                logits = network.logits(Layers(tensors), pixels[None])[0]
                score = (logits[:, label] - logits.mean(1)).sum() / len(images)
                parts = torch.autograd.grad(score, [tensors[name] for name in names])
                for name, part in zip(names, parts, strict=True):
                    total[name] = total.get(name, 0.0) + part[0].cpu().numpy().astype(np.float64)
            yield total
