"""The plain way to train many models: one after another, each as fast as one core goes.

Adam and cross-entropy with early stopping on the validation loss, written out without autograd: a minibatch is one
gather from the resident bytes, and a step a dozen matrix products and one fused update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks import seeds
from tasks.datasets.images import Images
from tasks.devices import device
from tasks.models import mlp1, perceptron
from tasks.models.products import products
from tasks.threads import threads
from tasks.training.adam import Adam
from tasks.training.flat import Flat
from tasks.training.members import Epoch, Member, Recipe, Trained, TrainingError
from tasks.training.resident import Resident, resident

VALIDATED_AT_ONCE = 512  # rows


def loop(
    recipe: Recipe, images: Images, members: Sequence[Member], place: torch.device | None = None
) -> Iterator[tuple[int, Trained | Exception]]:
    """Each member's index with its trained model, or the TrainingError that ended it alone."""
    data = resident(images, place or device())
    for index, member in enumerate(members):
        outcome: Trained | Exception
        try:
            with threads(1), torch.inference_mode():
                outcome = trained(recipe, data, member)
        except TrainingError as error:
            outcome = error
        yield index, outcome


def trained(recipe: Recipe, data: Resident, member: Member) -> Trained:
    """The member's model at its epoch of least validation loss."""
    model = Model(recipe, data, member)
    best, best_loss, best_weights = 0, float("inf"), model.weights.buffer.clone()
    history: list[Epoch] = []
    while len(history) < recipe.epochs and len(history) - best < recipe.patience:
        epoch = len(history) + 1
        train_loss = model.train(epoch)
        validation_loss, accuracy = model.validate()
        if not np.isfinite(validation_loss):
            raise TrainingError(not_finite("validation loss", f"after epoch {epoch}", member.seed))
        history.append(Epoch(epoch, train_loss, validation_loss, accuracy))
        if validation_loss < best_loss:
            best, best_loss = epoch, validation_loss
            best_weights.copy_(model.weights.buffer)
    model.weights.buffer.copy_(best_weights)
    weights = {name: np.array(values.cpu().numpy()) for name, values in model.weights.views.items()}
    return Trained(best, tuple(history), weights)


def not_finite(what: str, where: str, seed: int) -> str:
    return f"{what} is not finite {where} (seed {seed}); try a lower learning rate"


class Model:
    """One member in training: its weights, its optimiser, and its data."""

    def __init__(self, recipe: Recipe, data: Resident, member: Member) -> None:
        place, dtype = data.train.device, getattr(torch, recipe.precision)
        self.recipe, self.data, self.member, self.dtype = recipe, data, member, dtype
        start = initial(architecture(data).weights, member.seed)
        shapes = {name: values.shape for name, values in start.items()}
        self.weights = Flat(shapes, place, dtype)
        for name, values in start.items():
            self.weights.views[name].copy_(torch.from_numpy(values))
        self.layers = perceptron.layers(self.weights.views)
        self.adam = Adam(self.weights, recipe.learning_rate)
        self.by = products(place, dtype)
        self.minus_one = torch.full((1, recipe.batch), -1.0, dtype=dtype, device=place)
        self.replaced = {
            row: torch.from_numpy(np.array(image)).reshape(-1).to(place) for row, image in member.replaced.items()
        }

    def train(self, epoch: int) -> float:
        """One pass over the member's rows in the epoch's order; the mean of the batches' losses, in nats."""
        order = epoch_order(self.member, epoch)
        rows = torch.from_numpy(order).to(self.data.train.device)
        changed = positions(order, self.replaced, self.recipe.batch)
        starts = range(0, len(order), self.recipe.batch)
        losses = torch.empty(len(starts), dtype=self.dtype, device=rows.device)
        for step, start in enumerate(starts):
            chosen = rows[start : start + self.recipe.batch]
            pixels = torch.index_select(self.data.train, 0, chosen)
            for place, row in changed.get(step, ()):
                pixels[place] = self.replaced[row]
            losses[step] = self.step(pixels, torch.index_select(self.data.train_labels, 0, chosen))
        self.check(losses, epoch)
        return float(losses.double().mean())

    def step(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """One update by a minibatch; the loss before it."""
        values = perceptron.activations(self.layers, pixels.to(self.dtype).mul_(1 / 255), self.by)
        # Classes by rows, since torch's softmax over a short inner axis takes four times as long.
        log_p = torch.log_softmax(values[-1].t().contiguous(), 0)
        places, count = labels[None], len(labels)
        loss = log_p.gather(0, places).mean().neg_()
        # The slope of the mean of -log p(label) in the logits is (p - one-hot) / count.
        slope = log_p.exp_().scatter_add_(0, places, self.minus_one[:, :count]).div_(count).t()
        self.adam.step(perceptron.slopes(self.layers, values, slope, self.by))
        return loss

    def check(self, losses: Tensor, epoch: int) -> None:
        """TrainingError naming the first step, counted from 1 over all epochs, whose loss is not finite."""
        bad = torch.nonzero(~torch.isfinite(losses))
        if len(bad):
            step = (epoch - 1) * len(losses) + int(bad[0]) + 1
            raise TrainingError(not_finite("loss", f"at step {step}", self.member.seed))

    def validate(self) -> tuple[float, float]:
        """Mean cross-entropy (nats) and accuracy on the test split."""
        test, labels = self.data.test, self.data.test_labels
        loss, right = 0.0, 0
        for start in range(0, len(test), VALIDATED_AT_ONCE):
            rows = test[start : start + VALIDATED_AT_ONCE].to(self.dtype).mul_(1 / 255)
            truth = labels[start : start + VALIDATED_AT_ONCE, None]
            log_p = torch.log_softmax(perceptron.activations(self.layers, rows, self.by)[-1], 1)
            loss -= float(log_p.gather(1, truth).double().sum())
            right += int((log_p.argmax(1, keepdim=True) == truth).sum())
        return loss / len(test), right / len(test)


def epoch_order(member: Member, epoch: int) -> NDArray[np.int64]:
    """The member's rows in the order of that epoch (from 1)."""
    shuffle = seeds.generator(member.seed, "batch order", epoch).permutation(len(member.rows))
    return member.rows[shuffle]


def positions(order: NDArray[np.int64], replaced: Mapping[int, Tensor], batch: int) -> dict[int, list[tuple[int, int]]]:
    """Where replaced rows fall: step -> (place in the minibatch, row)."""
    found: dict[int, list[tuple[int, int]]] = {}
    for row in replaced:
        for position in np.flatnonzero(order == row).tolist():
            found.setdefault(position // batch, []).append((position % batch, row))
    return found
