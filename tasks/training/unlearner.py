"""Take the steps of unlearning methods, one model at a time.

Each method is a sequence of passes over images, either kept or to be forgotten, each with its own loss. All passes
share the weights and the optimiser. Methods differ only in their losses and the order of passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.images import Opened, Splits
from tasks.datasets.picture_rows import Replaced
from tasks.models.counter_rng import member_key
from tasks.models.layers import EVALUATION, Weight
from tasks.models.networks import Weights, model_weights
from tasks.numerics import seeds
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.device_data import DeviceData, place_images
from tasks.training.fit import Losses, fit, read_losses
from tasks.training.members import Epoch, Member, Spec, Trained, minibatches, not_finite, order
from tasks.training.objective import Batch
from tasks.training.optimisers import ParameterBuffer, optimiser_of
from tasks.training.recipe import Recipe
from tasks.training.stack import fill
from tasks.training.step import Clock, Step, origins
from tasks.training.unlearning_config import Distillation, GradientAscent, Method, RandomLabels, TuningOnKept
from tasks.worker import hardware
from tasks.worker.ranks import add_over_ranks, share_blocks

Rows = NDArray[np.int64]
Tensors = Mapping[str, Tensor]
Loss = Callable[[Tensors, Batch], Tensor]
TakeSteps = Callable[[int], Iterator[Tensor]]

ASKED = 1000  # maximum number of images on which the stopping loss of gradient ascent is measured
ASKED_AT_ONCE = 512  # rows evaluated at a time


def unlearn_model(
    learning: CrossEntropy,
    recipe: Recipe,
    method: Method,
    images: Splits,
    kept_rows: Rows,
    forgotten_rows: Rows,
    weights: Weights,
    seed: int,
    device: torch.device | None = None,
) -> Trained:
    """Return the model with these weights after it has unlearned these training images, with its losses by epoch.

    Raises TrainingError if a loss is not finite.
    """
    device = device or hardware.device()
    if isinstance(method, RandomLabels):
        images = with_random_labels(images, forgotten_rows, learning.architecture.classes, seed)
    with hardware.exactly(device):
        model = Unlearner(learning, recipe, images, weights, seed, device)
        match method:
            case TuningOnKept():
                history = _train_on(model, method, kept_rows)
            case GradientAscent():
                history = ascend(model, method, forgotten_rows)
            case RandomLabels():
                history = _train_on(model, method, np.append(kept_rows, forgotten_rows))
            case Distillation():
                history = _distil(model, method, kept_rows, forgotten_rows)
        return Trained(len(history), tuple(history), model_weights(model.tensors, 0))


class Unlearner:
    """A model that is unlearning: its weights, its optimiser, and passes over images."""

    def __init__(
        self,
        learning: CrossEntropy,
        recipe: Recipe,
        images: Splits,
        weights: Weights,
        seed: int,
        device: torch.device,
    ) -> None:
        self.learning = learning
        self.recipe = recipe
        self.images = images
        self.seed = seed
        self.data: DeviceData = place_images(images, device)
        shapes = learning.weights
        learned = {name: weight.shape for name, weight in shapes.items() if weight.learned}
        fixed = {name: weight.shape for name, weight in shapes.items() if not weight.learned}
        self.learned = ParameterBuffer(learned, 1, device, torch.float32)
        self.fixed = ParameterBuffer(fixed, 1, device, torch.float32)
        fill(0, weights, self.learned, self.fixed)
        self.optimiser = optimiser_of(recipe, self.learned)
        self.keys = torch.full((1,), member_key(seed), dtype=torch.int64, device=device)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Views of the weights by name, (1, *shape), in the network's order."""
        result = {}
        for name in self.learning.weights:
            result[name] = (self.learned.views | self.fixed.views)[name]
        return result

    def fit(self, epochs: int, take_steps: TakeSteps, stop: Callable[[], bool] = lambda: False) -> list[Epoch]:
        """Train with these steps for this number of epochs, or until `stop` returns True after an epoch."""
        history: list[Epoch] = []

        def after_epoch(epoch: int, losses: Losses) -> bool:
            history.append(self.epoch(epoch, losses))
            return stop()

        fit(range(1, epochs + 1), take_steps, after_epoch, self.seed)
        return history

    def steps(self, losses: Loss | None, rows: Rows, epoch: int, rate: float, over: str) -> Iterator[Tensor]:
        """Take one pass over the rows in the order of an epoch, with this learning rate, yielding each step's loss.

        `losses` is the loss to minimise, by default the cross-entropy. `over` names the pass, which has its own order.
        """
        objective = self.learning if losses is None else Learned(self.learning, losses)
        spec = Spec(objective, self.recipe, self.images)
        per_epoch = torch.full_like(self.keys, minibatches(len(rows), self.recipe.batch))
        clock = Clock(self.keys, per_epoch, origins(len(self.data.train_labels), ()).to(self.keys.device))
        step = Step(spec, self.data, self.learned, self.fixed, self.optimiser, clock)
        self.optimiser.rates.fill_(rate)
        member = Member(seeds.derive(self.seed, over), rows)
        for minibatch in order(member, epoch, self.recipe.batch, {}):
            real = torch.from_numpy(minibatch[minibatch >= 0][None]).to(self.keys.device)
            yield step.take(real, False, [0], None)[0]

    def epoch(self, number: int, losses: Losses) -> Epoch:
        """Return the epoch with the losses of its steps, and the validation loss and accuracy after it."""
        loss, accuracy = self.evaluate(self.test_parts(self.data.test_count))
        if not math.isfinite(loss):
            raise not_finite("validation loss", f"after epoch {number} of unlearning", self.seed)
        return Epoch(number, float(np.mean(losses)), loss, accuracy)

    def test_parts(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pixels and labels of this rank's share of the first `count` validation images."""
        for start in share_blocks(count, ASKED_AT_ONCE):
            yield self.data.test_rows(start, min(start + ASKED_AT_ONCE, count))

    def parts(self, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pixels and labels of this rank's share of these training images."""
        for start in share_blocks(len(rows), ASKED_AT_ONCE):
            yield self.data.rows(torch.from_numpy(rows[start : start + ASKED_AT_ONCE]).to(self.keys.device))

    def evaluate(self, parts: Iterator[tuple[Tensor, Tensor]]) -> tuple[float, float]:
        """Return the mean cross-entropy, in nats, and the accuracy over the images of all ranks, in evaluation mode."""
        total = 0.0
        right = 0.0
        count = 0
        with torch.no_grad():
            for pixels, labels in parts:
                losses, hits = self.learning.evaluate_rows(self.tensors, Batch(pixels[None], labels[None], EVALUATION))
                assert hits is not None
                total = total + float(losses.double().sum())
                right = right + float(hits.sum())
                count = count + len(labels)
        sums = torch.tensor([total, right, count], dtype=torch.float64)
        add_over_ranks([sums])
        total, right, count = sums.tolist()
        return total / count, right / count


@dataclass(frozen=True, eq=False)
class Learned:
    """An `Objective`: the network of `learning` with a different loss per row, (models, rows)."""

    learning: CrossEntropy
    losses: Loss

    total = False
    stackable = False
    capturable = False
    captures_padding = False

    @property
    def name(self) -> str:
        return f"{self.learning.name}, unlearning"

    @property
    def weights(self) -> Mapping[str, Weight]:
        return self.learning.weights

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        return self.learning.initial(seed)

    def evaluate_rows(self, tensors: Tensors, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self.learning.evaluate_rows(tensors, batch)


def _train_on(model: Unlearner, method: TuningOnKept | RandomLabels, rows: Rows) -> list[Epoch]:
    """Train on these rows with their current labels."""
    return model.fit(method.epochs, lambda epoch: model.steps(None, rows, epoch, method.learning_rate, "kept"))


def ascend(model: Unlearner, method: GradientAscent, forgotten: Rows) -> list[Epoch]:
    """Ascend until the loss on the images to be forgotten reaches the loss on the validation images.

    Both losses are cross-entropies.
    """
    hard = _as_hard_as_new(model, forgotten)

    def take_steps(epoch: int) -> Iterator[Tensor]:
        nonlocal hard
        if hard:  # true from the start: take no step
            yield torch.tensor(model.evaluate(model.parts(forgotten[:ASKED]))[0], dtype=torch.float64)
            return
        for loss in model.steps(ascent(model.learning), forgotten, epoch, method.learning_rate, "forgotten"):
            yield -loss
            hard = _as_hard_as_new(model, forgotten)
            if hard:
                return

    return model.fit(method.epochs, take_steps, lambda: hard)


def _as_hard_as_new(model: Unlearner, forgotten: Rows) -> bool:
    """Return whether the mean loss on the images to be forgotten is at least that on the validation images.

    At most 1,000 of each are evaluated.
    """
    forgotten_loss, _ = model.evaluate(model.parts(forgotten[:ASKED]))
    test_loss, _ = model.evaluate(model.test_parts(min(ASKED, model.data.test_count)))
    return forgotten_loss >= test_loss


def ascent(learning: CrossEntropy) -> Loss:
    """Return a loss: the negative cross-entropy."""
    return lambda tensors, batch: -learning.losses(tensors, batch)


def with_random_labels(images: Splits, forgotten: Rows, classes: int, seed: int) -> Splits:
    """Replace the label of each of these training images by a random wrong one, drawn uniformly."""
    labels = images.train.labels.copy()
    offsets = seeds.generator(seed, "random labels").integers(1, classes, len(forgotten))
    labels[forgotten] = (labels[forgotten] + offsets) % classes
    return Opened(Replaced(images.train, labels, forgotten), images.test, images.classes, images.names)


def _distil(model: Unlearner, method: Distillation, kept_rows: Rows, forgotten_rows: Rows) -> list[Epoch]:
    """Move away from the teacher (the original model) on images to be forgotten, and follow it on kept images."""
    teacher = {name: tensor.clone() for name, tensor in model.tensors.items()}

    def take_steps(epoch: int) -> Iterator[Tensor]:
        rate = method.learning_rate * 0.1 ** sum(fall < epoch for fall in method.falls)
        if epoch <= method.forgetting:
            departing = model.steps(
                departure(model.learning, method, teacher), forgotten_rows, epoch, rate, "forgotten"
            )
            read_losses(departing, model.seed, 0)
        yield from model.steps(obedience(model.learning, method, teacher), kept_rows, epoch, rate, "kept")

    return model.fit(method.epochs, take_steps)


def departure(learning: CrossEntropy, method: Distillation, teacher: Tensors) -> Loss:
    """Return a loss: the negative divergence from the teacher."""

    def losses(tensors: Tensors, batch: Batch) -> Tensor:
        pixels = learning.training_pixels(tensors, batch)
        student = learning.log_p(tensors, pixels, batch.mode)
        return -divergence(taught(learning, teacher, pixels), student, method.temperature)

    return losses


def obedience(learning: CrossEntropy, method: Distillation, teacher: Tensors) -> Loss:
    """Return a loss: the weighted sum of the cross-entropy and the divergence from the teacher."""

    def losses(tensors: Tensors, batch: Batch) -> Tensor:
        pixels = learning.training_pixels(tensors, batch)
        student = learning.log_p(tensors, pixels, batch.mode)
        cross_entropy = -student.gather(2, batch.labels[..., None])[..., 0]
        distance = divergence(taught(learning, teacher, pixels), student, method.temperature)
        return method.cross_entropy * cross_entropy + method.divergence * distance

    return losses


def taught(learning: CrossEntropy, teacher: Tensors, pixels: Tensor) -> Tensor:
    """Return the teacher's log probabilities, (models, rows, classes)."""
    with torch.no_grad():
        return learning.log_p(teacher, pixels, EVALUATION)


def divergence(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Return T^2 KL(teacher || student), in nats, (...), of log probabilities (..., classes), both at temperature T."""
    log_teacher = torch.log_softmax(teacher / temperature, -1)
    log_student = torch.log_softmax(student / temperature, -1)
    return temperature**2 * (log_teacher.exp() * (log_teacher - log_student)).sum(-1)
