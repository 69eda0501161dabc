"""The steps of unlearning methods compared with steps computed by hand, and their stopping rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tasks.datasets.images import Images, Opened
from tasks.datasets.picture_rows import Subset
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.training import unlearner
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.members import Member, Spec, Trained, TrainingError
from tasks.training.recipe import EPSILON, Recipe
from tasks.training.trainer import train_many
from tasks.training.unlearner import ascend, departure, divergence, obedience, unlearn_model, with_random_labels
from tasks.training.unlearning_config import Distillation, GradientAscent, Method, RandomLabels, TuningOnKept

CPU = torch.device("cpu")
KEPT = np.arange(40)
FORGOTTEN = np.arange(40, 60)
METHODS = [TuningOnKept(2), GradientAscent(2), RandomLabels(2), Distillation(2, 1)]


def images(classes: int = 4) -> Images:
    stream = np.random.default_rng(0)
    return Images(
        stream.integers(0, 256, (60, 12, 12, 1), dtype=np.uint8),
        stream.integers(0, classes, 60),
        stream.integers(0, 256, (30, 12, 12, 1), dtype=np.uint8),
        stream.integers(0, classes, 30),
        classes,
    )


IMAGES = images()
PLAIN = CrossEntropy(Architecture("mlp1", IMAGES.shape, 4))


def trained_weights(learning: CrossEntropy = PLAIN, epochs: int = 20) -> dict[str, NDArray[np.float32]]:
    spec = Spec(learning, Recipe(epochs, 20, 1e-3), IMAGES)
    ((_, model),) = train_many(spec, [Member(1, np.arange(60))], CPU)
    assert isinstance(model, Trained)
    return {name: values.astype(np.float32) for name, values in model.weights.items()}


WEIGHTS = trained_weights()


def unlearn(method: Method, learning: CrossEntropy = PLAIN, seed: int = 3, batch: int = 20) -> Trained:
    weights = WEIGHTS if learning is PLAIN else trained_weights(learning, 2)
    recipe = Recipe(method.epochs, batch, method.learning_rate)
    return unlearn_model(learning, recipe, method, IMAGES, KEPT, FORGOTTEN, weights, seed, CPU)


def gradient(rows: NDArray[np.int64], sign: int) -> dict[str, torch.Tensor]:
    """The gradient of the mean cross-entropy of these rows, by torch alone."""
    leaves = {}
    for name, values in WEIGHTS.items():
        leaves[name] = torch.tensor(values[None], requires_grad=True)
    pixels = torch.tensor(IMAGES.train_images[rows].reshape(1, len(rows), -1)).float() / 255
    log_p = PLAIN.log_p(leaves, pixels, unlearner.EVALUATION)
    loss = sign * torch.nn.functional.nll_loss(log_p[0], torch.tensor(IMAGES.train_labels[rows]))
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


@pytest.mark.parametrize(
    ("method", "rows", "sign"), [(TuningOnKept(1), KEPT, 1), (GradientAscent(1, 1e-4), FORGOTTEN, -1)]
)
def test_first_step_is_adams_along_the_gradient(method: Method, rows: NDArray[np.int64], sign: int) -> None:
    model = unlearn(method, batch=60)  # one step: all rows are one minibatch
    for name, of_weight in gradient(rows, sign).items():
        step = method.learning_rate * of_weight / (of_weight.abs() + EPSILON)
        large = of_weight.abs() > 1e-4  # below, epsilon and rounding affect the step
        moved = torch.tensor(model.weights[name] - WEIGHTS[name])[None]
        assert large.any()
        torch.testing.assert_close(moved[large], -step[large], rtol=5e-3, atol=1e-7)


def test_random_labels_are_wrong_and_kept_ones_unchanged() -> None:
    relabelled = with_random_labels(IMAGES, FORGOTTEN, 4, 0)
    assert np.array_equal(IMAGES.train_labels[KEPT], relabelled.train.labels[KEPT])
    assert not (IMAGES.train_labels[FORGOTTEN] == relabelled.train.labels[FORGOTTEN]).any()
    blank = np.zeros((9000, 1, 1, 1), np.uint8)
    zero = np.zeros(9000, np.int64)
    many = Images(blank, zero, blank[:1].copy(), zero[:1].copy(), 4)
    counts = np.bincount(with_random_labels(many, np.arange(9000), 4, 1).train.labels, minlength=4)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 3000) < 5 * math.sqrt(3000 * 2 / 3)).all()


def test_model_learns_the_random_labels() -> None:
    model = unlearn(RandomLabels(40))
    assert loss_on(FORGOTTEN, model) > loss_on(FORGOTTEN, None) + 1
    assert loss_on(KEPT, model) < 0.5


def loss_on(rows: NDArray[np.int64], model: Trained | None) -> float:
    """The mean cross-entropy of these training images; without a model, before unlearning."""
    weights = WEIGHTS if model is None else model.weights
    tensors = {}
    for name, values in weights.items():
        tensors[name] = torch.tensor(np.asarray(values)[None])
    pixels = torch.tensor(IMAGES.train_images[rows].reshape(1, len(rows), -1)).float() / 255
    log_p = PLAIN.log_p(tensors, pixels, unlearner.EVALUATION)
    return float(torch.nn.functional.nll_loss(log_p[0], torch.tensor(IMAGES.train_labels[rows])))


def test_ascent_stops_at_loss_of_new_images() -> None:
    model = unlearn(GradientAscent(200, 3e-4), batch=5)
    new = model.history[-1].validation_loss
    assert loss_on(FORGOTTEN, None) < new  # these were known
    assert len(model.history) < 200
    assert loss_on(FORGOTTEN, model) >= new
    assert loss_on(FORGOTTEN, model) < 2 * new  # it stopped soon after


def test_ascent_ends_after_its_epochs() -> None:
    assert len(unlearn(GradientAscent(2, 1e-7)).history) == 2


def test_ascent_skips_images_that_are_already_hard() -> None:
    hard = with_random_labels(IMAGES, FORGOTTEN, 4, 0)
    hard = Opened(hard.train, Subset(IMAGES.train, KEPT), 4)
    model = unlearner.Unlearner(PLAIN, Recipe(5, 20, 1e-3), hard, WEIGHTS, 3, CPU)
    assert len(ascend(model, GradientAscent(5), FORGOTTEN)) == 1
    assert all(np.array_equal(WEIGHTS[name], tensor[0].numpy()) for name, tensor in model.tensors.items())


def test_divergence_is_squared_temperature_times_kullback_leibler() -> None:
    teacher = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    student = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    expected = torch.tensor([0, 0.9 * math.log(1.8) + 0.1 * math.log(0.2)])
    torch.testing.assert_close(divergence(teacher, student, 1.0), expected)
    p = 3 / (3 + 1)  # of odds 9 : 1 at temperature 2
    softened = 4 * (p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)))
    assert softened == pytest.approx(float(divergence(teacher, student, 2.0)[1]), rel=1e-5)


def test_student_equal_to_teacher_pays_cross_entropy_only() -> None:
    tensors = {name: torch.tensor(values[None]) for name, values in WEIGHTS.items()}
    pixels = torch.tensor(IMAGES.train_images[KEPT].reshape(1, len(KEPT), -1))
    batch = unlearner.Batch(pixels, torch.tensor(IMAGES.train_labels[KEPT])[None], unlearner.EVALUATION)
    method = Distillation(cross_entropy=0.5, divergence=3.0)
    losses = obedience(PLAIN, method, tensors)(tensors, batch)
    torch.testing.assert_close(losses, 0.5 * PLAIN.losses(tensors, batch))
    torch.testing.assert_close(departure(PLAIN, method, tensors)(tensors, batch), torch.zeros(1, len(KEPT)))


def test_student_departs_from_teacher_on_forgotten_images_only() -> None:
    model = unlearn(Distillation(10, 3, 1e-3), batch=5)
    assert loss_on(FORGOTTEN, None) < 0.1
    assert loss_on(FORGOTTEN, model) > 1
    assert loss_on(KEPT, model) < 1


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_unlearning_is_a_function_of_its_seed(method: Method) -> None:
    network = Architecture("cnn1", IMAGES.shape, 4, Regularisers(batch_norm=True, dropout=True))
    # Ascent takes no step with an untrained network.
    if isinstance(method, GradientAscent):
        learning = PLAIN
    else:
        learning = CrossEntropy(network, augmentation=True)
    first = unlearn(method, learning, 3)
    repeated = unlearn(method, learning, 3)
    other_seed = unlearn(method, learning, 4)
    assert all(np.array_equal(first.weights[name], repeated.weights[name]) for name in learning.weights)
    assert first.history == repeated.history
    assert any(not np.array_equal(first.weights[name], other_seed.weights[name]) for name in learning.weights)


def test_infinite_loss_ends_unlearning() -> None:
    with pytest.raises(TrainingError, match=r"loss is not finite at step \d+ \(seed 3\); try a lower learning rate"):
        unlearn(TuningOnKept(3, 1e30))
