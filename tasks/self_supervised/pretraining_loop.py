"""The loop of self-supervised training: optimisers, epochs of minibatches, and snapshots of the weights.

An optimiser updates all parameters of a torch module at once (`torch._foreach_*`). Its running statistics are plain
tensors, so that they can be stored in a checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.models.synchronised_norm import synchronise_norms
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
from tasks.worker.gradient_sums import GradientSums
from tasks.worker.ranks import add_over_ranks, current_ranks, join_rows, row_counts, share_rows

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


@dataclass(frozen=True)
class Share:
    """This rank's share of a part of a step: the images in the minibatch, and among those that this rank has read."""

    part: slice  # of the minibatch
    rows: slice  # of the minibatch
    read: slice

    @property
    def counts(self) -> list[int]:
        """The number of images of each rank."""
        return row_counts(self.part.stop - self.part.start)


class Training:
    """The training of one learner, epoch by epoch.

    The ranks of a process group share the images of every part of a step. Batch norm, a loss that couples images, and
    the gradients refer to the whole part, so that the ranks compute what one process would, up to rounding.
    """

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
        self.gradient_sums = GradientSums(self.parameters)
        self.optimiser = optimiser(config.optimiser, list(self.parameters), config.weight_decay)
        self.batch = min(config.batch, len(images))
        self.steps_per_epoch = len(images) // self.batch
        self.rate = config.base_learning_rate * self.batch / 256
        self.labels = torch.from_numpy(np.array(images.labels)).to(device)
        self.sizes = torch.from_numpy(np.array(images.sizes))
        self.steps = 0
        self.parts = self.planned_parts = config.accumulate
        synchronise_norms(self.modules)
        self._check_ranks()

    def _check_ranks(self) -> None:
        """Raise ValueError if there are more ranks than images in a part of a step."""
        fewest = min(part.stop - part.start for part in self._parts(self.batch))
        size = current_ranks().size
        if fewest < size:
            raise ValueError(
                f"{size} processes train each model together, but a part of a step has {fewest} images; set "
                f"gpus_per_job or processes_per_job to {fewest} or less, or lower accumulate"
            )

    def run(self, index: int = 0) -> pa.Table:
        """Train all epochs, resuming from the checkpoint of the job with this index, and return SNAPSHOTS."""
        config = self.config
        rows: list[dict[str, Any]] = []

        def record(epoch: int, loss: float | None) -> None:
            if current_ranks().is_first:
                rows.append(row(epoch, loss, self.weights()))

        if memory.raises_when_full(self.device) and current_ranks().size == 1:
            self.parts = self._find_parts()
        fit_link(self, index, state_name(config), config.seed, config.epochs, config.asked, record)
        return pa.Table.from_pylist(rows, schema=SNAPSHOTS)

    def take_steps(self, epoch: int) -> Iterator[Tensor]:
        """Take the steps of an epoch, counted from 1, and yield their losses."""
        self.modules.train()
        order = self._order(epoch)
        factors = self.config.rates.factors(epoch - 1 + np.arange(len(order)) / len(order))
        read = np.concatenate([np.arange(share.rows.start, share.rows.stop) for share in self._shares(self.batch)])
        minibatches = self.images.squares.minibatches([rows[read] for rows in order])
        for step, (rows, squares) in enumerate(zip(order, minibatches, strict=True)):
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

    def _parts(self, count: int) -> list[slice]:
        """Return the parts of a step with this number of images."""
        size = self.config.batch // self.parts
        parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        if len(parts) > 1 and parts[-1].stop - parts[-1].start < 2:  # if the data set has fewer images than a batch
            parts[-2:] = [slice(parts[-2].start, parts[-1].stop)]
        return parts

    def _shares(self, count: int) -> list[Share]:
        """Return this rank's share of each part of a step with this number of images."""
        shares = []
        first = 0
        for part in self._parts(count):
            rows = share_rows(part.start, part.stop)
            read = slice(first, first + rows.stop - rows.start)
            shares.append(Share(part, rows, read))
            first = read.stop
        return shares

    def _step(self, rows: NDArray[np.int64], squares: Tensor, numbers: Tensor, moment: Moment, rate: float) -> Tensor:
        """Take one step on these images and return its loss, which the device may still be computing.

        `squares` has this rank's share of the images.
        """
        loss = self._gradients(rows, squares, numbers, moment)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        assert len(gradients) == len(self.parameters)
        self.steps += 1
        self.optimiser.step(gradients, rate, self.steps)
        self.learner.after_step(moment)
        return loss

    def _find_parts(self) -> int:
        """Return the number of parts in which steps fit into memory. Raises TrainingError if they do not fit."""
        rows = self._order(1)[0]
        read = np.concatenate([np.arange(share.rows.start, share.rows.stop) for share in self._shares(self.batch)])
        squares = next(iter(self.images.squares.minibatches([rows[read]])))
        numbers = views.draw_views(self.config.seed, 1, 0, len(rows), self.learner.views)
        moment = Moment(1, 1 / self.config.schedule)
        rehearsed = copy.copy(self)
        rehearsed.learner = copy.copy(self.learner)  # a loss may add to sums that `after_step` resets

        def compute(parts: int) -> None:
            rehearsed.parts = parts
            self.modules.train()
            with statistics_kept(self.modules):
                rehearsed._gradients(rows, squares, numbers, moment)

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

    def _gradients(self, rows: NDArray[np.int64], squares: Tensor, numbers: Tensor, moment: Moment) -> Tensor:
        """Compute the gradients of a step on these images, and return its loss. Each rank computes its share."""
        shares = self._shares(len(rows))
        labels = self.labels[torch.from_numpy(rows).to(self.device)]
        sizes = self.sizes[torch.from_numpy(rows)]

        def images(share: Share) -> Tensor:
            return self._images(squares[share.read], sizes[share.rows], numbers[:, share.rows])

        for parameter in self.parameters:
            parameter.grad = None
        is_coupled = self.learner.coupled and (len(shares) > 1 or current_ranks().size > 1)
        if is_coupled:
            loss = self._coupled_gradients(shares, images, labels, moment)
        else:
            loss = self._apart(shares, images, labels, moment)
        return loss

    def _apart(self, shares: list[Share], images: Callable[[Share], Tensor], labels: Tensor, moment: Moment) -> Tensor:
        """Compute the gradients of a loss that is a mean over images, part by part."""
        total = torch.zeros((), device=self.device)
        for number, share in enumerate(shares, 1):
            part_images = images(share)
            with self._precision():
                embeddings = self.learner.embed(part_images)
                targets = self.learner.targets(part_images)
            loss = self.learner.loss(embeddings, targets, labels[share.rows], moment)
            loss = loss * ((share.rows.stop - share.rows.start) / len(labels))
            with self.gradient_sums.add(number == len(shares)):
                loss.backward()
            total += loss.detach()
        add_over_ranks([total])
        return total

    def _coupled_gradients(
        self, shares: list[Share], images: Callable[[Share], Tensor], labels: Tensor, moment: Moment
    ) -> Tensor:
        """Compute the gradients of a loss of the whole minibatch with the memory of this rank's share of one part.

        First the embeddings of all parts are computed without a graph, then the loss and its gradient with respect to
        them. Then each part is computed again, and the gradient of its embeddings is passed back. Gao et al. 2021,
        "Scaling deep contrastive learning batch size under memory limited setup", section 3.2. If there is only one
        part, its graph is kept instead.
        """
        if len(shares) == 1:
            with self._precision():
                own_embeddings = self.learner.embed(images(shares[0]))
            loss, slopes = self._loss_and_slopes(shares, [own_embeddings], labels, moment)
            with self.gradient_sums.add():
                own_embeddings.backward(slopes[:, shares[0].rows])  # type: ignore[no-untyped-call]
            return loss
        embedding_parts = []
        with torch.no_grad(), statistics_kept(self.modules):
            for share in shares:
                part_images = images(share)
                with self._precision():
                    embedding_parts.append(self.learner.embed(part_images))
        loss, slopes = self._loss_and_slopes(shares, embedding_parts, labels, moment)
        for number, share in enumerate(shares, 1):
            part_images = images(share)
            with self._precision():
                part_embeddings = self.learner.embed(part_images)
            with self.gradient_sums.add(number == len(shares)):
                part_embeddings.backward(slopes[:, share.rows])  # type: ignore[no-untyped-call]
        return loss

    def _loss_and_slopes(
        self, shares: list[Share], embedding_parts: list[Tensor], labels: Tensor, moment: Moment
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of the whole minibatch and its gradient with respect to the embeddings of all its images."""
        joined = []
        for share, embeddings in zip(shares, embedding_parts, strict=True):
            joined.append(join_rows(embeddings, 1, share.counts))
        all_embeddings = torch.cat(joined, 1).requires_grad_()
        loss = self.learner.loss(all_embeddings, None, labels, moment)
        (slopes,) = torch.autograd.grad(loss, all_embeddings)
        return loss.detach(), slopes

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
