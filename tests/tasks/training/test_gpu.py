"""The training strategies on a GPU. Skipped on machines without one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.datasets.images import Images, Opened
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.training import device_data
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.device_data import place_images
from tasks.training.members import Member, Spec, Trained, TrainingError
from tasks.training.recipe import Recipe
from tasks.training.strategies import Strategy, Workload
from tasks.training.trainer import Trainer, train_many
from tasks.worker import hardware
from tasks.worker.compute_context import ComputeContext, StrategyName, use_context
from tests.tasks.training import plain
from tests.tasks.training.self_supervised import Teacher

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = torch.device("cuda")
CPU = torch.device("cpu")
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


def outcomes(configuration: Spec, members: list[Member], way: StrategyName, device: torch.device = GPU) -> list:
    with use_context(ComputeContext(way=way)):
        results = dict(train_many(configuration, members, device))
    return [results[index] for index in range(len(members))]


MEMBERS = [
    Member(1, np.arange(100)),
    Member(2, np.arange(64)),
    Member(3, np.arange(90), {5: np.zeros((16, 16, 1), np.uint8)}),
]


@pytest.mark.parametrize("way", ["auto", "loop", "stack", "graph"])
@pytest.mark.parametrize(("network", "on"), NETWORKS)
def test_every_strategy_equals_training_alone(network: str, on: dict, way: StrategyName) -> None:
    configuration = spec(network, **on)
    for member, model in zip(MEMBERS, outcomes(configuration, MEMBERS, way), strict=True):
        assert isinstance(model, Trained), model
        expected = plain.train(configuration, member, 10)
        for name, values in expected.weights[10].items():
            assert np.abs(values - model.weights[name]).max() < 1e-8 * max(1, np.abs(values).max()), name


@pytest.mark.parametrize("way", ["loop", "stack", "graph"])
def test_airbench_equals_processor(way: StrategyName) -> None:
    configuration = spec("airbench")
    learning = CrossEntropy(Architecture("airbench", (16, 16, 1), 4), augmentation=True)
    recipe = replace(RECIPE, epochs=3, learning_rate=11.5, optimiser="nesterov")
    configuration = replace(configuration, learning=learning, recipe=recipe)
    expected = outcomes(configuration, MEMBERS, "loop", CPU)
    for reference, model in zip(expected, outcomes(configuration, MEMBERS, way), strict=True):
        for name, values in reference.weights.items():
            assert np.abs(values - model.weights[name]).max() < 1e-8 * max(1, np.abs(values).max()), name


@pytest.mark.parametrize("network", ["cnn2", "resnet18", "airbench"])
@pytest.mark.parametrize("places", [1, 2])
def test_memory_order_changes_only_rounding(network: str, places: int) -> None:
    configuration = spec(network)
    configuration = replace(configuration, recipe=replace(RECIPE, epochs=1, precision="float32"))
    data, aliases = place_images(configuration.images, GPU).replace_images([{}] * 2)
    workload = Workload(configuration, data, MEMBERS[:2], aliases)
    losses = []
    for channels_last in (False, True):
        strategy = Strategy("stack", places=places, captured=True, channels_last=channels_last)
        with hardware.exactly(GPU):
            outcome = dict(Trainer(workload, strategy, None, dict(enumerate(MEMBERS[:2]))).outcomes())
        losses.append([outcome[index].history[-1].validation_loss for index in range(2)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-2)


USERS = {
    "teacher by RMSprop": (Teacher(256, 10.0), {"optimiser": "rmsprop", "schedule": ((2, 0.5), (6, 0.1))}),
    "teacher in parts": (Teacher(256, 10.0), {"accumulate": 4}),
    "classifier in parts": (None, {"optimiser": "rmsprop", "accumulate": 2}),
}


@pytest.mark.parametrize("way", ["loop", "stack", "graph"])
@pytest.mark.parametrize("user", USERS)
def test_after_step_hooks_equal_processor(user: str, way: StrategyName) -> None:
    learning, settings = USERS[user]
    configuration = spec("mlp1", dropout=True)
    recipe = replace(RECIPE, learning_rate=0.003, **settings)
    configuration = replace(configuration, recipe=recipe, learning=learning or configuration.learning)
    members = [*MEMBERS, replace(MEMBERS[0], learning_rate=0.001)]
    for member, model in zip(members, outcomes(configuration, members, way), strict=True):
        assert isinstance(model, Trained), model
        expected = plain.train(configuration, member, 10)
        for name, values in expected.weights[10].items():
            assert np.abs(values - model.weights[name]).max() < 1e-8 * max(1, np.abs(values).max()), name
        for expected_epoch, epoch in zip(expected.history, model.history, strict=True):
            assert abs(expected_epoch.train_loss - epoch.train_loss) < 1e-8


@pytest.mark.parametrize("way", ["loop", "stack", "graph"])
@pytest.mark.parametrize("user", USERS)
def test_chain_of_states_equals_unbroken_training(user: str, way: StrategyName) -> None:
    learning, settings = USERS[user]
    configuration = spec("mlp1", dropout=True)
    configuration = replace(
        configuration,
        recipe=replace(RECIPE, learning_rate=0.003, **settings),
        learning=learning or configuration.learning,
    )
    (unbroken,) = outcomes(configuration, MEMBERS[:1], way)
    (first,) = outcomes(configuration, [replace(MEMBERS[0], until=4, returns_state=True)], way)
    (last,) = outcomes(configuration, [replace(MEMBERS[0], start=first.state)], way)
    for name, values in unbroken.weights.items():
        assert np.abs(values - last.weights[name]).max() < 1e-8 * max(1, np.abs(values).max()), name


@pytest.mark.parametrize("way", ["stack", "graph"])
def test_freed_slots_are_refilled_and_chains_continue(way: StrategyName) -> None:
    configuration = spec("mlp1")
    configuration = replace(
        configuration, recipe=replace(configuration.recipe, epochs=40, patience=2, learning_rate=3e-3)
    )
    members = [Member(seed, np.arange(50 + seed)) for seed in range(9)]
    members += [replace(members[0], until=3), replace(members[0], after=9)]
    with use_context(ComputeContext(way=way, members=4)):
        outcomes_here = dict(train_many(configuration, members, GPU))
    for index, expected in enumerate(outcomes(configuration, members, "loop", CPU)):
        assert [epoch.epoch for epoch in expected.history] == [epoch.epoch for epoch in outcomes_here[index].history]
        assert abs(expected.history[-1].validation_loss - outcomes_here[index].history[-1].validation_loss) < 1e-6


def test_infinite_loss_ends_only_its_member() -> None:
    members = [MEMBERS[0], replace(MEMBERS[1], learning_rate=1e300), MEMBERS[2]]
    first, second, third = outcomes(spec("mlp1"), members, "stack")
    assert isinstance(second, TrainingError)
    assert isinstance(first, Trained)
    assert isinstance(third, Trained)


def test_fused_kernel_is_used_and_correct() -> None:
    pytest.importorskip("triton")
    configuration = replace(spec("mlp1"), recipe=replace(RECIPE, precision="float32"))
    for stacked, single in zip(
        outcomes(configuration, MEMBERS, "stack"), outcomes(configuration, MEMBERS, "loop", CPU), strict=True
    ):
        assert abs(stacked.history[-1].validation_loss - single.history[-1].validation_loss) < 1e-3


@pytest.mark.parametrize("way", ["auto", "loop", "stack"])
def test_streamed_images_train_as_resident_ones(way: StrategyName, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = spec("cnn1", dropout=True)
    expected = outcomes(configuration, MEMBERS, "loop")
    by_rows = replace(configuration, images=Opened(configuration.images.train, configuration.images.test, 4))
    monkeypatch.setattr(device_data, "SHARE", 0)  # no images fit
    assert not place_images(by_rows.images, GPU).is_resident
    for resident, streamed in zip(expected, outcomes(by_rows, MEMBERS, way), strict=True):
        for name, values in resident.weights.items():
            within = 0 if way == "loop" else 1e-8 * max(1, np.abs(values).max())
            assert np.abs(values - streamed.weights[name]).max() <= within, name


def test_streamed_steps_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_data, "SHARE", 0)
    configuration = spec("mlp1")
    by_rows = replace(configuration, images=Opened(configuration.images.train, configuration.images.test, 4))
    (outcome,) = outcomes(by_rows, MEMBERS[:1], "graph")
    assert isinstance(outcome, TrainingError)
    assert "way is graph" in str(outcome)
