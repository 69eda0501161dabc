"""Training on mixtures: the rows of each training, and its independence of the other trainings of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import CoinedCanaries, Part, Share
from tasks.datasets.picture_rows import one_image
from tasks.models.catalog import Network
from tasks.models.networks import architecture_of, weights_of_model
from tasks.training import classifier, mixed
from tasks.training.classifier import Training
from tasks.training.mixed import MIXED, PRIVATE_MIXED, Mixture, logits, pool_data, train
from tasks.training.recipe import Privacy

DIGITS = pin(Dataset("digits"))
PHOTOS = pin(Dataset("photos"))
ONE = Mixture((Share(Part(DIGITS, 0, 100)),), DIGITS, 10, network=Network("mlp1"), epochs=3, seed=5)
TWO = replace(ONE, shares=(Share(Part(PHOTOS), 0.5, 3), Share(Part(DIGITS, 200, 60))), seed=6)


def rows(table: pa.Table) -> dict[str, Any]:
    return table.to_pylist()[0]


def together(configs: Sequence[Mixture]) -> list[pa.Table | Exception]:
    outcomes = dict(mixed.train_many(configs, [[] for _ in configs]))
    return [outcomes[index] for index in range(len(configs))]


@pytest.fixture(scope="module")
def alone() -> list[pa.Table]:
    return [train(config, []) for config in (ONE, TWO)]


def test_pool_concatenates_the_sets() -> None:
    pool = pool_data((PHOTOS, DIGITS), ONE)
    photos = load(PHOTOS)
    digits = load(DIGITS)
    assert np.array_equal(digits.train_images[200], one_image(pool.images.train, len(photos.train_images) + 200))
    shares = Share(Part(DIGITS, 10, 2)), Share(Part(PHOTOS, 4, 3))
    first = len(photos.train_images) + 10
    assert pool.rows(shares).tolist() == [first, first + 1, 4, 5, 6]


def test_different_sets_share_call_without_effect(alone: list[pa.Table]) -> None:
    assert mixed.batch_key(ONE) == mixed.batch_key(TWO)
    assert [rows(table) for table in alone] == [
        rows(table) for table in together([ONE, TWO]) if isinstance(table, pa.Table)
    ]


def test_mixture_of_one_part_equals_classifier(alone: list[pa.Table]) -> None:
    plain = Training(DIGITS, Network("mlp1"), seed=5, examples=100, epochs=3, patience=0, learning_rate=1e-3)
    expected = weights_of_model(classifier.train(plain, []))
    actual = weights_of_model(alone[0])
    assert all(np.array_equal(expected[name], actual[name]) for name in expected)


def test_table_records_examples_and_accuracy(alone: list[pa.Table]) -> None:
    digits = load(DIGITS)
    predictions = logits(architecture_of(alone[0]), weights_of_model(alone[0]), digits.train_images[:100])
    right = float((predictions.argmax(1) == digits.train_labels[:100]).mean())
    assert alone[0].schema == MIXED
    assert rows(alone[0])["examples"] == 100
    assert rows(alone[0])["train_accuracy"] == right
    assert rows(alone[1])["examples"] == 126  # half of 132 photographs' squares, and 60 digits


def test_validation_images_are_independent_of_training_set(alone: list[pa.Table]) -> None:
    pool = pool_data((PHOTOS,), TWO)
    assert np.array_equal(load(DIGITS).test_images, pool.images.test.pixels(np.arange(360)))


def test_invalid_training_leaves_others_unchanged(alone: list[pa.Table]) -> None:
    out_of_range = replace(ONE, shares=(Share(Part(DIGITS, 1400, 100)),))
    first, second = together([out_of_range, TWO])
    assert isinstance(first, DatasetError)
    assert isinstance(second, pa.Table)
    assert rows(alone[1]) == rows(second)


def test_images_of_another_shape_are_refused() -> None:
    small = pin(Dataset("digits#14x14"))
    with pytest.raises(DatasetError, match="images of digits#14x14 are 14 x 14 x 1, but those of digits 28 x 28 x 1"):
        train(replace(ONE, shares=(Share(Part(small)),)), [])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("shares", (), "shares is empty"),
        ("classes", 0, "classes is 0; it must be at least 1"),
        ("crop", -1, "crop is -1"),
        ("optimiser", "sgd", "optimiser is 'sgd'; it must be one of adam, rmsprop, nesterov"),
        ("learning_rate", 0.0, "learning_rate is 0.0"),
    ],
)
def test_invalid_mixture_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ONE, **{field: value})


def test_cropped_network_is_evaluated_on_central_squares() -> None:
    table = train(replace(ONE, crop=20, epochs=2), [])
    network = architecture_of(table)
    weights = weights_of_model(table)
    assert network.shape == (20, 20, 1)
    images = load(DIGITS)
    predictions = logits(network, weights, images.train_images[:100])
    assert np.array_equal(logits(network, weights, images.train_images[:100, 4:24, 4:24]), predictions)
    assert (predictions.argmax(1) == images.train_labels[:100]).mean() == rows(table)["train_accuracy"]


COINED = CoinedCanaries(Part(DIGITS, 0, 60), 30, number=0, seed=3, mislabelled=True)
PRIVATE = replace(ONE, shares=(COINED,), epochs=2, batch=60, privacy=Privacy(8.0))


def test_private_epsilon_is_independent_of_coins() -> None:
    tables = together([PRIVATE, replace(PRIVATE, shares=(replace(COINED, number=1),))])
    models = []
    for table in tables:
        if isinstance(table, pa.Table) and table.schema == PRIVATE_MIXED:
            models.append(rows(table))
    first, second = (model["epsilons"] for model in models)
    assert first == second
    assert 0 < first[0] < first[1] <= 8.0
    assert models[0]["examples"] != models[1]["examples"]
    assert list(mixed.work(PRIVATE).trained) == ["privately train mlp1 on 28x28x1"]


def test_checkpoints_distinguish_private_training() -> None:
    plain = replace(PRIVATE, privacy=None)
    assert mixed.chain_state(plain).training != mixed.chain_state(PRIVATE).training


def test_only_equal_label_rules_share_a_call() -> None:
    plain = replace(PRIVATE, shares=(replace(COINED, mislabelled=False),))
    other_number = replace(PRIVATE, shares=(replace(COINED, number=5),))
    noise = replace(PRIVATE, shares=(replace(COINED, canary_images="noise"),))
    assert mixed.batch_key(PRIVATE) == mixed.batch_key(other_number)
    assert len({mixed.batch_key(mixture) for mixture in (PRIVATE, plain, noise)}) == 3
    learnt = replace(ONE, shares=(COINED,), epochs=60)
    rows_in = COINED.rows(load(DIGITS))
    model = train(learnt, [])
    predictions = logits(architecture_of(model), weights_of_model(model), load(DIGITS).train_images[rows_in]).argmax(
        axis=1
    )
    assert (predictions == COINED.alter_canaries(load(DIGITS)).train.labels[rows_in]).mean() > 0.9
    assert rows(model)["train_accuracy"] > 0.9


def test_network_without_private_form_is_refused() -> None:
    with pytest.raises(ValueError, match="privacy is set and network is densenet; it must be mlp1 or cnn1"):
        replace(PRIVATE, network=Network("densenet"))
