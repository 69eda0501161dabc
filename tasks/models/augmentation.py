"""The paper's augmentation: every image of every minibatch in training is changed a little, afresh.

Contrast, a crop of all but one row and one column, and for colour images a mirror. Hartley & Tsaftaris, "Unintended
memorisation of unique features in neural networks", A.4.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasks.models.counter_rng import CounterRng

CONTRAST, CROP, MIRROR = 0, -1, -2  # sites: a network's layers count theirs from 1
FACTOR = 0.2


def augment(pixels: Tensor, shape: tuple[int, int, int], draws: CounterRng) -> Tensor:
    """Images changed each in its own way: (models, rows, height * width * channels) in [0, 1], in and out.

    Contrast: each value's distance from the mean of its channel in its image times U[0.8, 1.2], not cut off at 0 or 1,
    as `tf.image.random_contrast` does. Crop: (height - 1, width - 1) of the image from one of the four places, so 27x27
    of 28x28; zeros to the right and below bring it back to its size. What lies at least 1 pixel from every edge, as the
    unique feature does, always stays. Mirror: half of the images with several channels are turned left to right before
    the zeros are added; the feature moves to the other side with them.
    """
    models, rows = pixels.shape[:2]
    height, width, channels = shape
    images = pixels.view(models, rows, *shape)
    mean = images.mean((2, 3), keepdim=True)
    factor = draws.uniform(CONTRAST, (rows, 1, 1, 1), pixels.dtype).mul_(2 * FACTOR).add_(1 - FACTOR)
    images = torch.lerp(mean, images, factor)
    later = draws.uniform(CROP, (rows, 2, 1, 1, 1)) < 0.5
    images = torch.where(later[:, :, 0], images[:, :, 1:], images[:, :, : height - 1])
    images = torch.where(later[:, :, 1], images[:, :, :, 1:], images[:, :, :, : width - 1])
    if channels > 1:
        mirrored = draws.uniform(MIRROR, (rows, 1, 1, 1)) < 0.5
        images = torch.where(mirrored, images.flip(3), images)
    return functional.pad(images, (0, 0, 0, 1, 0, 1)).flatten(2)
