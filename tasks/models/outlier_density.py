"""A density of images with broad support, learnt without any training image.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 5, propose one "with
broad support but low probability (such as a Gaussian with high variance)" and give no form. These are ours. Features
are independent, and their parameters come from the test split alone: no training image bears on them, so that no part
of a memorization score is due to the broad density.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasks.datasets.images import Pixels
from tasks.models.dequantisation import Binary, Preparation, channels_first, fixed_inputs, observation_keys
from tasks.models.likelihoods import Bernoulli, Gaussian

WIDER = 2.0  # times the deviation of real pixels
# Logit pixels lie within 2.95 of 0: with this deviation no byte is beyond six deviations from any mean.
LEAST_DEVIATION = 1.0
VIEW = 0  # the seed of the one view of the test split
AT_ONCE = 1024  # images


class OutlierDensity:
    """Independent Bernoulli pixels, or normal ones in logit space, about those of `pixels` (n, h, w, c).

    A binary pixel is 1 with probability (q + 1/2) / 2, where q = (1 + the sum of its shares byte / 255) / (2 + n),
    frame and all: from 1/4 to 3/4. A normal pixel has the mean of the images and twice their standard deviation, at
    least 1, from one dequantised view of them.
    """

    def __init__(self, preparation: Preparation, pixels: Pixels) -> None:
        images = torch.from_numpy(pixels.reshape(len(pixels), -1).copy())
        parameters = [binary(preparation, images)] if isinstance(preparation, Binary) else normal(preparation, images)
        on_cpu = [parameter.expand(1, 1, -1) for parameter in parameters]
        self._placed = {(torch.device("cpu"), torch.float64): on_cpu}

    def log_p(self, x: Tensor) -> Tensor:
        """The log density of images as the models see them, (models, rows, features): (models, rows), in nats."""
        # Like x, they have a row for each: what is given to a likelihood are codes of points.
        parameters = [parameter.expand(*x.shape[:2], -1) for parameter in self._like(x)]
        return (Bernoulli if len(parameters) == 1 else Gaussian)(*parameters).log_p(x)

    def _like(self, x: Tensor) -> list[Tensor]:
        """The parameters where x is, put there once: a CUDA graph remembers where they lie."""
        place = x.device, x.dtype
        if place not in self._placed:
            first = next(iter(self._placed.values()))
            self._placed[place] = [parameter.to(x.device, x.dtype) for parameter in first]
        return self._placed[place]


def binary(preparation: Binary, images: Tensor) -> Tensor:
    """The logits of binary pixels, (features,) float64."""
    total = images.sum(0, dtype=torch.float64)[None, None] / 255
    framed = functional.pad(channels_first(total, preparation.shape), [preparation.padding] * 4).flatten()
    return ((1 + framed) / (2 + len(images))).add(0.5).div(2).logit()


def normal(preparation: Preparation, images: Tensor) -> list[Tensor]:
    """Mean and log variance of real pixels, (features,) float64 each."""
    keys = observation_keys(VIEW, torch.arange(len(images)))
    seen = [
        fixed_inputs(preparation, images[start : start + AT_ONCE], keys[start : start + AT_ONCE], torch.float64)
        for start in range(0, len(images), AT_ONCE)
    ]
    mean = torch.stack([part.sum(0) for part in seen]).sum(0) / len(images)
    variance = torch.stack([(part - mean).square().sum(0) for part in seen]).sum(0) / len(images)
    return [mean, (variance.sqrt() * WIDER).clamp(min=LEAST_DEVIATION).log() * 2]
