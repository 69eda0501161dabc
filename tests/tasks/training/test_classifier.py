"""Classifiers as tasks: training rows, left-out neighbours and tables."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.contract.job import marks
from tasks.contract.schemas import MODEL, PRIVATE_MODEL, add_width
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, burn
from tasks.models.catalog import Network
from tasks.models.inference import logits
from tasks.models.networks import architecture_of, weights_of_model
from tasks.training.classifier import (
    Burnt,
    NearestImages,
    Training,
    batch_key,
    chain_state,
    member_of,
    train,
    train_many,
    work,
)
from tasks.training.recipe import Privacy
from tasks.worker.compute_context import ComputeContext, use_context

IMAGES = load(pin(Dataset("digits"))).train_images[:300]


def brute(images: np.ndarray, row: int, count: int) -> list[int]:
    """The nearest rows in integer arithmetic, sorted by distance and then by row."""
    squares = ((images.astype(np.int64) - images[row].astype(np.int64)) ** 2).reshape(len(images), -1).sum(axis=1)
    order = []
    for index in np.lexsort((np.arange(len(images)), squares)):
        if index != row:
            order.append(int(index))
    return sorted(order[:count])


@pytest.mark.parametrize("row", [0, 7, 299])
@pytest.mark.parametrize("count", [1, 10, 299])
def test_nearest_images_equal_brute_force(row: int, count: int) -> None:
    nearest = NearestImages(row, count).rows_among(IMAGES)
    assert brute(IMAGES, row, count) == nearest.tolist()
    assert (count, False) == (len(nearest), row in nearest)


def test_equally_near_images_are_ordered_by_row() -> None:
    images = IMAGES[:20].copy()
    images[[3, 9, 15]] = images[12]  # copies of the image, before and after it
    images[5:9] = images[5]
    assert NearestImages(12, 2).rows_among(images).tolist() == [3, 9]
    assert NearestImages(12, 3).rows_among(images).tolist() == [3, 9, 15]
    assert NearestImages(5, 2).rows_among(images).tolist() == [6, 7]
    assert NearestImages(8, 2).rows_among(images).tolist() == [5, 6]


def test_invalid_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="count is 0; it must be at least 1"):
        NearestImages(3, 0)
    with pytest.raises(ValueError, match="there are only 19 other training images"):
        NearestImages(3, 20).rows_among(IMAGES[:20])
    with pytest.raises(ValueError, match="row 20 has no neighbours; the rows are 0 to 19"):
        NearestImages(20, 2).rows_among(IMAGES[:20])


DIGITS = pin(Dataset("digits"))
TINY = Training(DIGITS, examples=256, epochs=2)


def test_digits_are_learnt_in_a_few_epochs() -> None:
    model = train(Training(DIGITS, epochs=8), ())
    row = model.to_pylist()[0]
    assert row["epochs"] == 8
    assert row["seed"] == 0
    assert [epoch["epoch"] for epoch in row["history"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    best = row["history"][row["best_epoch"] - 1]
    assert best["validation_accuracy"] > 0.9
    images = load(DIGITS)
    right = (
        logits(architecture_of(model), [weights_of_model(model)], images.test_images)[0].argmax(1) == images.test_labels
    )
    assert best["validation_accuracy"] == right.mean()


def test_model_is_one_row_of_its_schema() -> None:
    model = train(TINY, ())
    assert len(model) == 1
    assert model.schema == MODEL
    assert [(name, weight.shape) for name, weight in architecture_of(model).weights.items()] == [
        (name, w.shape) for name, w in weights_of_model(model).items()
    ]


def test_train_is_train_many_of_one() -> None:
    configs = [dataclasses.replace(TINY, seed=seed) for seed in (3, 4)]
    together = dict(train_many(configs, [(), ()]))
    assert [train(config, ()) for config in configs] == [together[0], together[1]]


def test_canary_changes_only_its_row() -> None:
    images = load(DIGITS)
    member = member_of(dataclasses.replace(TINY, burnt=(Burnt(7, Glyph()),)), images)
    assert list(member.replaced) == [7]
    np.testing.assert_array_equal(burn(images.train_images[7:8], Glyph())[0], member.replaced[7])
    assert not np.array_equal(images.train_images[7], member.replaced[7])
    np.testing.assert_array_equal(np.arange(256), member.rows)


def test_canary_changes_the_model() -> None:
    canary = dataclasses.replace(TINY, burnt=(Burnt(7, Glyph()),))
    clean, burnt = dict(train_many([TINY, canary], [(), ()])).values()
    assert isinstance(clean, pa.Table)
    assert clean != burnt


def test_canary_outside_rows_ends_only_its_training() -> None:
    outside = dataclasses.replace(TINY, burnt=(Burnt(256, Glyph()),))
    outcomes = dict(train_many([outside, TINY], [(), ()]))
    assert str(outcomes[0]) == "a feature is burnt into row 256; the training rows are 0 to 255"
    assert train(TINY, ()) == outcomes[1]
    with pytest.raises(ValueError, match="burnt into row 256"):
        train(outside, ())


def test_more_examples_than_available_are_refused() -> None:
    with pytest.raises(ValueError, match="examples is 1438; digits has 1437 training images"):
        train(Training(DIGITS, examples=1438), ())


def test_trainings_differing_in_seed_and_features_share_call() -> None:
    canary = dataclasses.replace(TINY, seed=9, burnt=(Burnt(1, Glyph()),))
    longer = dataclasses.replace(TINY, epochs=3)
    assert batch_key(TINY) == batch_key(canary)
    assert batch_key(TINY) != batch_key(longer)
    with pytest.raises(ValueError, match="cannot share a call"):
        list(train_many([TINY, longer], [(), ()]))


def test_the_task_is_marked() -> None:
    mark = marks(train)
    assert mark.name == "classifier.train"
    assert mark.version == 3
    assert mark.gpus == 1.0
    assert train_many == mark.many
    assert batch_key == mark.batch_key


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", -1, "epochs is -1; it must be at least 1"),
        ("patience", -1, "patience is -1; it must be at least 0"),
        ("batch", 0, "batch is 0; it must be at least 1"),
        ("examples", -5, "examples is -5; it must be at least 0"),
        ("seed", -1, "seed is -1; it must be at least 0"),
        ("learning_rate", 0.0, "learning_rate is 0.0; it must be a finite number above 0"),
        ("learning_rate", float("nan"), "learning_rate is nan; it must be a finite number above 0"),
        ("network", Network("mlp7"), "network is 'mlp7'; it must be one of mlp1"),
        (
            "burnt",
            (Burnt(3, Glyph()), Burnt(2, Glyph())),
            r"burnt has the rows \[3, 2\]; they must be strictly ascending",
        ),
    ],
)
def test_a_value_out_of_range_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **{field: value})  # type: ignore[arg-type]


def test_a_negative_row_is_refused() -> None:
    with pytest.raises(ValueError, match="row is -1; it must be at least 0"):
        Burnt(-1, Glyph())


NARROW = dataclasses.replace(TINY, examples=60, batch=30, patience=0, width=0.25)


def test_narrow_model_is_smaller_and_records_its_width() -> None:
    model = train(NARROW, ())
    assert add_width(MODEL, 0.25) == model.schema
    assert tuple(weights_of_model(model)[f"dense{layer}.weight"].shape for layer in (1, 4)) == ((128, 784), (10, 32))
    assert architecture_of(model).width == 0.25
    assert train(dataclasses.replace(NARROW, width=1.0), ()).schema == MODEL


def test_widths_share_neither_call_nor_checkpoint() -> None:
    wide = dataclasses.replace(NARROW, width=1.0)
    assert batch_key(NARROW) != batch_key(wide)
    assert chain_state(NARROW).training != chain_state(wide).training
    with pytest.raises(ValueError, match="cannot share a call"):
        list(train_many([NARROW, wide], [(), ()]))
    ends = []
    for config in (wide, NARROW):
        ends.append(dataclasses.replace(config, epochs=500, patience=10))
    amounts = []
    for config in (wide, NARROW, *ends):
        amounts.append(next(iter(work(config).trained.values())))
    assert 0.25 < amounts[1] / amounts[0] < 0.4
    assert amounts[1] / amounts[0] < amounts[3] / amounts[2] < 1  # more epochs, each of less work


@pytest.mark.parametrize("together", [False, True])
def test_training_leaves_out_nearest_images(together: bool) -> None:
    images = load(DIGITS)
    configs = []
    for row in (3, 40):
        configs.append(dataclasses.replace(NARROW, seed=row, left_out=NearestImages(row, 20)))
    for config in configs:
        assert config.left_out is not None
        nearest = config.left_out.rows_among(images.train_images[:60])
        assert np.delete(np.arange(60), nearest).tolist() == member_of(config, images).rows.tolist()
        assert chain_state(config).training != chain_state(dataclasses.replace(config, left_out=None)).training
    # Trainings of the same number of rows share a call; a stack gives each training its own result.
    assert batch_key(configs[0]) == batch_key(configs[1]) != batch_key(NARROW)
    with use_context(ComputeContext("stack" if together else "loop")):
        outcomes = dict(train_many(configs, [(), ()]))
    for index, config in enumerate(configs):
        table = outcomes[index]
        assert isinstance(table, pa.Table)
        alone = weights_of_model(train(config, ()))
        for name, values in weights_of_model(table).items():
            np.testing.assert_allclose(alone[name], values, atol=1e-5 if together else 0)
    count = {next(iter(work(config).trained.values())) for config in (NARROW, *configs)}
    assert len(count) == 2  # fewer images are less work


def test_invalid_left_out_images_end_only_their_training() -> None:
    images = load(DIGITS)
    (nearest,) = NearestImages(3, 1).rows_among(images.train_images[:60]).tolist()
    left_out_canary = dataclasses.replace(NARROW, left_out=NearestImages(3, 1), burnt=(Burnt(nearest, Glyph()),))
    outcomes = dict(train_many([left_out_canary, dataclasses.replace(left_out_canary, burnt=())], [(), ()]))
    assert str(outcomes[0]) == f"a feature is burnt into row {nearest}, which is left out of the training"
    assert isinstance(outcomes[1], pa.Table)
    with pytest.raises(ValueError, match="60 nearest images are left out; there are only 59 other"):
        train(dataclasses.replace(NARROW, left_out=NearestImages(3, 60)), ())


@pytest.mark.trained
def test_results_change_only_with_version() -> None:
    history = train(dataclasses.replace(TINY, epochs=1), ()).to_pylist()[0]["history"]
    losses = [round(history[0][name], 3) for name in ("train_loss", "validation_loss")]
    assert marks(train).version == 3
    assert losses == [2.256, 2.132]


PRIVATE = dataclasses.replace(TINY, examples=60, batch=60, patience=0, privacy=Privacy(8.0))


def test_private_model_records_epsilon_of_each_epoch() -> None:
    model = train(PRIVATE, ())
    assert len(model) == 1
    assert model.schema == PRIVATE_MODEL
    (epsilons,) = model["epsilons"].to_pylist()
    assert 0 < epsilons[0] < epsilons[1] <= 8.0
    assert model["best_epoch"][0].as_py() == 2
    canary = train(dataclasses.replace(PRIVATE, burnt=(Burnt(7, Glyph()),)), ())
    assert epsilons == canary["epsilons"][0].as_py()
    assert model["weights"] != canary["weights"]
    narrow = train(dataclasses.replace(PRIVATE, width=0.1), ())
    assert narrow.schema == add_width(PRIVATE_MODEL, 0.1)
    assert weights_of_model(narrow)["dense1.weight"].shape == (51, 784)


def test_private_training_has_own_pace_and_batch_key() -> None:
    assert list(work(PRIVATE).trained) == ["privately train mlp1 on 28x28x1"]
    assert batch_key(TINY) != batch_key(dataclasses.replace(TINY, patience=0, privacy=Privacy(8.0)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"network": Network("cnn2")}, "privacy is set and network is cnn2; it must be mlp1 or cnn1"),
        (
            {"batch_norm": True},
            "privacy is set and batch_norm is on; it must be off, since it mixes a minibatch's images",
        ),
        ({"patience": 3}, "privacy is set and patience is 3; it must be 0"),
        ({"precision": "bfloat16"}, "privacy is set and precision is bfloat16; it must be float32"),
        ({"optimiser": "rmsprop"}, "privacy is set and optimiser is rmsprop; it must be adam"),
        ({"schedule": ((1, 0.5),)}, "privacy is set and schedule is ((1, 0.5),); it must be ()"),
    ],
)
def test_settings_incompatible_with_privacy_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="it must be") as caught:
        dataclasses.replace(PRIVATE, **fields)
    assert message == str(caught.value)
