"""Reference trainings: one model, autograd, torch's optimisers, no padding, no stack."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tasks.models.counter_rng import CounterRng, member_key, step_keys
from tasks.models.layers import Mode
from tasks.numerics import seeds
from tasks.training.members import Epoch, Member, Spec
from tasks.training.objective import AfterStep, Batch
from tasks.worker.hardware import threads


@dataclass
class Plain:
    """A model after each of its epochs."""

    weights: dict[int, dict[str, np.ndarray]]  # by epoch
    history: list[Epoch]


def train(spec: Spec, member: Member, epochs: int, kept_epochs: Sequence[int] | None = None) -> Plain:
    """The model after each of the epochs, or after the `kept_epochs`."""
    with threads(1):
        return trained(spec, member, epochs, kept_epochs)


def trained(spec: Spec, member: Member, epochs: int, kept_epochs: Sequence[int] | None) -> Plain:
    dtype = getattr(torch, spec.recipe.precision)
    weights = spec.learning.weights
    start = spec.learning.initial(member.seed)
    values = {name: torch.from_numpy(start[name]).to(dtype) for name in weights}
    learned = [values[name].requires_grad_() for name, weight in weights.items() if weight.learned]
    tensors = {name: tensor[None] for name, tensor in values.items()}
    optimiser = optimiser_of(spec, member, learned)
    first = optimiser.param_groups[0]["lr"]
    images = spec.images.train_images.copy()
    for row, image in member.replaced.items():
        images[row] = image
    result = Plain({}, [])
    steps = 0
    for epoch in range(1, epochs + 1):
        rows = member.rows[seeds.generator(member.seed, "batch order", epoch).permutation(len(member.rows))]
        losses = []
        begins = range(0, len(rows), spec.recipe.batch)
        for begin in begins:
            for group in optimiser.param_groups:
                group["lr"] = first * spec.recipe.factor(epoch)
            batch = rows[begin : begin + spec.recipe.batch]
            optimiser.zero_grad()
            loss = 0.0
            size = spec.recipe.batch // spec.recipe.accumulate
            for part, offset in enumerate(range(0, len(batch), size)):
                keys = step_keys(torch.tensor([member_key(member.seed)]), torch.tensor([steps]))
                draws = CounterRng(keys if spec.recipe.accumulate == 1 else step_keys(keys, torch.tensor([part])))
                part_rows = batch[offset : offset + size]
                tensors = {name: tensor[None] for name, tensor in values.items()}
                losses_of_rows = spec.learning.losses(
                    tensors, laid_out(images[part_rows], spec.images.train_labels[part_rows], Mode(True, draws))
                )
                if spec.learning.total:
                    share = losses_of_rows.sum()
                else:
                    share = losses_of_rows.sum() / len(batch)
                share.backward()
                loss += share.item()
            optimiser.step()
            steps += 1
            if isinstance(spec.learning, AfterStep):
                passed = epoch - 1 + (begin // spec.recipe.batch + 1) / len(begins)
                with torch.no_grad():
                    spec.learning.after_step(tensors, torch.tensor([passed], dtype=torch.float64))
            losses.append(loss)
        if spec.learning.total:
            train_loss = sum(losses) / len(member.rows)
        else:
            train_loss = float(np.mean(losses))
        result.history.append(Epoch(epoch, train_loss, *assessed(spec, member, tensors)))
        if kept_epochs is None or epoch in kept_epochs:
            result.weights[epoch] = {name: tensor.detach().numpy().copy() for name, tensor in values.items()}
    return result


def optimiser_of(spec: Spec, member: Member, learned: list[Tensor]) -> torch.optim.Optimizer:
    if member.learning_rate is None:
        rate = spec.recipe.learning_rate
    else:
        rate = member.learning_rate
    if spec.recipe.optimiser == "rmsprop":
        return torch.optim.RMSprop(learned, lr=rate, alpha=0.9, eps=spec.recipe.epsilon)
    # Fused, because deep networks amplify the last digit, and Adam's other forms round it differently.
    return torch.optim.Adam(learned, lr=rate, eps=spec.recipe.epsilon, fused=True)


def laid_out(images: np.ndarray, labels: np.ndarray, mode: Mode) -> Batch:
    pixels = torch.from_numpy(np.array(images).reshape(1, len(images), -1))
    return Batch(pixels, torch.from_numpy(np.array(labels))[None], mode)


def assessed(spec: Spec, member: Member, tensors: dict[str, Tensor]) -> tuple[float, float]:
    with torch.no_grad():
        draws = CounterRng(torch.tensor([member_key(member.seed)]), torch.tensor([-1]))
        batch = laid_out(spec.images.test_images, spec.images.test_labels, Mode(draws=draws))
        losses, right = spec.learning.evaluate_rows(tensors, batch)
    return losses.mean().item(), math.nan if right is None else right.double().mean().item()
