"""The ways on a GPU: what no processor can show. Skipped where there is none."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.datasets.images import Images, Opened
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.device_data import place_images
from tasks.training.members import Member, Spec, Trained, TrainingError
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many
from tasks.worker.compute_context import ComputeContext, StrategyName, use_context
from tests.tasks.training import plain
from tests.tasks.training.self_supervised import Teacher

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU, CPU = torch.device("cuda"), torch.device("cpu")
RECIPE = Recipe(epochs=10, batch=16, learning_rate=3e-4, precision="float64")
NETWORKS = [("mlp1", {}), ("mlp1", {"dropout": True, "batch_norm": True}), ("cnn1", {"dropout": True}), ("cnn2", {})]


def spec(network: str, **on: bool) -> Spec:
    stream = np.random.default_rng(0)
    images = Images(
        stream.integers(0, 256, (100, 16, 16, 1), dtype=np.uint8),
        stream.integers(0, 4, 100),
        stream.integers(0, 256, (20, 16, 16, 1), dtype=np.uint8),
        stream.integers(0, 4, 20),
        4,
    )
    return Spec(CrossEntropy(Architecture(network, images.shape, 4, Regularisers(**on))), RECIPE, images)


def outcomes(given: Spec, members: list[Member], way: StrategyName, place: torch.device = GPU) -> list:
    with use_context(ComputeContext(way=way)):
        found = dict(train_many(given, members, place))
    return [found[index] for index in range(len(members))]


MEMBERS = [
    Member(1, np.arange(100)),
    Member(2, np.arange(64)),
    Member(3, np.arange(90), {5: np.zeros((16, 16, 1), np.uint8)}),
]


@pytest.mark.parametrize("way", ["auto", "loop", "stack", "graph"])
@pytest.mark.parametrize(("network", "on"), NETWORKS)
def test_every_way_gives_what_training_alone_on_a_processor_gives(network: str, on: dict, way: StrategyName) -> None:
    given = spec(network, **on)
    for member, found in zip(MEMBERS, outcomes(given, MEMBERS, way), strict=True):
        assert isinstance(found, Trained), found
        expected = plain.train(given, member, 10)
        for name, values in expected.weights[10].items():
            assert np.abs(values - found.weights[name]).max() < 1e-8 * max(1, np.abs(values).max()), name


USERS = {
    "teacher by RMSprop": (Teacher(256, 10.0), {"optimiser": "rmsprop", "schedule": ((2, 0.5), (6, 0.1))}),
    "teacher in parts": (Teacher(256, 10.0), {"accumulate": 4}),
    "classifier in parts": (None, {"optimiser": "rmsprop", "accumulate": 2}),
}


@pytest.mark.parametrize("way", ["loop", "stack", "graph"])
@pytest.mark.parametrize("user", USERS)
def test_what_follows_a_step_optimisers_rates_and_parts_are_those_of_a_processor(user: str, way: StrategyName) -> None:
    learning, settings = USERS[user]
    given = spec("mlp1", dropout=True)
    recipe = replace(RECIPE, learning_rate=0.003, **settings)
    given = replace(given, recipe=recipe, learning=learning or given.learning)
    members = [*MEMBERS, replace(MEMBERS[0], learning_rate=0.001)]
    for member, found in zip(members, outcomes(given, members, way), strict=True):
        assert isinstance(found, Trained), found
        expected = plain.train(given, member, 10)
        for name, values in expected.weights[10].items():
            assert np.abs(values - found.weights[name]).max() < 1e-8 * max(1, np.abs(values).max()), name
        for theirs, ours in zip(expected.history, found.history, strict=True):
            assert abs(theirs.train_loss - ours.train_loss) < 1e-8


@pytest.mark.parametrize("way", ["loop", "stack", "graph"])
@pytest.mark.parametrize("user", USERS)
def test_a_chain_of_states_goes_on_as_the_unbroken_training(user: str, way: StrategyName) -> None:
    learning, settings = USERS[user]
    given = spec("mlp1", dropout=True)
    given = replace(given, recipe=replace(RECIPE, learning_rate=0.003, **settings), learning=learning or given.learning)
    (unbroken,) = outcomes(given, MEMBERS[:1], way)
    (first,) = outcomes(given, [replace(MEMBERS[0], until=4, returns_state=True)], way)
    (last,) = outcomes(given, [replace(MEMBERS[0], start=first.state)], way)
    for name, values in unbroken.weights.items():
        assert np.abs(values - last.weights[name]).max() < 1e-8 * max(1, np.abs(values).max()), name


@pytest.mark.parametrize("way", ["stack", "graph"])
def test_places_are_refilled_and_given_up_and_chains_go_on(way: StrategyName) -> None:
    given = spec("mlp1")
    given = replace(given, recipe=replace(given.recipe, epochs=40, patience=2, learning_rate=3e-3))
    members = [Member(seed, np.arange(50 + seed)) for seed in range(9)]
    members += [replace(members[0], until=3), replace(members[0], after=9)]
    with use_context(ComputeContext(way=way, members=4)):
        found = dict(train_many(given, members, GPU))
    for index, trained in enumerate(outcomes(given, members, "loop", CPU)):
        assert [epoch.epoch for epoch in trained.history] == [epoch.epoch for epoch in found[index].history]
        assert abs(trained.history[-1].validation_loss - found[index].history[-1].validation_loss) < 1e-6


def test_a_loss_that_is_not_finite_ends_its_member_alone() -> None:
    members = [MEMBERS[0], replace(MEMBERS[1], learning_rate=1e300), MEMBERS[2]]
    first, second, third = outcomes(spec("mlp1"), members, "stack")
    assert isinstance(second, TrainingError)
    assert isinstance(first, Trained)
    assert isinstance(third, Trained)


def test_the_fused_kernel_is_used_and_right() -> None:
    pytest.importorskip("triton")
    given = replace(spec("mlp1"), recipe=replace(RECIPE, precision="float32"))
    for one, other in zip(outcomes(given, MEMBERS, "stack"), outcomes(given, MEMBERS, "loop", CPU), strict=True):
        assert abs(one.history[-1].validation_loss - other.history[-1].validation_loss) < 1e-3


@pytest.mark.parametrize("way", ["auto", "loop", "stack"])
def test_streamed_pictures_train_what_resident_ones_do(way: StrategyName) -> None:
    given = spec("cnn1", dropout=True)
    by_rows = replace(given, images=Opened(given.images.train, given.images.test, 4))
    assert not place_images(by_rows.images, GPU).is_resident
    for one, other in zip(outcomes(given, MEMBERS, "loop"), outcomes(by_rows, MEMBERS, way), strict=True):
        for name, values in one.weights.items():
            within = 0 if way == "loop" else 1e-8 * max(1, np.abs(values).max())
            assert np.abs(values - other.weights[name]).max() <= within, name


def test_streamed_steps_are_not_recorded_side_by_side() -> None:
    given = spec("mlp1")
    by_rows = replace(given, images=Opened(given.images.train, given.images.test, 4))
    (found,) = outcomes(by_rows, MEMBERS[:1], "graph")
    assert isinstance(found, TrainingError)
    assert "way is graph" in str(found)
