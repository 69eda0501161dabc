"""Count the operations and the memory of steps by computing them once on tensors without memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.contract.operations import (
    ATTENTION,
    BYTES,
    CONVOLUTION,
    LAUNCHES,
    LOW,
    PRODUCT,
    CountedStep,
    Operations,
    Step,
    add,
    scale,
)
from tasks.counting.tracing import META, Tracing
from tasks.datasets.images import Images
from tasks.diffusion import unet
from tasks.diffusion.described_steps import DenoisingStep
from tasks.models.catalog import DensityModel, Shape
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Layers, Mode, Weight, weights_of
from tasks.models.networks import Architecture
from tasks.self_supervised.described_steps import EmbeddingStep, EncoderStep
from tasks.self_supervised.learners import Moment, learner, tuning
from tasks.self_supervised.networks import Network
from tasks.self_supervised.pretraining_config import Supervised
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo, generative
from tasks.training.described_steps import ClassifierStep, CodesStep, DensityStep
from tasks.training.objective import Batch, Mirrors
from tasks.training.update_costs import FLOAT, MOMENTS, optimiser, training_bytes

# Bytes for each value of a view: a window is resized, blurred and recoloured in about 15 passes.
VIEW = 30 * FLOAT
LOW_ACTIVATIONS = 0.6  # share of the bytes of activations with bfloat16, which batch norm and losses do not use
ENCODED = 256  # images that an encoder embeds at a time
CODES = 1024  # codes that a decoder decodes at a time


@singledispatch
def trace(step: Step) -> CountedStep:
    """Return the operations of a step for one unit of work, and its memory."""
    raise TypeError(f"steps of {type(step).__name__} cannot be traced")


@trace.register
def _trace_classifier(step: ClassifierStep) -> CountedStep:
    architecture = Architecture(step.network, step.shape, step.classes, step.regularisers, step.width)
    objective = CrossEntropy(architecture, step.augmentation)
    whole = _trace_objective(objective, step.shape, step.batch, step.optimiser, step.precision)
    return CountedStep(scale(whole.operations, step.share), whole.device_bytes)


@trace.register
def _trace_density(step: DensityStep) -> CountedStep:
    objective = _density_objective(step.model, step.shape, step.width)
    whole = _trace_objective(objective, step.shape, step.batch, "adam", step.precision)
    return CountedStep(scale(whole.operations, step.share), whole.device_bytes)


@trace.register
def _trace_codes(step: CodesStep) -> CountedStep:
    objective = _density_objective(step.model, step.shape, step.width)
    if not isinstance(objective, Elbo):  # a user's model: its density is one forward pass
        training = trace(DensityStep(step.model, step.shape, step.width))
        return CountedStep(scale(training.operations, step.codes / 3), training.device_bytes)
    vae = objective.vae
    with torch.no_grad(), Tracing() as tracing:
        codes = torch.randn((1, CODES, vae.latent), device=META)
        likelihood: Any = vae.decode(Layers(_without_memory(vae.weights)), codes)
        _compute_likelihood(likelihood, math.prod(vae.preparation.seen_shape))
    weights = FLOAT * sum(math.prod(weight.shape) for weight in vae.weights.values())
    return CountedStep(scale(tracing.operations, step.codes / CODES), weights + tracing.peak_bytes)


@trace.register
def _trace_encoder(step: EncoderStep) -> CountedStep:
    classes = step.classes if isinstance(step.criterion, Supervised) and not step.is_tuning else 0
    with torch.device(META):
        network = Network(step.encoder, classes)
        if step.is_tuning:
            learning: Any = tuning(network, step.classes, 0)
        else:
            learning = learner(step.criterion, network, step.encoder.projector, 0)
        learning.modules.to(META).train()
        rows = max(2, step.batch // step.accumulate)
        side = step.encoder.resolution
        images = torch.empty((learning.views * rows, 3, side, side), device=META)
        labels = torch.empty(rows, dtype=torch.int64, device=META)
        with Tracing() as tracing:
            loss = learning.loss(learning.embed(images), learning.targets(images), labels, Moment(1, 0.5))
            torch.autograd.backward(loss)
    learned = [weight for weight in learning.modules.parameters() if weight.requires_grad]
    parameters = _count(learned)
    traced = CountedStep(tracing.operations, tracing.peak_bytes + FLOAT * images.numel())
    if step.precision == "bfloat16":
        traced = _with_low_activations(traced, parameters)
    update = optimiser(step.optimiser, parameters, len(learned))
    views = {BYTES: float(VIEW * learning.views * 3 * side**2), LAUNCHES: 40.0 / rows}
    operations = add(scale(traced.operations, 1 / rows), scale(update, 1 / max(2, step.batch)), views)
    teacher = _count(learning.extra_state().values())
    return CountedStep(operations, training_bytes(step.optimiser, parameters, teacher, traced.device_bytes))


@trace.register
def _trace_embedding(step: EmbeddingStep) -> CountedStep:
    side = step.encoder.resolution
    with torch.device(META), torch.no_grad():
        network = Network(step.encoder, step.classes).eval()
        images = torch.empty((ENCODED, 3, side, side))
        with Tracing() as tracing:
            network.layers(images)
    weights = FLOAT * _count(network.parameters())
    return CountedStep(scale(tracing.operations, 1 / ENCODED), weights + tracing.peak_bytes)


@trace.register
def _trace_denoising(step: DenoisingStep) -> CountedStep:
    side = step.resolution
    weights = weights_of(
        lambda layers, x: unet.network(layers, x, x.new_zeros(1, 0), x.new_zeros(1, 0, step.features), step.unet),
        (3, side, side),
    )
    tensors = _without_memory(weights)
    images = torch.empty((step.batch, 3, side, side), device=META)
    times = torch.empty((1, step.batch), dtype=torch.int64, device=META)
    vectors = torch.empty((1, step.batch, step.features), device=META)
    with torch.set_grad_enabled(not step.is_sampling), Tracing() as tracing:
        predicted = unet.network(Layers(tensors, Mode(not step.is_sampling)), images, times, vectors, step.unet)
        if not step.is_sampling:
            torch.autograd.backward((predicted - images).square().mean())
    operations = lower(tracing.operations, 0.8) if step.precision == "bfloat16" else tracing.operations
    learned = [tensor for tensor in tensors.values() if tensor.requires_grad]
    parameters = _count(learned)
    if step.is_sampling:
        return CountedStep(scale(operations, 1 / step.batch), FLOAT * parameters + tracing.peak_bytes)
    update = optimiser("adam", parameters, len(learned))
    averaged = {BYTES: 3.0 * FLOAT * parameters, LAUNCHES: float(len(learned))}
    # A moving average of the weights is kept besides the weights.
    device_bytes = training_bytes("adam", parameters, parameters, tracing.peak_bytes)
    return CountedStep(scale(add(operations, update, averaged), 1 / step.batch), device_bytes)


def _trace_objective(objective: Any, shape: Shape, batch: int, optimiser_name: str, precision: str) -> CountedStep:
    """Trace a training step of an objective on `batch` images. The unit of work is the step."""
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
    parameters = _count(learned)
    traced = CountedStep(tracing.operations, tracing.peak_bytes)
    if precision == "bfloat16":
        traced = _with_low_activations(traced, parameters)
    operations = add(traced.operations, optimiser(optimiser_name, parameters, len(learned)))
    fixed = _count(tensors.values()) - parameters
    # Weights, moments and the best weights, and the copies of weights and moments with which a step is recorded.
    kept = 2 * (1 + MOMENTS[optimiser_name]) + 1
    return CountedStep(operations, FLOAT * (kept * parameters + 2 * fixed) + traced.device_bytes)


def _compute_likelihood(likelihood: Any, values: int) -> None:
    """Compute the likelihood of images of so many values, each with as many codes as are decoded together."""
    if hasattr(likelihood, "logits"):
        # The likelihood of binary pixels reads its sums on the host, so its passes over all pixels are repeated here.
        (likelihood.logits * torch.empty((1, 1, values), device=META)).sigmoid().sum(-1)
    else:
        likelihood.log_p(torch.empty((1, 1, values), device=META))


def _density_objective(model: str, shape: Shape, width: float) -> Any:
    blank = np.zeros((1, *shape), np.uint8)
    labels = np.zeros(1, np.int64)
    return generative(DensityModel(model), Images(blank, labels, blank, labels, 1), width=width)


def _with_low_activations(traced: CountedStep, parameters: int) -> CountedStep:
    """Return a step in bfloat16. Gradients, which are part of its memory, stay in float32."""
    gradients = FLOAT * parameters
    low_bytes = gradients + LOW_ACTIVATIONS * (traced.device_bytes - gradients)
    return CountedStep(lower(traced.operations), low_bytes)


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


def _without_memory(weights: Mapping[str, Weight]) -> dict[str, Tensor]:
    """Return tensors of these weights for one model, which use no memory."""
    tensors = {}
    for name, weight in weights.items():
        tensors[name] = torch.empty((1, *weight.shape), device=META, requires_grad=weight.learned)
    return tensors


def _count(tensors: Iterable[Tensor]) -> int:
    """Return the number of elements of all tensors."""
    return sum(tensor.numel() for tensor in tensors)
