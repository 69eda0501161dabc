"""What trained networks say of images, many networks at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.hardware import device, exactly
from tasks.models.layers import Layers
from tasks.models.networks import Architecture
from tasks.models.weights import Weights

ROWS_AT_ONCE = 512  # activations of that many rows stay in a core's cache


def logits(
    architecture: Architecture,
    models: Sequence[Weights],
    images: NDArray[np.uint8],
    place: torch.device | None = None,
) -> NDArray[np.float32]:
    """Every network's logits (models, n, classes) for images (n, h, w, c).

    On a CPU by one thread, network after network, so that what one says does not depend on the others.
    """
    place = place or device()
    out = np.empty((len(models), len(images), architecture.classes), np.float32)
    together = len(models) if place.type == "cuda" else 1
    with exactly(place), torch.inference_mode():
        for first in range(0, len(models), together):
            group = models[first : first + together]
            tensors = {
                # Copied, because torch has no read-only tensors.
                name: torch.from_numpy(np.stack([weights[name] for weights in group])).to(place)
                for name in architecture.weights
            }
            for start in range(0, len(images), ROWS_AT_ONCE):
                rows = torch.from_numpy(np.array(images[start : start + ROWS_AT_ONCE])).to(place)
                pixels = rows.flatten(1).to(torch.float32).mul_(1 / 255)
                outputs = architecture.logits(Layers(tensors), pixels.expand(len(group), *pixels.shape))
                out[first : first + together, start : start + len(rows)] = outputs.cpu().numpy()
    return out
