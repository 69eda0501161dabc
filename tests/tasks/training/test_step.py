"""Steps of many models: minibatches in parts, what follows a step, both optimisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.models import layers
from tasks.models.catalog import Regularisers
from tasks.models.likelihoods import Binary
from tasks.models.networks import Architecture
from tasks.models.vae import Dense
from tasks.numerics.matmul import BATCHED
from tasks.training.chains import fits_network, pack_state, unpack_state
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo
from tasks.training.members import Member, Spec, State, Trained
from tasks.training.objective import Batch, Objective
from tasks.training.recipe import OptimiserName, Recipe
from tasks.training.step import Step
from tasks.training.trainer import train_many
from tasks.training.unlearner import Learned
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.training import plain
from tests.tasks.training.self_supervised import Averaged, Recorded, Teacher

CPU = torch.device("cpu")


def case_id(value: object) -> str:
    return getattr(value, "name", str(value))


RECIPE = Recipe(epochs=3, batch=16, learning_rate=0.005, schedule=((1, 0.5), (2, 0.1)), precision="float64")
BOTH: tuple[OptimiserName, ...] = ("adam", "rmsprop")


@pytest.fixture(scope="module")
def images() -> Images:
    """Every fourth pixel of the digits: 7 x 7 pixels."""
    digits = load(Dataset("digits"))
    train = digits.train_images[:60][:, ::4, ::4]
    test = digits.test_images[:40][:, ::4, ::4]
    return Images(train, digits.train_labels[:60], test, digits.test_labels[:40], 10)


MEMBERS = [Member(1, np.arange(60)), Member(2, np.arange(10, 45)), Member(3, np.arange(52), learning_rate=0.002)]


def train_models(
    configuration: Spec, members: Sequence[Member], way: str = "loop", together: int | None = None
) -> list[Trained]:
    with use_context(ComputeContext(way=way, members=together)):  # type: ignore[arg-type]
        outcomes = dict(train_many(configuration, members, CPU))
    assert all(isinstance(outcome, Trained) for outcome in outcomes.values()), outcomes
    return [outcomes[index] for index in range(len(members))]


def classifier(images: Images, kind: type[CrossEntropy] = CrossEntropy, network: str = "mlp1", **on: bool) -> Objective:
    return kind(Architecture(network, images.shape, 10, Regularisers(**on)))


def assert_equals_reference(configuration: Spec, within: float = 1e-11) -> None:
    """Check that every strategy equals a plain loop over single models."""
    expected = []
    for member in MEMBERS:
        expected.append(plain.train(configuration, member, configuration.recipe.epochs))
    for way in ("loop", "stack"):
        assert_models_equal(
            [(reference.weights[configuration.recipe.epochs], reference.history) for reference in expected],
            way,
            configuration,
            within,
        )


def assert_models_equal(expected: Sequence[tuple], way: str, configuration: Spec, within: float = 1e-11) -> None:
    for (weights, history), model in zip(expected, train_models(configuration, MEMBERS, way), strict=True):
        for name, values in weights.items():
            np.testing.assert_allclose(model.weights[name], values, atol=within * max(1, np.abs(values).max()))
        for expected_epoch, epoch in zip(history, model.history, strict=True):
            np.testing.assert_allclose(list(vars(epoch).values()), list(vars(expected_epoch).values()), atol=within)


def bits(model: Trained) -> tuple[object, ...]:
    return model.best_epoch, repr(model.history), *(values.tobytes() for values in model.weights.values())


# Minibatches in parts


@pytest.mark.parametrize("network", ["mlp1", "cnn1"])
def test_parts_add_up_to_entire_step(images: Images, network: str) -> None:
    big = Images(
        *(np.pad(pixels, ((0, 0), (2, 3), (2, 3), (0, 0))) for pixels in (images.train_images,)),
        *(images.train_labels, np.pad(images.test_images, ((0, 0), (2, 3), (2, 3), (0, 0))), images.test_labels, 10),
    )
    configuration = Spec(classifier(big, network=network), replace(RECIPE, epochs=2), big)
    expected = []
    for model in train_models(configuration, MEMBERS):
        expected.append((model.weights, model.history))
    for way in ("loop", "stack"):
        assert_models_equal(
            expected, way, replace(configuration, recipe=replace(configuration.recipe, accumulate=4)), within=1e-9
        )


@pytest.mark.parametrize("on", [{"dropout": True}, {"batch_norm": True}], ids=case_id)
def test_parts_draw_and_normalise_separately(images: Images, on: dict[str, bool]) -> None:
    assert_equals_reference(Spec(classifier(images, **on), replace(RECIPE, accumulate=2), images))


def test_no_two_parts_have_the_same_draws(images: Images) -> None:
    learning = classifier(images, Recorded, dropout=True)
    train_models(Spec(learning, replace(RECIPE, accumulate=4, epochs=2), images), MEMBERS[:1])
    assert isinstance(learning, Recorded)
    assert 2 * 15 == len(learning.keys) == len(set(learning.keys))  # the last minibatch of 12 rows has three parts


# After the step


@pytest.mark.parametrize("accumulate", [1, 2])
def test_stacked_teachers_equal_plain_loop(images: Images, accumulate: int) -> None:
    configuration = Spec(Teacher(49, 4.0), replace(RECIPE, accumulate=accumulate), images)
    assert_equals_reference(configuration)


def test_manual_gradients_work_with_averaged_weights(images: Images) -> None:
    configuration = Spec(classifier(images, Averaged), replace(RECIPE, accumulate=2), images)
    assert_equals_reference(configuration)
    assert_equals_reference(replace(configuration, recipe=replace(configuration.recipe, accumulate=1)))


def test_inactive_model_keeps_its_averages(images: Images) -> None:
    configuration = Spec(classifier(images, Averaged), replace(RECIPE, precision="float32"), images)
    alone = [bits(train_models(configuration, [member])[0]) for member in MEMBERS]
    for way, together in (("loop", 1), ("stack", 2), ("stack", 3)):
        assert alone == [bits(model) for model in train_models(configuration, MEMBERS, way, together)]
    # Its slots are freed one by one.
    ending = []
    for member, until in zip(MEMBERS, (1, 3, 2), strict=True):
        ending.append(replace(member, until=until))
    alone_until = [bits(train_models(configuration, [member])[0]) for member in ending]
    assert alone_until == [bits(model) for model in train_models(configuration, ending, "stack")]


# States


@pytest.mark.parametrize("optimiser", BOTH)
@pytest.mark.parametrize("kind", ["teacher", "averaged"])
def test_chain_of_states_equals_unbroken_training(images: Images, kind: str, optimiser: OptimiserName) -> None:
    learning = Teacher(49, 4.0) if kind == "teacher" else classifier(images, Averaged)
    recipe = replace(RECIPE, epochs=4, optimiser=optimiser, precision="float32", patience=3)
    configuration = Spec(learning, recipe, images)
    (unbroken,) = train_models(configuration, MEMBERS[:1])
    state: State | None = None
    for epochs in (1, 3, 4):
        # A link trains as if its recipe ended there.
        link = replace(configuration, recipe=replace(recipe, epochs=epochs))
        (model,) = train_models(link, [replace(MEMBERS[0], start=state, returns_state=True)])
        assert model.state is not None
        state = unpack_state(pack_state(model.state, "this"), "this")
        assert state is not None
        assert fits_network(state, learning)
        assert len(state.moments) == len(model.state.moments)
    assert bits(unbroken) == bits(model)


# Gradients


class Twice(CrossEntropy):
    """A loss that uses every weight twice."""

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return super().losses(tensors, batch) + 0.5 * super().losses(tensors, batch)


@pytest.mark.parametrize(("kind", "copied"), [(CrossEntropy, 0), (Twice, 8)])
def test_gradients_of_batched_products_need_no_copy(
    images: Images, kind: type[CrossEntropy], copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a GPU, products of all models are one operation and a step never uses manual gradients.
    monkeypatch.setattr(layers, "products", lambda *_: BATCHED)
    monkeypatch.setattr(Step, "_explicit_step", lambda *_: None)
    configuration = Spec(classifier(images, kind), replace(RECIPE, optimiser="rmsprop", precision="float32"), images)
    copies = []

    def count_copies(targets: list[Tensor], sources: list[Tensor]) -> None:
        copies.append(len(targets))
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "_foreach_copy_", count_copies)
        direct = [bits(model) for model in train_models(configuration, MEMBERS, "stack")]
    assert sum(copies) == copied * len(copies)
    monkeypatch.setattr(layers, "_free_place", lambda *_: None)
    assert direct == [bits(model) for model in train_models(configuration, MEMBERS, "stack")]


# Precision


def unlearning(learning: CrossEntropy) -> Objective:
    """Return an objective that maximises the loss, as in gradient ascent."""
    return Learned(learning, lambda tensors, batch: -learning.losses(tensors, batch))


OWN = """
from torch import nn

def small(shape, classes):
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(100, classes)
    )
"""
LEARNING: Mapping[str, Callable[[Images], Objective]] = {
    "mlp1": classifier,
    "cnn1": lambda images: classifier(images, network="cnn1", batch_norm=True),
    "vae": lambda images: Elbo(Dense(Binary(images.shape), 3, (16, 8))),
    "own": lambda images: classifier(images, network="own_small:small"),
    "unlearning": lambda images: unlearning(CrossEntropy(Architecture("mlp1", images.shape, 10))),
}


@pytest.mark.parametrize("name", LEARNING)
def test_bfloat16_steps_have_float32_weights_and_close_gradients(
    images: Images, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_small.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    learning = LEARNING[name](images)
    weights = {}
    for precision in ("float32", "bfloat16"):
        # With this rate and epsilon, a step of RMSprop subtracts the gradient.
        recipe = Recipe(1, 60, 1e5, optimiser="rmsprop", epsilon=1e5, precision=precision)
        (model,) = train_models(Spec(learning, recipe, images), MEMBERS[:1])
        moves = []
        for weight, start in zip(model.weights.values(), learning.initial(1).values(), strict=True):
            assert weight.dtype == np.float32
            moves.append((weight - start).ravel())
        weights[precision] = np.concatenate(moves)
    error = np.linalg.norm(weights["bfloat16"] - weights["float32"]) / np.linalg.norm(weights["float32"])
    # Batch norm amplifies rounding: in torchvision's ResNet-18 under autocast, gradients differ by 0.24 to 0.39.
    assert 0 < error < (0.2 if name == "cnn1" else 0.05)


def test_bfloat16_chain_equals_unbroken_training(images: Images) -> None:
    recipe = replace(RECIPE, epochs=3, precision="bfloat16", accumulate=2)
    configuration = Spec(classifier(images, batch_norm=True), recipe, images)
    alone = [bits(train_models(configuration, [member])[0]) for member in MEMBERS]
    assert alone == [bits(model) for model in train_models(configuration, MEMBERS)]
    first = replace(configuration, recipe=replace(recipe, epochs=1))
    (model,) = train_models(first, [replace(MEMBERS[0], returns_state=True)])
    assert model.state is not None
    state = unpack_state(pack_state(model.state, "this"), "this")
    assert alone[0] == bits(train_models(configuration, [replace(MEMBERS[0], start=state)])[0])


# Optimisers


@pytest.mark.parametrize("optimiser", BOTH)
def test_models_with_own_rates_train_independently(images: Images, optimiser: OptimiserName) -> None:
    configuration = Spec(classifier(images), replace(RECIPE, optimiser=optimiser), images)
    assert_equals_reference(configuration)
    configuration = replace(configuration, recipe=replace(configuration.recipe, precision="float32"))
    alone = [bits(train_models(configuration, [member])[0]) for member in MEMBERS]
    assert alone == [bits(model) for model in train_models(configuration, MEMBERS, "stack")]
