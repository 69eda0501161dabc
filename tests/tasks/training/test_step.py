"""Steps of many models: minibatches in parts, what follows a step, both optimisers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.training.chains import fits_network, pack_state, unpack_state
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.members import Member, Spec, State, Trained
from tasks.training.objective import Objective
from tasks.training.recipe import OptimiserName, Recipe
from tasks.training.trainer import train_many
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.training import plain
from tests.tasks.training.self_supervised import Averaged, Recorded, Teacher

CPU = torch.device("cpu")


def named(value: object) -> str:
    return getattr(value, "name", str(value))


RECIPE = Recipe(epochs=3, batch=16, learning_rate=0.005, schedule=((1, 0.5), (2, 0.1)), precision="float64")
BOTH: tuple[OptimiserName, ...] = ("adam", "rmsprop")


@pytest.fixture(scope="module")
def images() -> Images:
    """Digits at every fourth place: 7 x 7 pixels."""
    digits = load(Dataset("digits"))
    train, test = (pixels[:, ::4, ::4] for pixels in (digits.train_images[:60], digits.test_images[:40]))
    return Images(train, digits.train_labels[:60], test, digits.test_labels[:40], 10)


MEMBERS = [Member(1, np.arange(60)), Member(2, np.arange(10, 45)), Member(3, np.arange(52), learning_rate=0.002)]


def trained(given: Spec, members: Sequence[Member], way: str = "loop", together: int | None = None) -> list[Trained]:
    with use_context(ComputeContext(way=way, members=together)):  # type: ignore[arg-type]
        found = dict(train_many(given, members, CPU))
    assert all(isinstance(outcome, Trained) for outcome in found.values()), found
    return [found[index] for index in range(len(members))]


def classifier(images: Images, kind: type[CrossEntropy] = CrossEntropy, network: str = "mlp1", **on: bool) -> Objective:
    return kind(Architecture(network, images.shape, 10, Regularisers(**on)))


def assert_by_the_book(given: Spec, within: float = 1e-11) -> None:
    """Every way gives what a plain loop of one model gives."""
    expected = [plain.train(given, member, given.recipe.epochs) for member in MEMBERS]
    for way in ("loop", "stack"):
        assert_alike([(theirs.weights[given.recipe.epochs], theirs.history) for theirs in expected], way, given, within)


def assert_alike(expected: Sequence[tuple], way: str, given: Spec, within: float = 1e-11) -> None:
    for (weights, history), found in zip(expected, trained(given, MEMBERS, way), strict=True):
        for name, values in weights.items():
            np.testing.assert_allclose(found.weights[name], values, atol=within * max(1, np.abs(values).max()))
        for theirs, ours in zip(history, found.history, strict=True):
            np.testing.assert_allclose(list(vars(ours).values()), list(vars(theirs).values()), atol=within)


def bits(found: Trained) -> tuple[object, ...]:
    return found.best_epoch, repr(found.history), *(values.tobytes() for values in found.weights.values())


# Minibatches in parts


@pytest.mark.parametrize("network", ["mlp1", "cnn1"])
def test_parts_add_up_to_the_step_of_the_whole(images: Images, network: str) -> None:
    big = Images(
        *(np.pad(pixels, ((0, 0), (2, 3), (2, 3), (0, 0))) for pixels in (images.train_images,)),
        *(images.train_labels, np.pad(images.test_images, ((0, 0), (2, 3), (2, 3), (0, 0))), images.test_labels, 10),
    )
    given = Spec(classifier(big, network=network), replace(RECIPE, epochs=2), big)
    whole = [(found.weights, found.history) for found in trained(given, MEMBERS)]
    for way in ("loop", "stack"):
        assert_alike(whole, way, replace(given, recipe=replace(given.recipe, accumulate=4)), within=1e-9)


@pytest.mark.parametrize("on", [{"dropout": True}, {"batch_norm": True}], ids=named)
def test_parts_draw_and_normalise_by_themselves(images: Images, on: dict[str, bool]) -> None:
    assert_by_the_book(Spec(classifier(images, **on), replace(RECIPE, accumulate=2), images))


def test_no_two_parts_have_the_same_draws(images: Images) -> None:
    learning = classifier(images, Recorded, dropout=True)
    trained(Spec(learning, replace(RECIPE, accumulate=4, epochs=2), images), MEMBERS[:1])
    assert isinstance(learning, Recorded)
    assert 2 * 15 == len(learning.keys) == len(set(learning.keys))  # the last minibatch of 12 rows has three parts


# After the step


@pytest.mark.parametrize("accumulate", [1, 2])
def test_models_with_teachers_side_by_side_are_a_plain_loops(images: Images, accumulate: int) -> None:
    given = Spec(Teacher(49, 4.0), replace(RECIPE, accumulate=accumulate), images)
    assert_by_the_book(given)


def test_a_classifier_whose_gradients_are_written_out_averages_its_weights_too(images: Images) -> None:
    given = Spec(classifier(images, Averaged), replace(RECIPE, accumulate=2), images)
    assert_by_the_book(given)
    assert_by_the_book(replace(given, recipe=replace(given.recipe, accumulate=1)))


def test_a_model_that_sits_out_keeps_its_teacher_in_any_company(images: Images) -> None:
    given = Spec(classifier(images, Averaged), replace(RECIPE, precision="float32"), images)
    alone = [bits(trained(given, [member])[0]) for member in MEMBERS]
    for way, together in (("loop", 1), ("stack", 2), ("stack", 3)):
        assert alone == [bits(found) for found in trained(given, MEMBERS, way, together)]
    # Its places are given up one by one.
    ending = [replace(member, until=until) for member, until in zip(MEMBERS, (1, 3, 2), strict=True)]
    apart = [bits(trained(given, [member])[0]) for member in ending]
    assert apart == [bits(found) for found in trained(given, ending, "stack")]


# States


@pytest.mark.parametrize("optimiser", BOTH)
@pytest.mark.parametrize("kind", ["teacher", "averaged"])
def test_a_chain_of_states_is_the_unbroken_training_to_the_bit(
    images: Images, kind: str, optimiser: OptimiserName
) -> None:
    learning = Teacher(49, 4.0) if kind == "teacher" else classifier(images, Averaged)
    recipe = replace(RECIPE, epochs=4, optimiser=optimiser, precision="float32", patience=3)
    given = Spec(learning, recipe, images)
    (unbroken,) = trained(given, MEMBERS[:1])
    state: State | None = None
    for epochs in (1, 3, 4):
        # A link trains as if its recipe ended there.
        link = replace(given, recipe=replace(recipe, epochs=epochs))
        (found,) = trained(link, [replace(MEMBERS[0], start=state, returns_state=True)])
        assert found.state is not None
        state = unpack_state(pack_state(found.state, "this"), "this")
        assert state is not None
        assert fits_network(state, learning)
        assert len(state.moments) == len(found.state.moments)
    assert bits(unbroken) == bits(found)


# Optimisers


@pytest.mark.parametrize("optimiser", BOTH)
def test_models_with_rates_of_their_own_are_each_as_alone_and_by_the_book(
    images: Images, optimiser: OptimiserName
) -> None:
    given = Spec(classifier(images), replace(RECIPE, optimiser=optimiser), images)
    assert_by_the_book(given)
    given = replace(given, recipe=replace(given.recipe, precision="float32"))
    alone = [bits(trained(given, [member])[0]) for member in MEMBERS]
    assert alone == [bits(found) for found in trained(given, MEMBERS, "stack")]
