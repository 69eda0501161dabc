"""The loop of self-supervised training: optimisers, epochs of minibatches, and snapshots of the weights.

An optimiser updates all parameters of a torch module at once (`torch._foreach_*`). Its running statistics are plain
tensors, so that they can be stored in a checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.numerics import seeds
from tasks.numerics.precision import autocast
from tasks.self_supervised import views
from tasks.self_supervised.learners import Learner, Moment
from tasks.self_supervised.networks import tensors
from tasks.self_supervised.pretraining_config import OptimiserName, Pretraining
from tasks.self_supervised.snapshots import SNAPSHOTS, Weights, row
from tasks.self_supervised.training_set import TrainingSet
from tasks.training import memory
from tasks.training.fit import Losses, fit_link

MOMENTUM = 0.9
TRUST = 0.001


class Optimiser(Protocol):
    """Updates parameters from their gradients."""

    @property
    def moments(self) -> Mapping[str, list[Tensor]]:
        """Running statistics, in parameter order."""

    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:
        """Take one step, whose `number` is counted from 1."""


def optimiser(name: OptimiserName, parameters: list[Tensor], decay: float) -> Optimiser:
    """Return the optimiser of this name.

    Parameters with one axis (biases, batch norm gains) do not decay.
    """
    kinds: Mapping[OptimiserName, Callable[[list[Tensor], float], Optimiser]] = {
        "lars": LARS,
        "sgd": SGD,
        "adamw": AdamW,
    }
    return kinds[name](parameters, decay)


class LARS:
    """Layer-wise adaptive rate scaling: v <- 0.9 v + r (g + decay w), w <- w - rate v, r = 0.001 |w| / |g + decay w|.

    r is 1 if a norm is 0, and for parameters with one axis, which do not decay. You, Gitman & Ginsburg 2017, as in the
    code of Barlow Twins, VICReg and the audit's paper. Unlike in algorithm 1 of the first paper, the learning rate is
    outside the momentum, and the second norm is that of the sum.
    """

    def __init__(self, parameters: list[Tensor], decay: float) -> None:
        self.parameters = parameters
        self.decay = decay
        self.velocity = [torch.zeros_like(weight) for weight in parameters]
        self.moments = {"velocity": self.velocity}
        self.scaled = [index for index, weight in enumerate(parameters) if weight.dim() > 1]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:  # noqa: ARG002
        pulls = list(gradients)
        weights = [self.parameters[index] for index in self.scaled]
        sums = torch._foreach_add([gradients[index] for index in self.scaled], weights, alpha=self.decay)
        sizes = torch.stack(torch._foreach_norm(weights))
        slopes = torch.stack(torch._foreach_norm(sums))
        nonzero = (sizes > 0) & (slopes > 0)
        trust = torch.where(nonzero, TRUST * sizes / torch.where(nonzero, slopes, 1), 1)
        torch._foreach_mul_(sums, list(trust.unbind()))
        for index, pull in zip(self.scaled, sums, strict=True):
            pulls[index] = pull
        torch._foreach_mul_(self.velocity, MOMENTUM)
        torch._foreach_add_(self.velocity, pulls)
        torch._foreach_add_(self.parameters, self.velocity, alpha=-rate)


class SGD:
    """Stochastic gradient descent, as in torch.optim.SGD: v <- 0.9 v + g + decay w, w <- w - rate v."""

    def __init__(self, parameters: list[Tensor], decay: float) -> None:
        self.parameters = parameters
        self.decay = decay
        self.velocity = [torch.zeros_like(weight) for weight in parameters]
        self.moments = {"velocity": self.velocity}
        self.decaying = [index for index, weight in enumerate(parameters) if weight.dim() > 1]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:  # noqa: ARG002
        torch._foreach_mul_(self.velocity, MOMENTUM)
        torch._foreach_add_(self.velocity, gradients)
        if self.decay:
            decaying = [self.velocity[index] for index in self.decaying]
            torch._foreach_add_(decaying, [self.parameters[index] for index in self.decaying], alpha=self.decay)
        torch._foreach_add_(self.parameters, self.velocity, alpha=-rate)


class AdamW:
    """Adam with decoupled weight decay: torch.optim.AdamW with moments that exist before the first step.

    Loshchilov & Hutter 2019, algorithm 2.
    """

    def __init__(self, parameters: list[Tensor], decay: float) -> None:
        self.parameters = parameters
        groups = []
        for decaying, decays in ((True, decay), (False, 0.0)):
            groups.append(
                {"params": [weight for weight in parameters if (weight.dim() > 1) == decaying], "weight_decay": decays}
            )
        self.optimiser = torch.optim.AdamW(groups, foreach=True)
        for weight in parameters:
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[weight] = {"step": torch.tensor(0.0), **moments}
        states = [self.optimiser.state[weight] for weight in parameters]
        self.moments = {"mean": [state["exp_avg"] for state in states], "square": [s["exp_avg_sq"] for s in states]}

    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        for weight, gradient in zip(self.parameters, gradients, strict=True):
            weight.grad = gradient
            self.optimiser.state[weight]["step"].fill_(number - 1)
        self.optimiser.step()


RULE = "self-supervised 1"


class Training:
    """The training of one learner, epoch by epoch."""

    def __init__(self, config: Pretraining, learner: Learner, images: TrainingSet, device: torch.device) -> None:
        if len(images) < 2:
            raise ValueError(f"the part {config.images.part} has {len(images)} images; batch norm needs at least two")
        self.config = config
        self.learner = learner
        self.images = images
        self.device = device
        self.modules = learner.modules.to(device).to(memory_format=torch.channels_last)
        trainable = {}
        for name, weight in self.modules.named_parameters():
            if weight.requires_grad:
                trainable[name] = weight
        self.names = list(trainable)
        self.parameters = list(trainable.values())
        self.optimiser = optimiser(config.optimiser, list(self.parameters), config.weight_decay)
        self.batch = min(config.batch, len(images))
        self.steps_per_epoch = len(images) // self.batch
        self.rate = config.base_learning_rate * self.batch / 256
        self.labels = torch.from_numpy(np.array(images.labels)).to(device)
        self.sizes = torch.from_numpy(np.array(images.sizes))
        self.steps = 0
        self.parts = self.planned_parts = config.accumulate

    def run(self, index: int = 0) -> pa.Table:
        """Train all epochs, resuming from the checkpoint of the job with this index, and return SNAPSHOTS."""
        config = self.config
        rows: list[dict[str, Any]] = []

        def record(epoch: int, loss: float | None) -> None:
            rows.append(row(epoch, loss, self.weights()))

        if memory.raises_when_full(self.device):
            self.parts = self._find_parts()
        fit_link(self, index, state_name(config), config.seed, config.epochs, config.asked, record)
        return pa.Table.from_pylist(rows, schema=SNAPSHOTS)

    def take_steps(self, epoch: int) -> Iterator[Tensor]:
        """Take the steps of an epoch, counted from 1, and yield their losses."""
        self.modules.train()
        order = self._order(epoch)
        factors = self.config.rates.factors(epoch - 1 + np.arange(len(order)) / len(order))
        for step, (rows, squares) in enumerate(zip(order, self.images.squares.minibatches(order), strict=True)):
            moment = Moment(epoch, (epoch - 1 + (step + 1) / len(order)) / self.config.schedule)
            numbers = views.draw_views(self.config.seed, epoch, step, len(rows), self.learner.views)
            yield self._step(rows, squares, numbers, moment, self.rate * float(factors[step]))

    def mean_loss(self, losses: Losses) -> float:
        """Return the mean over the steps of an epoch."""
        return float(losses.mean())

    def weights(self) -> Weights:
        """Return a copy of the encoder's current weights."""
        encoder_tensors = tensors(self.modules["encoder"])
        result = {}
        for name, tensor in encoder_tensors.items():
            result[name] = np.array(tensor.cpu().numpy(), np.float32, order="C")
        return result

    def _order(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the image rows of each step, without the last, incomplete step."""
        shuffled = seeds.generator(self.config.seed, "batch order", epoch).permutation(len(self.images))
        return np.split(shuffled[: self.steps_per_epoch * self.batch], self.steps_per_epoch)

    def _step(self, rows: NDArray[np.int64], squares: Tensor, numbers: Tensor, moment: Moment, rate: float) -> Tensor:
        """Take one step on these images and return its loss, which the device may still be computing."""
        loss = self._gradients(rows, squares, numbers, moment, self.parts)
        gradients = [parameter.grad for parameter in self.parameters]
        assert all(gradient is not None for gradient in gradients)
        self.steps += 1
        self.optimiser.step([gradient for gradient in gradients if gradient is not None], rate, self.steps)
        self.learner.after_step(moment)
        return loss

    def _find_parts(self) -> int:
        """Return the number of parts in which steps fit into memory. Raises TrainingError if they do not fit."""
        rows = self._order(1)[0]
        squares = next(iter(self.images.squares.minibatches([rows])))
        numbers = views.draw_views(self.config.seed, 1, 0, len(rows), self.learner.views)
        moment = Moment(1, 1 / self.config.schedule)
        rehearsed = copy.copy(self)
        rehearsed.learner = copy.copy(self.learner)  # a loss may add to sums that `after_step` resets

        def compute(parts: int) -> None:
            self.modules.train()
            with statistics_kept(self.modules):
                rehearsed._gradients(rows, squares, numbers, moment, parts)

        obstacle = None
        if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in self.modules.modules()):
            obstacle = "batch norm would use the statistics of smaller parts, which changes the result"
        try:
            return memory.find_parts(
                compute, self.parts, self.config.batch, self.device, self.config.backbone, obstacle
            )
        finally:
            for parameter in self.parameters:
                parameter.grad = None

    def _gradients(
        self, rows: NDArray[np.int64], squares: Tensor, numbers: Tensor, moment: Moment, part_count: int
    ) -> Tensor:
        """Compute the gradients of a step on these images in parts, and return its loss."""
        size = self.config.batch // part_count
        parts = [slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]
        if len(parts) > 1 and parts[-1].stop - parts[-1].start < 2:  # if the data set has fewer images than a batch
            parts[-2:] = [slice(parts[-2].start, parts[-1].stop)]
        labels = self.labels[torch.from_numpy(rows).to(self.device)]
        sizes = self.sizes[torch.from_numpy(rows)]

        def images(part: slice) -> Tensor:
            return self._images(squares[part], sizes[part], numbers[:, part])

        for parameter in self.parameters:
            parameter.grad = None
        is_coupled = self.learner.coupled and len(parts) > 1
        if is_coupled:
            loss = self._coupled_gradients(parts, images, labels, moment)
        else:
            loss = self._apart(parts, images, labels, moment)
        return loss

    def _apart(self, parts: list[slice], images: Callable[[slice], Tensor], labels: Tensor, moment: Moment) -> Tensor:
        """Compute the gradients of a loss that is a mean over images, part by part."""
        total = torch.zeros((), device=self.device)
        for part in parts:
            part_images = images(part)
            with self._precision():
                embeddings = self.learner.embed(part_images)
                targets = self.learner.targets(part_images)
            loss = self.learner.loss(embeddings, targets, labels[part], moment)
            loss = loss * ((part.stop - part.start) / len(labels))
            loss.backward()
            total += loss.detach()
        return total

    def _coupled_gradients(
        self, parts: list[slice], images: Callable[[slice], Tensor], labels: Tensor, moment: Moment
    ) -> Tensor:
        """Compute the gradients of a loss of the whole minibatch with the memory of one part.

        First the embeddings of all parts are computed without a graph, then the loss and its gradient with respect to
        them. Then each part is computed again, and the gradient of its embeddings is passed back. Gao et al. 2021,
        "Scaling deep contrastive learning batch size under memory limited setup", section 3.2.
        """
        embedding_parts = []
        with torch.no_grad(), statistics_kept(self.modules):
            for part in parts:
                part_images = images(part)
                with self._precision():
                    embedding_parts.append(self.learner.embed(part_images))
        embeddings = torch.cat(embedding_parts, 1).requires_grad_()
        loss = self.learner.loss(embeddings, None, labels, moment)
        (slopes,) = torch.autograd.grad(loss, embeddings)
        for part in parts:
            part_images = images(part)
            with self._precision():
                part_embeddings = self.learner.embed(part_images)
            part_embeddings.backward(slopes[:, part])  # type: ignore[no-untyped-call]
        return loss.detach()

    def _images(self, squares: Tensor, sizes: Tensor, numbers: Tensor) -> Tensor:
        """Return the views of images, (views n, 3, r, r), one view after another."""
        config = self.config.augmentation
        view_list = []
        for index, view_numbers in enumerate(numbers):
            view_list.append(views.view(config, squares, views.drawing(config, view_numbers, sizes, index)))
        return torch.cat(view_list).contiguous(memory_format=torch.channels_last)

    def _precision(self) -> torch.autocast:
        return autocast(self.device.type, self.config.precision, has_cache=True)

    def arrays(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint.

        These are the weights, the optimiser's statistics and other tensors of the learner.
        """
        arrays = {f"weight {name}": tensor for name, tensor in tensors(self.modules).items()}
        for moment, values in self.optimiser.moments.items():
            arrays |= {f"{moment} {name}": value for name, value in zip(self.names, values, strict=True)}
        return arrays | {f"beside {name}": tensor for name, tensor in self.learner.extra_state().items()}


@contextmanager
def statistics_kept(module: nn.Module) -> Iterator[None]:
    """Leave the running means and variances of batch norm unchanged inside this context."""
    norms = []
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            norms.append(part)
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum


def state_name(config: Pretraining) -> str:
    """Return the name of a training's checkpoints: its configuration without its length and recorded epochs."""
    return f"{RULE}: {replace(config, epochs=1, recorded=())}"
