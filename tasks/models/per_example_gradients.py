"""Per-example gradients: the squared norm of the gradient of each row's loss with respect to a network's weights.

||grad loss(w, x_i)||^2 over all learned weights, in evaluation mode, which is the summand of TracInCP for each
checkpoint: Garima et al. 2020, "Estimating training data influence by tracing gradient descent", section 3.2.

One forward and one backward pass for all rows suffice. A row's gradient with respect to a weight is a product of the
layer's input and the loss's gradient with respect to the layer's output, so its norm can be computed without per-row
gradients. For a dense layer, the squared norm is |gradient|^2 (|input|^2 + 1). Goodfellow 2015, "Efficient per-example
gradient computations".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasks.datasets.picture_rows import Sliceable
from tasks.models.layers import Layers
from tasks.models.modules import Method
from tasks.models.networks import Architecture, Weights, each_models
from tasks.numerics.matmul import NARROW, MatMul
from tasks.worker.hardware import device, exactly

ROWS_AT_ONCE = {"cpu": 128, "cuda": 1024}  # rows times models whose activations are in memory
SEEN = {"cpu": 2**18, "cuda": 2**26}  # input patch values in memory at a time, which fit into a core's cache
FEW = 8  # with fewer channels, windows are copied value by value in any order


def squared_gradients(
    architecture: Architecture, models: Sequence[Weights], images: Sliceable, labels: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return the squared gradient norm of each row's cross-entropy (in nats) with respect to the weights, (models, n).

    Images are (n, h, w, c) and labels (n,). A CPU computes one network after another in one thread, so that results do
    not depend on each other.
    """
    target_device = device()
    out = np.empty((len(models), len(images)))
    row_limit = ROWS_AT_ONCE[target_device.type]
    together = row_limit if target_device.type == "cuda" else 1
    with exactly(target_device):
        for first in range(0, len(models), together):
            group = models[first : first + together]
            tensors = {}
            for name in architecture.weights:
                tensors[name] = torch.from_numpy(np.stack([weights[name] for weights in group])).to(target_device)
            size = max(1, row_limit // len(group))
            for start in range(0, len(images), size):
                pixels = torch.from_numpy(np.array(images[start : start + size])).to(target_device).flatten(1)
                truth = torch.from_numpy(np.array(labels[start : start + size], np.int64)).to(target_device)
                rows = pixels.to(next(iter(tensors.values())).dtype).mul_(1 / 255).expand(len(group), -1, -1)
                squares = squared_row_gradients(architecture, tensors, rows, truth.expand(len(group), -1))
                out[first : first + together, start : start + size] = squares.cpu().numpy()
    return out


def squared_row_gradients(
    architecture: Architecture, tensors: dict[str, Tensor], pixels: Tensor, labels: Tensor
) -> Tensor:
    """Return the squared gradients (models, rows) for tensors (models, *shape).

    Pixels are (models, rows, features) in [0, 1], and labels are (models, rows).
    """
    tensors = {name: tensor.detach() for name, tensor in tensors.items()}
    if architecture.own is not None:
        return _module_squared_gradients(architecture.own, tensors, each_models(pixels, architecture.shape), labels)
    layers = Measured(tensors, labels.shape)
    with torch.enable_grad():
        logits = architecture.logits(layers, pixels)
        functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").backward()  # type: ignore[no-untyped-call]
    learned = {name for name, weight in architecture.weights.items() if weight.learned}
    assert learned == layers.measured, learned ^ layers.measured
    return layers.squares


class Measured(Layers):
    """Layers that add up each row's squared gradients with respect to their weights during the backward pass of a loss.

    The loss must be a sum over rows of terms that each depend on their own row only, as in evaluation mode.
    """

    def __init__(self, tensors: dict[str, Tensor], rows: Sequence[int]) -> None:
        super().__init__(tensors)
        first = next(iter(tensors.values()))
        self.squares = first.new_zeros(rows)  # (models, rows)
        self.measured: set[str] = set()
        self._root = first.new_zeros((), requires_grad=True)

    def apply_dense(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, /) -> Tensor:
        values = x.detach()

        def measure(gradient: Tensor) -> None:
            self.squares += gradient.square().sum(2) * (values.square().sum(2) + (bias is not None))

        return self._tap(super().apply_dense(name, x, weight, bias), measure, *_weight_names(name, bias))

    def apply_conv(
        self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, /
    ) -> Tensor:
        values = x.detach()

        def measure(gradient: Tensor) -> None:
            # (rows * models, places, channels)
            gradients = self._split_by_model(gradient).permute(0, 2, 3, 1).flatten(1, 2)
            inputs = self._split_by_model(values)
            squares = convolution_squares(inputs, gradients, weight.shape[-1], stride, padding, self._by)
            if bias is not None:
                squares += gradients.sum(1).square().sum(1)
            self.squares += squares.view(-1, self.models).t()

        return self._tap(
            super().apply_conv(name, x, weight, bias, stride, padding), measure, *_weight_names(name, bias)
        )

    def batch_norm(self, name: str, x: Tensor, *, momentum: float, epsilon: float) -> Tensor:
        y = super().batch_norm(name, x, momentum=momentum, epsilon=epsilon)
        if x.dim() == 3:  # already measured as images with one position
            return y
        values = x.detach()
        channels = x.shape[1] // self.models
        mean, variance = (self.tensors[f"{name}.{part}"].flatten()[:, None, None] for part in ("mean", "variance"))

        def measure(gradient: Tensor) -> None:
            normal = (values - mean) * torch.rsqrt(variance + epsilon)
            squares = (gradient * normal).sum((2, 3)).square() + gradient.sum((2, 3)).square()
            self.squares += squares.view(-1, self.models, channels).sum(2).t()

        return self._tap(y, measure, f"{name}.gamma", f"{name}.beta")

    def _split_by_model(self, images: Tensor) -> Tensor:
        """Reshape images (rows, models * channels, height, width) to (rows * models, channels, height, width)."""
        return images.reshape(-1, images.shape[1] // self.models, *images.shape[2:])

    def _tap(self, y: Tensor, measure: Callable[[Tensor], None], *names: str) -> Tensor:
        """Return the values with a hook that measures the gradient at their current state.

        This also works if the values are changed later.
        """
        assert not self.measured & set(names), "a weight that two layers share"
        self.measured |= set(names)
        if not y.requires_grad:  # the first layer
            y = y + self._root
        y.register_hook(torch.no_grad()(measure))  # type: ignore[no-untyped-call]
        return y


def _weight_names(name: str, bias: Tensor | None) -> list[str]:
    """Return the names of the learned tensors of a dense or convolutional layer."""
    if bias is None:
        return [f"{name}.weight"]
    return [f"{name}.weight", f"{name}.bias"]


def convolution_squares(
    images: Tensor, gradients: Tensor, kernel: int, stride: int, padding: int, by: MatMul
) -> Tensor:
    """Return each image's squared gradient with respect to the weights of a square convolution, (images,).

    The gradient is the sum, over positions, of the input patch times the gradient, (inputs kernel^2, channels). If
    there are few positions, it is faster to sum its square over pairs of positions. Images are (n, inputs, height,
    width) and gradients (n, places, channels).
    """
    count, places, channels = gradients.shape
    patch = images.shape[1] * kernel**2
    size = max(1, SEEN[images.device.type] // (patch * places))
    pairs = places * (channels + patch) < channels * patch
    # Use one product per image if this is faster and each product is large enough for a separate call.
    is_per_image = not by.stacked and min(places, channels, patch) >= NARROW
    squares = []
    for start in range(0, count, size):
        input_patches = patches(images[start : start + size], kernel, stride, padding)
        part = gradients[start : start + size]
        if pairs:
            squares.append((torch.bmm(part, part.mT) * torch.bmm(input_patches, input_patches.mT)).sum((1, 2)))
        elif is_per_image:
            by_image = []
            for factors in zip(part, input_patches, strict=True):
                by_image.append(by.weight_gradient(*factors).square().sum())
            squares.append(torch.stack(by_image))
        else:
            squares.append(torch.bmm(input_patches.mT, part).square().sum((1, 2)))
    return torch.cat(squares)


def patches(images: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Return the input patch at each position, (n, places, inputs kernel^2), with the last axis in any order."""
    inputs = images.shape[1]
    if inputs < FEW:
        return functional.unfold(images, kernel, padding=padding, stride=stride).mT
    # If the channels of an image are adjacent in memory, its windows are copied row by row.
    padded = functional.pad(images.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding))
    windows = padded.unfold(1, kernel, stride).unfold(2, kernel, stride)
    return windows.permute(0, 1, 2, 4, 5, 3).reshape(len(images), -1, kernel**2 * inputs)


def _module_squared_gradients(method: Method, tensors: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
    """Return the squared gradients of a user's module.

    They are computed by vmap over rows or, if vmap is impossible, row by row.
    """
    weights = method.module.weights
    learned = [name for name, weight in weights.items() if weight.learned]

    def square_norm(parts: dict[str, Tensor], rest: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        gradients = torch.func.grad(lambda free: loss(free | rest, image, label))(parts)
        return torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum()

    def loss(everything: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(method.evaluate(everything, image[None]), label[None])

    squares = []
    for model, (rows, truth) in enumerate(zip(images, labels, strict=True)):
        parts = {name: tensors[name][model] for name in learned}
        rest = {name: tensors[name][model] for name in weights if name not in parts}
        if method.separable:
            squares.append(torch.vmap(square_norm, (None, None, 0, 0))(parts, rest, rows, truth))
        else:
            squares.append(torch.stack([square_norm(parts, rest, row, y) for row, y in zip(rows, truth, strict=True)]))
    return torch.stack(squares)
