"""Training steps and evaluations of built-in and users' networks, described without torch and counted with it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from tasks.contract.operations import (
    ATTENTION,
    BYTES,
    CONVOLUTION,
    LAUNCHES,
    LOW,
    PRODUCT,
    Operations,
    add,
    scale,
)
from tasks.models.catalog import PLAIN, Regularisers, Shape

if TYPE_CHECKING:
    from tasks.diffusion.diffusion_config import UNet
    from tasks.models.layers import Weight
    from tasks.self_supervised.pretraining_config import Criterion, EncoderConfig

FLOAT = 4  # bytes of a number
# Bytes that an optimiser reads and writes for each parameter, and the operations that it starts for each tensor: Adam
# reads the weight, its gradient and two moments, and writes all but the gradient.
OPTIMISERS = {
    "adam": (7 * FLOAT, 1),
    "adamw": (9 * FLOAT, 1),
    "rmsprop": (5 * FLOAT, 1),
    "sgd": (7 * FLOAT, 1),
    "lars": (12 * FLOAT, 4),
    "nesterov": (20 * FLOAT, 1),
    "adafactor": (15 * FLOAT, 15),
}
# Numbers that an optimiser keeps for each parameter.
MOMENTS = {"adam": 2.0, "adamw": 2.0, "rmsprop": 1.0, "sgd": 1.0, "lars": 1.0, "nesterov": 2.0, "adafactor": 0.01}
# Private training computes and clips gradients of single rows. Measured on a CPU, it takes 1.1 (T5) to 2.9 (vae) times
# as long as a training without privacy.
PRIVATE = 2.0
# Bytes for each value of a view: a window is resized, blurred and recoloured in about 15 passes.
VIEW = 30 * FLOAT
LOW_ACTIVATIONS = 0.6  # share of the bytes of activations with bfloat16, which batch norm and losses do not use
ENCODED = 256  # images that an encoder embeds at a time
CODES = 1024  # codes that a decoder decodes at a time


def optimiser(name: str, parameters: float, tensors: int) -> Operations:
    """Return the operations of one update of these parameters."""
    moved, started = OPTIMISERS[name]
    return {BYTES: moved * parameters, LAUNCHES: started * tensors}


def lower(operations: Operations, low_bytes: float = 0.5) -> Operations:
    """Return the operations in bfloat16, which move this share of the bytes."""
    result = {}
    for kind, amount in operations.items():
        if kind == BYTES:
            result[kind] = low_bytes * amount
        elif kind in (PRODUCT, CONVOLUTION, ATTENTION):
            result[kind + LOW] = amount
        else:
            result[kind] = amount
    return result


@dataclass(frozen=True)
class TracedStep:
    """The operations of a training step, and the bytes of device memory of the model that takes it."""

    operations: Operations
    device_bytes: float


def _trace_objective(objective: Any, shape: Shape, batch: int, optimiser_name: str, precision: str) -> TracedStep:
    """Trace a training step of an objective on `batch` images."""
    import torch

    from tasks.counting.tracing import META, Tracing
    from tasks.models.counter_rng import CounterRng
    from tasks.models.layers import Mode
    from tasks.training.objective import Batch, Mirrors

    tensors = _without_memory(objective.weights)
    pixels = torch.empty((1, batch, math.prod(shape)), dtype=torch.uint8, device=META)
    labels = torch.empty((1, batch), dtype=torch.int64, device=META)
    draws = CounterRng(torch.zeros(1, dtype=torch.int64, device=META))
    mirrored = None
    if isinstance(objective, Mirrors) and objective.alternates:
        mirrored = torch.empty((1, batch), dtype=torch.bool, device=META)
    with Tracing() as tracing:
        torch.autograd.backward(objective.losses(tensors, Batch(pixels, labels, Mode(True, draws), mirrored)).sum())
    learned = [tensor for tensor in tensors.values() if tensor.requires_grad]
    parameters = sum(map(_elements, learned))
    step = tracing.operations
    peak: float = tracing.peak_bytes
    if precision == "bfloat16":
        step = lower(step)
        peak = FLOAT * parameters + LOW_ACTIVATIONS * (peak - FLOAT * parameters)
    operations = add(step, optimiser(optimiser_name, parameters, len(learned)))
    fixed = sum(map(_elements, tensors.values())) - parameters
    # Weights, moments and the best weights, and the copies of weights and moments with which a step is recorded.
    kept = 2 * (1 + MOMENTS[optimiser_name]) + 1
    return TracedStep(operations, FLOAT * (kept * parameters + 2 * fixed) + peak)


def training_bytes(name: str, parameters: float, fixed: float, peak: float) -> float:
    """Return the device memory of a training: numbers that are learned and fixed, moments, and the peak of a step.

    The peak contains the gradients. An update needs memory for another copy of them, when activations are freed.
    """
    moments = MOMENTS[name]
    return FLOAT * ((1 + moments) * parameters + fixed) + max(peak, 2 * FLOAT * parameters)


def _without_memory(weights: Any) -> dict[str, Any]:
    """Return tensors of these weights for one model, which use no memory."""
    import torch

    from tasks.counting.tracing import META

    named: dict[str, Weight] = dict(weights)
    tensors = {}
    for name, weight in named.items():
        tensors[name] = torch.empty((1, *weight.shape), device=META, requires_grad=weight.learned)
    return tensors


def _elements(tensor: Any) -> int:
    return int(tensor.numel())


class _CountedOnce(ABC):
    """A step that is traced once for its operations and its memory."""

    is_stacked: ClassVar[bool] = False

    def count(self) -> Operations:
        return scale(self._traced.operations, self._share)

    def device_bytes(self) -> float:
        return self._traced.device_bytes

    @property
    def _share(self) -> float:
        """The part of the traced operations that one unit of work takes."""
        return 1.0

    @cached_property
    def _traced(self) -> TracedStep:
        return self._trace()

    @abstractmethod
    def _trace(self) -> TracedStep:
        """Trace the step."""


@dataclass(frozen=True)
class ClassifierStep(_CountedOnce):
    """A training step of an image classifier. A unit of work has one image or `images`."""

    is_stacked: ClassVar[bool] = True

    network: str
    shape: Shape
    classes: int
    regularisers: Regularisers = PLAIN
    width: float = 1.0
    batch: int = 128
    optimiser: str = "adam"
    augmentation: bool = False
    is_private: bool = False
    images: float = 1.0  # images in a unit of work
    precision: str = "float32"

    @property
    def _share(self) -> float:
        return self.images * (PRIVATE if self.is_private else 1.0) / self.batch

    def _trace(self) -> TracedStep:
        from tasks.models.networks import Architecture
        from tasks.training.cross_entropy import CrossEntropy

        architecture = Architecture(self.network, self.shape, self.classes, self.regularisers, self.width)
        objective = CrossEntropy(architecture, self.augmentation)
        return _trace_objective(objective, self.shape, self.batch, self.optimiser, self.precision)


@dataclass(frozen=True)
class DensityStep(_CountedOnce):
    """A training step of a density model. The unit of work is an image."""

    is_stacked: ClassVar[bool] = True

    model: str
    shape: Shape
    width: float = 1.0
    batch: int = 64
    is_private: bool = False
    images: float = 1.0  # images in a unit of work
    precision: str = "float32"

    @property
    def _share(self) -> float:
        return self.images * (PRIVATE if self.is_private else 1.0) / self.batch

    def _trace(self) -> TracedStep:
        objective = _density_objective(self.model, self.shape, self.width)
        return _trace_objective(objective, self.shape, self.batch, "adam", self.precision)


@dataclass(frozen=True)
class CodesStep(_CountedOnce):
    """The likelihood of an image given one code, as in an estimate of log p. The unit of work is a code."""

    is_stacked: ClassVar[bool] = True

    model: str
    shape: Shape
    width: float = 1.0
    codes: float = 1.0  # codes in a unit of work

    @property
    def _share(self) -> float:
        return self.codes

    def _trace(self) -> TracedStep:
        import torch

        from tasks.counting.tracing import META, Tracing
        from tasks.models.layers import Layers
        from tasks.training.density_objective import Elbo

        objective = _density_objective(self.model, self.shape, self.width)
        if not isinstance(objective, Elbo):  # a user's model: its density is one forward pass
            training = DensityStep(self.model, self.shape, self.width)
            return TracedStep(scale(training.count(), 1 / 3), training.device_bytes())
        vae = objective.vae
        with torch.no_grad(), Tracing() as tracing:
            codes = torch.randn((1, CODES, vae.latent), device=META)
            likelihood: Any = vae.decode(Layers(_without_memory(vae.weights)), codes)
            values = math.prod(vae.preparation.seen_shape)
            _likelihood(likelihood, values)
        weights = FLOAT * sum(math.prod(weight.shape) for weight in dict(vae.weights).values())
        return TracedStep(scale(tracing.operations, 1 / CODES), weights + tracing.peak_bytes)


def _likelihood(likelihood: Any, values: int) -> None:
    """Compute the likelihood of images of so many values, each with as many codes as are decoded together."""
    import torch

    from tasks.counting.tracing import META

    if hasattr(likelihood, "logits"):
        # The likelihood of binary pixels reads its sums on the host, so its passes over all pixels are repeated here.
        (likelihood.logits * torch.empty((1, 1, values), device=META)).sigmoid().sum(-1)
    else:
        likelihood.log_p(torch.empty((1, 1, values), device=META))


def _density_objective(model: str, shape: Shape, width: float) -> Any:
    import numpy as np

    from tasks.datasets.images import Images
    from tasks.models.catalog import DensityModel
    from tasks.training.density_objective import generative

    blank = np.zeros((1, *shape), np.uint8)
    labels = np.zeros(1, np.int64)
    return generative(DensityModel(model), Images(blank, labels, blank, labels, 1), width=width)


@dataclass(frozen=True)
class EncoderStep(_CountedOnce):
    """A training step of an encoder by a self-supervised or supervised criterion. The unit of work is an image.

    The step computes `batch` images in `accumulate` parts, each of which has one or two views of its images.
    """

    criterion: Criterion
    encoder: EncoderConfig
    classes: int
    batch: int
    accumulate: int
    optimiser: str
    precision: str
    is_tuning: bool = False

    def _trace(self) -> TracedStep:
        import torch

        from tasks.counting.tracing import META, Tracing
        from tasks.self_supervised.learners import Moment, learner, tuning
        from tasks.self_supervised.networks import Network
        from tasks.self_supervised.pretraining_config import Supervised

        classes = self.classes if isinstance(self.criterion, Supervised) and not self.is_tuning else 0
        with torch.device(META):
            network = Network(self.encoder, classes)
            if self.is_tuning:
                learning: Any = tuning(network, self.classes, 0)
            else:
                learning = learner(self.criterion, network, self.encoder.projector, 0)
            learning.modules.to(META).train()
            rows = max(2, self.batch // self.accumulate)
            side = self.encoder.resolution
            images = torch.empty((learning.views * rows, 3, side, side), device=META)
            labels = torch.empty(rows, dtype=torch.int64, device=META)
            with Tracing() as tracing:
                loss = learning.loss(learning.embed(images), learning.targets(images), labels, Moment(1, 0.5))
                torch.autograd.backward(loss)
        step = tracing.operations
        learned = [weight for weight in learning.modules.parameters() if weight.requires_grad]
        parameters = sum(map(_elements, learned))
        peak = tracing.peak_bytes + FLOAT * images.numel()
        if self.precision == "bfloat16":
            step = lower(step)
            peak = FLOAT * parameters + LOW_ACTIVATIONS * (peak - FLOAT * parameters)
        update = optimiser(self.optimiser, parameters, len(learned))
        views = {BYTES: float(VIEW * learning.views * 3 * side**2), LAUNCHES: 40.0 / rows}
        operations = add(scale(step, 1 / rows), scale(update, 1 / max(2, self.batch)), views)
        teacher = sum(map(_elements, learning.extra_state().values()))
        return TracedStep(operations, training_bytes(self.optimiser, parameters, teacher, peak))


@dataclass(frozen=True)
class EmbeddingStep(_CountedOnce):
    """An encoder's embeddings of an image at every layer. The unit of work is an image."""

    encoder: EncoderConfig
    classes: int = 0

    def _trace(self) -> TracedStep:
        import torch

        from tasks.counting.tracing import META, Tracing
        from tasks.self_supervised.networks import Network

        side = self.encoder.resolution
        with torch.device(META), torch.no_grad():
            network = Network(self.encoder, self.classes).eval()
            images = torch.empty((ENCODED, 3, side, side))
            with Tracing() as tracing:
                network.layers(images)
        weights = FLOAT * sum(map(_elements, network.parameters()))
        return TracedStep(scale(tracing.operations, 1 / ENCODED), weights + tracing.peak_bytes)


@dataclass(frozen=True)
class DenoisingStep(_CountedOnce):
    """A training step of a conditional diffusion model, or one sampling step. The unit of work is an image."""

    unet: UNet
    resolution: int
    features: int
    batch: int
    precision: str = "float32"
    is_sampling: bool = False

    def _trace(self) -> TracedStep:
        import torch

        from tasks.counting.tracing import META, Tracing
        from tasks.diffusion import unet
        from tasks.models.layers import Layers, Mode, weights_of

        side = self.resolution
        weights = weights_of(
            lambda layers, x: unet.network(layers, x, x.new_zeros(1, 0), x.new_zeros(1, 0, self.features), self.unet),
            (3, side, side),
        )
        tensors = _without_memory(weights)
        images = torch.empty((self.batch, 3, side, side), device=META)
        times = torch.empty((1, self.batch), dtype=torch.int64, device=META)
        vectors = torch.empty((1, self.batch, self.features), device=META)
        with torch.set_grad_enabled(not self.is_sampling), Tracing() as tracing:
            predicted = unet.network(Layers(tensors, Mode(not self.is_sampling)), images, times, vectors, self.unet)
            if not self.is_sampling:
                torch.autograd.backward((predicted - images).square().mean())
        step = lower(tracing.operations, 0.8) if self.precision == "bfloat16" else tracing.operations
        learned = [tensor for tensor in tensors.values() if tensor.requires_grad]
        parameters = sum(map(_elements, learned))
        if self.is_sampling:
            return TracedStep(scale(step, 1 / self.batch), FLOAT * parameters + tracing.peak_bytes)
        update = optimiser("adam", parameters, len(learned))
        averaged = {BYTES: 3.0 * FLOAT * parameters, LAUNCHES: float(len(learned))}
        # A moving average of the weights is kept besides the weights.
        device_bytes = training_bytes("adam", parameters, parameters, tracing.peak_bytes)
        return TracedStep(scale(add(step, update, averaged), 1 / self.batch), device_bytes)
