"""The slopes of a model's centred logit with respect to the pixels of a feature, and the feature's score by slopes.

A canary shifts a model's response to the pixels that it inks by a common amount, and does not shift the response to the
other pixels of the block. Between two training runs, slopes differ more in pixels in which the training images have
ink, because gradients reach these weights at every step. The shift is therefore estimated by generalised least squares,
with noise of variance n + 10 in a pixel in which the training images have the ink of n fully inked pixels:

    r(f) = mean over images x of c(x_f),  c = z_y - mean over classes of z      the response to a feature f
    r(f) = constant + sum over pixels of b_p f_p                                fitted over features: the slopes b
    S(f) = sum over pixels of w_p b_p f_p,  w_p = 1 / (n_p + 10)                a feature's score

f_p is the difference that the feature makes in pixel p. The fit does not determine directions in which the fitted
features do not vary (such as the mean slope if all have equal ink). It uses the solution with the smallest sum of w_p
b_p^2, which makes S independent of these directions.

For S to rank a drawn feature exactly, the features of the fit must be independent of the drawn one, or include it as
one of several exchangeable features. The score is ours; the constant 10 was fixed before the models were trained for
which results are reported.

For a pair, there is also a white-box response: the first-order effect of the change of weights on c,

    r(f) = <dw, grad_w c(x_f)>      mean over the images x; dw: the canary model minus its control model

with the gradients of the canary model. If the first layer is dense and has biases, the gradient of each unit is the
gradient of its bias, and only the change of this layer's weights counts, because it contains the trace that a canary
leaves in its inked pixels. Otherwise dw is the change of all learned weights. This score is also ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import Sliceable, slices

if TYPE_CHECKING:
    from tasks.models.networks import Architecture, Weights


Array = NDArray[np.float64]

LEAST_INK = 10.0  # noise of a pixel that no training image inks, in units of one image's ink
RESOLVED = 1e-8  # share of the largest singular value; smaller singular values count as 0


def centred_logits(log_p: Array, label: int) -> Array:
    """Return z_y minus the mean of z over classes, where z are the logits, shape (images,), in nats.

    `log_p` has shape (images, classes); log-probabilities suffice, because the normaliser cancels. Unlike log P, the
    result continues to rise as P approaches 1.
    """
    return np.asarray(log_p[:, label] - log_p.mean(axis=1))


def pixel_ink(images: Sliceable) -> Array:
    """Return the ink of the images (n, h, w, c) in each pixel, in units of a fully inked pixel, shape (h, w, c)."""
    total = np.zeros(images.shape[1:], np.int64)
    for _, pixels in slices(images):
        total += pixels.sum(axis=0, dtype=np.int64)
    return np.asarray(total / 255)


def weighted_slopes(features: Array, responses: Array, inked: Array) -> Array:
    """Return w_p b_p for every pixel, shape (pixels,), from the features of the fit and the responses to them.

    With X the features (features, pixels) minus their mean and V = diag(n + 10), b = V X' (X V X')^+ r. Among the
    least-squares solutions, these slopes have the smallest sum of w_p b_p^2. `inked` is n, shape (pixels,). S(f) is the
    sum of w_p b_p f_p.
    """
    spread = np.sqrt(inked + LEAST_INK)
    varied = (features - features.mean(axis=0)) * spread
    fitted = np.linalg.pinv(varied, rcond=RESOLVED) @ (responses - responses.mean())
    return np.asarray(fitted / spread)


def strongest_pixels(slopes: Array, count: int) -> NDArray[np.bool_]:
    """Return the `count` pixels with the largest slopes, as a mask (pixels,)."""
    mask = np.zeros(len(slopes), bool)
    mask[np.argsort(-slopes, kind="stable")[:count]] = True
    return mask


ROWS_AT_ONCE = 512  # number of images whose activations are in memory together


def weight_change_responses(canary: pa.Table, twin: pa.Table, sets: Sequence[Pixels], label: int) -> Array:
    """Return r(f) for sets of images (n, h, w, c) with one feature each, shape (features,).

    The models are MODEL tables of one architecture.
    """
    from tasks.models.networks import architecture_of, weights_of_model

    network = architecture_of(canary)
    weights = weights_of_model(canary)
    before = weights_of_model(twin)
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
    """Return the names of the first layer's weights and biases, or None.

    The first layer must be dense, and every unit must see every pixel.
    """
    name = next(iter(network.weights))
    bias = f"{name.removesuffix('weight')}bias"
    shape = network.weights[name].shape
    pixel_count = len(shape) == 2 and shape[1] == np.prod(network.shape)
    if pixel_count and name.endswith("weight") and bias in network.weights:
        return (name, bias)
    return None


def mean_gradients(
    network: Architecture, weights: Weights, names: Sequence[str], sets: Sequence[Pixels], label: int
) -> Iterator[Mapping[str, Array]]:
    """Yield the gradients of the mean centred logit of each image set, with respect to the weights with these names."""
    import torch

    from tasks.models.layers import Layers
    from tasks.worker.hardware import device, exactly

    target_device = device()
    with exactly(target_device), torch.enable_grad():
        tensors = {name: torch.from_numpy(weights[name].copy())[None].to(target_device) for name in network.weights}
        for name in names:
            tensors[name].requires_grad_()
        for images in sets:
            total: dict[str, Array] = {}
            for first in range(0, len(images), ROWS_AT_ONCE):
                rows = torch.from_numpy(np.array(images[first : first + ROWS_AT_ONCE])).to(target_device)
                pixels = rows.flatten(1).to(torch.float32).mul_(1 / 255)
                logits = network.logits(Layers(tensors), pixels[None])[0]
                score = (logits[:, label] - logits.mean(1)).sum() / len(images)
                parts = torch.autograd.grad(score, [tensors[name] for name in names])
                for name, part in zip(names, parts, strict=True):
                    total[name] = total.get(name, 0.0) + part[0].cpu().numpy().astype(np.float64)
            yield total
