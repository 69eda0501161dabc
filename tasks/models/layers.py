"""Network layers, each of which computes many models of one architecture at once, with separate weights.

A network is a function that takes `Layers` and an input and applies layers by name:

    def mlp1(layers: Layers, x: Tensor, classes: int) -> Tensor:
        x = layers.dense("dense1", layers.flat(x), 512, GLOROT).relu()
        ...

Called once without data (`weights_of`), the same function defines the weights and their initial values.

Dense values are (models, rows, features). Images are (rows, models * channels, height, width), where the channels of
each model are adjacent. For a single model, this is the usual (rows, channels, height, width). Pooling, activations and
sums do not depend on the number of models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasks.models import synchronised_norm
from tasks.models.counter_rng import CounterRng
from tasks.numerics import seeds
from tasks.numerics.matmul import MatMul, products
from tasks.numerics.precision import is_autocast
from tasks.worker.ranks import current_ranks

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Start:
    """How a weight is initialised: drawn from a stream, given its shape, inputs (fan-in) and outputs (fan-out)."""

    name: str
    draw: Callable[[np.random.Generator, Shape, int, int], NDArray[np.floating]]


def _glorot(stream: np.random.Generator, shape: Shape, inputs: int, outputs: int) -> NDArray[np.floating]:
    limit = math.sqrt(6 / (inputs + outputs))
    return stream.uniform(-limit, limit, shape)


def _he_normal(stream: np.random.Generator, shape: Shape, inputs: int, outputs: int) -> NDArray[np.floating]:  # noqa: ARG001
    return stream.normal(0, math.sqrt(2 / inputs), shape)


def _fan_in_uniform(stream: np.random.Generator, shape: Shape, inputs: int, outputs: int) -> NDArray[np.floating]:  # noqa: ARG001
    limit = 1 / math.sqrt(inputs)
    return stream.uniform(-limit, limit, shape)


GLOROT = Start("glorot uniform", _glorot)  # U(-a, a), a^2 = 6 / (inputs + outputs). Glorot & Bengio 2010, eq. 16
HE_NORMAL = Start("he normal", _he_normal)  # N(0, 2 / inputs). He et al. 2015, eq. 10
FAN_IN_UNIFORM = Start("fan-in uniform", _fan_in_uniform)  # U(-a, a), a^2 = 1 / inputs: torch's weights and biases


def constant(value: float) -> Start:
    return Start(f"{value:g}", lambda _stream, shape, _inputs, _outputs: np.full(shape, value))


ZERO = constant(0)
ONE = constant(1)


@dataclass(frozen=True)
class Weight:
    """A tensor of a network: a learned weight or, if `learned` is False, a running statistic."""

    shape: Shape
    start: Start
    inputs: int
    outputs: int
    learned: bool = True
    rate: float = 1.0  # factor on the learning rate, for the optimiser `nesterov`


@dataclass
class GradientPlace:
    """Where the gradient of a weight is needed, (models, *shape), and how often a step has used the weight.

    A product that is the weight's only use writes its gradient there directly. Otherwise, autograd adds the gradients
    of all uses, and the caller copies the sum.
    """

    view: Tensor
    uses: int = 0


@dataclass(frozen=True)
class PartRows:
    """The rows that the ranks of a process group compute together, of which this one has a share from row `first`.

    `real` (models, count) is False for padding, or None without padding.
    """

    first: int
    count: int
    real: Tensor | None


@dataclass(frozen=True)
class Mode:
    """The mode in which a network is applied.

    Training draws dropout masks from `draws` and normalises with the batch's statistics. `real` (models, rows) is 1 for
    rows and 0 for padding, or None without padding. Padding affects only its own output. `channels_last` is the memory
    order in which images are convolved, which affects results only by rounding. A CPU always uses it for single models.
    `places` are the places of gradients by weight name; a weight without one has none. `part` is None unless several
    ranks share the rows of a training step.
    """

    training: bool = False
    draws: CounterRng | None = None
    real: Tensor | None = None
    channels_last: bool = False
    places: Mapping[str, GradientPlace] = field(default_factory=dict)
    part: PartRows | None = None


EVALUATION = Mode()


class Layers:
    """The layers of `models` networks with the same architecture, with `tensors` (models, *shape) by name."""

    def __init__(self, tensors: Mapping[str, Tensor], mode: Mode = EVALUATION, by: MatMul | None = None) -> None:
        first = next(iter(tensors.values()), None)
        self.tensors = tensors
        self.mode = mode
        self.models = 1 if first is None else len(first)
        self._by = by or products(
            *(torch.device("cpu"), torch.float32) if first is None else (first.device, first.dtype)
        )
        self._sites = 0

    def weight(
        self, name: str, shape: Shape, start: Start, inputs: int = 1, outputs: int = 1, rate: float = 1.0
    ) -> Tensor:
        """Return a learned tensor, (models, *shape)."""
        return self._tensor(name, Weight(shape, start, inputs, outputs, rate=rate))

    def statistic(self, name: str, shape: Shape, start: Start) -> Tensor:
        """Return a running statistic, (models, *shape). Layers change it in place."""
        return self._tensor(name, Weight(shape, start, 1, 1, learned=False))

    def _tensor(self, name: str, weight: Weight) -> Tensor:
        tensor = self.tensors[name]
        if tuple(tensor.shape) != (self.models, *weight.shape):
            shape = "x".join(map(str, tensor.shape[1:]))
            raise ValueError(f"{name} is {shape}; this network has it {'x'.join(map(str, weight.shape))}")
        return tensor

    def site(self) -> int:
        """Return a random number site that no other layer uses."""
        self._sites += 1
        return self._sites

    def dense(self, name: str, x: Tensor, units: int, start: Start, bias: Start | None = ZERO) -> Tensor:
        """Return x W^T + b, mapping (models, rows, inputs) to (models, rows, units)."""
        inputs = x.shape[-1]
        weight = self.weight(f"{name}.weight", (units, inputs), start, inputs, units)
        if bias is None:
            offset = None
        else:
            offset = self.weight(f"{name}.bias", (units,), bias, inputs, units)
        return self.apply_dense(name, x, weight, offset)

    def apply_dense(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, /) -> Tensor:
        """Compute `dense` with weights (models, units, inputs) and biases (models, units).

        Under autocast, the result has autocast's precision.
        """
        places = self._places(f"{name}.weight"), self._places(f"{name}.bias")
        if bias is None:
            bias = weight.new_zeros(weight.shape[:2])
        if is_autocast(x.device):
            dtype = torch.get_autocast_dtype(x.device.type)
            return affine(x.to(dtype), weight.to(dtype), bias.to(dtype), products(x.device, dtype))
        return affine(x, weight, bias, self._by, places)

    def _places(self, name: str) -> GradientPlace | None:
        """Return the place of a weight's gradient, and count this use of the weight."""
        place = self.mode.places.get(name)
        if place is not None:
            place.uses += 1
        return place

    def conv(
        self,
        name: str,
        x: Tensor,
        channels: int,
        kernel: int,
        start: Start,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: Start | None = ZERO,
    ) -> Tensor:
        """Apply a square convolution with `channels` output channels.

        Weights are (channels, inputs, kernel, kernel).
        """
        inputs = x.shape[1] // self.models
        fans = (inputs * kernel**2, channels * kernel**2)
        weight = self.weight(f"{name}.weight", (channels, inputs, kernel, kernel), start, *fans).flatten(0, 1)
        if bias is None:
            offset = None
        else:
            offset = self.weight(f"{name}.bias", (channels,), bias, *fans).flatten()
        return self.apply_conv(name, x, weight, offset, stride, padding)

    def apply_conv(
        self, _name: str, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, /
    ) -> Tensor:
        """Compute `conv` with the weights (models * channels, inputs, kernel, kernel) and biases of all models."""
        if self._is_channels_last(x):
            x = _fast_memory_order(x)
        return functional.conv2d(x, weight, bias, stride, padding, groups=self.models)

    def transposed_conv(
        self,
        name: str,
        x: Tensor,
        channels: int,
        kernel: int,
        start: Start,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: Start | None = ZERO,
    ) -> Tensor:
        """Apply a transposed convolution with `channels` output channels.

        Weights are (inputs, channels, kernel, kernel).
        """
        inputs = x.shape[1] // self.models
        # torch counts the inputs of a transposed convolution on the second axis of its weight.
        fans = (channels * kernel**2, inputs * kernel**2)
        weight = self.weight(f"{name}.weight", (inputs, channels, kernel, kernel), start, *fans).flatten(0, 1)
        if bias is None:
            offset = None
        else:
            offset = self.weight(f"{name}.bias", (channels,), bias, *fans).flatten()
        return self.apply_transposed_conv(name, x, weight, offset, stride, padding)

    def apply_transposed_conv(
        self, _name: str, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, /
    ) -> Tensor:
        """Compute `transposed_conv` with the weights (models * inputs, channels, kernel, kernel) of all models."""
        return functional.conv_transpose2d(x, weight, bias, stride, padding, groups=self.models)

    def batch_norm(self, name: str, x: Tensor, *, momentum: float, epsilon: float) -> Tensor:
        """Normalise dense values or images over rows (and positions), then scale and shift them.

        gamma (x - mean) / sqrt(variance + epsilon) + beta. Training uses the mean and biased variance of the batch's
        real rows, and moves the running statistics towards them (with the unbiased variance) by `momentum`. Evaluation
        uses the running statistics. Ioffe & Szegedy 2015, algorithms 1 and 2.
        """
        if x.dim() == 3:  # treat dense values as images of one pixel
            rows = x.transpose(0, 1).reshape(x.shape[1], self.models * x.shape[2], 1, 1)
            normalised = self.batch_norm(name, rows, momentum=momentum, epsilon=epsilon)
            return normalised.view(x.shape[1], self.models, x.shape[2]).transpose(0, 1)
        shape = (x.shape[1] // self.models,)
        gamma = self.weight(f"{name}.gamma", shape, ONE)
        beta = self.weight(f"{name}.beta", shape, ZERO)
        return self._scale_and_shift(name, x, (gamma.flatten(), beta.flatten()), momentum, epsilon)

    def standardise(
        self, name: str, x: Tensor, *, momentum: float, epsilon: float, shift: Tensor | None = None
    ) -> Tensor:
        """Apply `batch_norm` to images without its learned scale, and with this shift (channels of all models,)."""
        ones = x.new_ones(x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))
        if shift is None:
            shift = torch.zeros_like(ones)
        return self._scale_and_shift(name, x, (ones, shift), momentum, epsilon)

    def _scale_and_shift(
        self, name: str, x: Tensor, scale: tuple[Tensor, Tensor], momentum: float, epsilon: float
    ) -> Tensor:
        """Apply batch norm to images, with the scale and shift of every channel of all models."""
        shape = (x.shape[1] // self.models,)
        running = self.statistic(f"{name}.mean", shape, ZERO), self.statistic(f"{name}.variance", shape, ONE)
        if not self.mode.training:
            return functional.batch_norm(x, running[0].flatten(), running[1].flatten(), *scale, False, 0.0, epsilon)
        if current_ranks().size > 1:
            return _normalise_over_ranks(x, self.mode.real, running, scale, momentum, epsilon)
        if self.mode.real is None and len(x) * x.shape[2] * x.shape[3] > 1:  # torch rejects a batch of one number
            # Update copies and write them back, since autograd requires its inputs to stay unchanged.
            now = running[0].flatten().clone(), running[1].flatten().clone()
            normalised = functional.batch_norm(x, *now, *scale, True, momentum, epsilon)
            for statistic, moved in zip(running, now, strict=True):
                statistic.copy_(moved.view_as(statistic))
            return normalised
        if self.mode.real is None:
            real = x.new_ones((self.models, len(x)))
        else:
            real = self.mode.real
        return _normalise(x.to(running[0].dtype), real, running, scale, momentum, epsilon)

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        """In training, set each value to 0 with probability `rate` and multiply the others by 1 / (1 - rate).

        Srivastava et al. 2014, section 4, but scaled in training instead of in evaluation.
        """
        site = self.site()
        if not self.mode.training or not rate:
            return x
        assert self.mode.draws is not None
        if x.dim() == 3:
            mask = self.mode.draws.dropout_mask(site, x.shape[1:], rate)
        else:
            rows = len(x)
            channels = x.shape[1] // self.models
            mask = (
                self.mode.draws.dropout_mask(site, (rows, channels, *x.shape[2:]), rate).transpose(0, 1).flatten(1, 2)
            )
        return x * mask * (1 / (1 - rate))

    def concatenate_channels(self, *parts: Tensor) -> Tensor:
        """Concatenate the channels of all parts, keeping each model's channels adjacent."""
        if self.models == 1:
            return torch.cat(parts, 1)
        places = parts[0].shape[2:]
        return torch.cat([part.reshape(len(part), self.models, -1, *places) for part in parts], 2).flatten(1, 2)

    def flat(self, x: Tensor) -> Tensor:
        """Flatten images to dense values (models, rows, channels * height * width)."""
        if self.models > 1:
            return x.reshape(len(x), self.models, -1).transpose(0, 1)
        if x.requires_grad and self._is_channels_last(x):
            # Otherwise the gradient's memory order differs from that of the values, which slows down every layer below.
            x.register_hook(_fast_memory_order)  # type: ignore[no-untyped-call]
        return x.reshape(1, len(x), math.prod(x.shape[1:]))

    def _is_channels_last(self, images: Tensor) -> bool:
        return self.mode.channels_last or (self.models == 1 and images.device.type == "cpu")

    def images(self, x: Tensor, shape: Shape) -> Tensor:
        """Reshape dense values (models, rows, features) to images of `shape` (channels, height, width)."""
        rows = x.shape[1]
        return x.transpose(0, 1).reshape(rows, self.models * shape[0], *shape[1:])


def _fast_memory_order(images: Tensor) -> Tensor:
    """Return the images with channels last, in which a CPU convolves and pools fastest.

    Images in float64 have channels first, since torch only has generic loops for the other order, which take a hundred
    times as long.
    """
    last = images.dtype != torch.float64
    return images.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _normalise(
    x: Tensor,
    real: Tensor,
    running: tuple[Tensor, Tensor],
    scale: tuple[Tensor, Tensor],
    momentum: float,
    epsilon: float,
) -> Tensor:
    """Apply batch norm with the statistics of real rows only.

    x is (rows, channels of all models, height, width).
    """
    channels = running[0].shape[1]
    mask = real.t().to(x.dtype).repeat_interleave(channels, 1)[:, :, None, None]
    count = mask.sum(0) * x.shape[2] * x.shape[3]  # (channels of all models, 1, 1)
    divisor = count.clamp(min=1)
    mean = (x * mask).sum((0, 2, 3), keepdim=True) / divisor
    centred = x - mean
    variance = (centred.square() * mask).sum((0, 2, 3), keepdim=True) / divisor
    _move_statistics(running, mean, variance * (divisor / (count - 1).clamp(min=1)), count, momentum)
    gamma, beta = (part[:, None, None] for part in scale)
    return centred * (torch.rsqrt(variance + epsilon) * gamma) + beta


def _normalise_over_ranks(
    x: Tensor,
    real: Tensor | None,
    running: tuple[Tensor, Tensor],
    scale: tuple[Tensor, Tensor],
    momentum: float,
    epsilon: float,
) -> Tensor:
    """Apply batch norm with the statistics of the real rows of all ranks."""
    mask = None if real is None else real.t().repeat_interleave(running[0].shape[1], 1)
    normalised, mean, variance, count = synchronised_norm.normalise(x, mask, *scale, epsilon)
    _move_statistics(running, mean, synchronised_norm.unbiased(variance, count), count, momentum)
    return normalised


def _move_statistics(
    running: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor, count: Tensor, momentum: float
) -> None:
    """Move the running statistics towards those of a minibatch. A model without real rows keeps its statistics."""
    shape = running[0].shape
    with torch.no_grad():
        has_rows = (count > 0).view(shape)
        for statistic, now in zip(running, (mean, variance), strict=True):
            moved = torch.lerp(statistic, now.view(shape), momentum)
            statistic.copy_(torch.where(has_rows, moved, statistic))


Places = tuple[GradientPlace | None, GradientPlace | None]  # of a weight and a bias


def affine(x: Tensor, weight: Tensor, bias: Tensor, by: MatMul, places: Places = (None, None)) -> Tensor:
    """Compute x W^T + b for each model, mapping (models, rows, inputs) to (models, rows, outputs)."""
    result: Tensor = _Affine.apply(x, weight, bias, by, places)
    return result


class _Affine(torch.autograd.Function):
    """The product of a dense layer and its gradients, with the fastest matrix product on this machine."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, by: MatMul, places: Places) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.by = by
        ctx.places = places
        return _each_model(lambda x, w, b: by.affine(x, w, b, False), x, weight, bias, stacked=by.stacked)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        by = ctx.by
        of_x, of_weight, of_bias, *_ = ctx.needs_input_grad
        weight_place, bias_place = (_free_place(place, by) for place in ctx.places)
        weight_gradient = bias_gradient = None
        if of_weight and weight_place is not None:
            weight_gradient = torch.bmm(gradient.mT, x, out=weight_place)
        elif of_weight:
            weight_gradient = _each_model(by.weight_gradient, gradient, x, stacked=by.stacked)
        if of_bias:
            bias_gradient = gradient.sum(1) if bias_place is None else torch.sum(gradient, 1, out=bias_place)
        row_gradient = _each_model(by.row_gradient, gradient, weight, stacked=by.stacked) if of_x else None
        return row_gradient, weight_gradient, bias_gradient, None, None


def _free_place(place: GradientPlace | None, by: MatMul) -> Tensor | None:
    """Return the tensor into which a product can write a gradient, or None if it must create one."""
    if place is None or place.uses > 1 or not by.stacked:
        return None
    return place.view


def _each_model(product: Callable[..., Tensor], *stacks: Tensor, stacked: bool) -> Tensor:
    """Compute the product for each model, one model at a time unless all can be computed together."""
    if stacked:
        return product(*stacks)
    if len(stacks[0]) == 1:
        return product(*(stack[0] for stack in stacks))[None]
    return torch.stack([product(*parts) for parts in zip(*stacks, strict=True)])


class _Outline(Layers):
    """Layers that record a network's weights."""

    def __init__(self) -> None:
        super().__init__({})
        self.weights: dict[str, Weight] = {}

    def _tensor(self, name: str, weight: Weight) -> Tensor:
        if self.weights.setdefault(name, weight) != weight:
            raise ValueError(f"two layers of the network are called {name}")
        return torch.empty(1, *weight.shape)


def weights_of(network: Callable[[Layers, Tensor], object], shape: Shape) -> dict[str, Weight]:
    """Return a network's weights, in its order, for images of `shape` (channels, height, width)."""
    outline = _Outline()
    # A batch without images yields only shapes. (torch's "meta" tensors would serve this purpose, but torch then
    # computes shapes in Python and loads its compiler, which takes two seconds per process.)
    network(outline, torch.empty(0, *shape))
    return outline.weights


def initial(weights: Mapping[str, Weight], seed: int) -> dict[str, NDArray[np.float32]]:
    """Return the initial weights, drawn in order from one stream of the seed.

    They are the same on every device.
    """
    stream = seeds.generator(seed, "initial weights")
    result = {}
    for name, weight in weights.items():
        result[name] = weight.start.draw(stream, weight.shape, weight.inputs, weight.outputs).astype(np.float32)
    return result
