"""Slopes of a model's response in the pixels of a feature, and its change with the weights."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.population import inked_cells
from tasks.audits.unique_feature.scores import log_probabilities
from tasks.audits.unique_feature.slope_ranks import Subsets
from tasks.audits.unique_feature.slopes import (
    LEAST_INK,
    centred_logits,
    first_dense,
    pixel_ink,
    strongest_pixels,
    weight_change_responses,
    weighted_slopes,
)
from tasks.contract.schemas import MODEL
from tasks.datasets.features import Glyph, burn, draw_member
from tasks.models.inference import logits
from tasks.models.networks import Architecture, network_row, weight_rows, weights_of_model
from tests.tasks.audits.unique_feature.made_up import LABEL, letter_model


def glyphs(count: int, first: int = 0) -> np.ndarray:
    """`count` drawn glyphs, (count, 25)."""
    members = [draw_member(Glyph(), seed) for seed in range(first, first + count)]
    return np.array([inked_cells(glyph) for glyph in members if isinstance(glyph, Glyph)], np.float64)


def test_centred_logit_does_not_saturate() -> None:
    logits = np.array([[50.0, 0.0, 1.0], [70.0, 0.0, 2.0]])
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert pytest.approx(centred_logits(log_p, 0).tolist()) == [50 - 17.0, 70 - 24.0]


def test_ink_counts_whole_images() -> None:
    images = np.zeros((3, 2, 2, 1), np.uint8)
    images[:, 0, 0] = 255
    images[1, 1, 1] = 51
    assert pixel_ink(images)[..., 0].tolist() == [[1.0 * 3, 0.0], [0.0, 0.2]]


def test_weighted_slopes_are_centred_by_their_weights() -> None:
    draws = np.random.default_rng(1)
    slopes = draws.normal(size=25)
    inked = draws.uniform(0, 500, 25)
    weights = 1 / (inked + LEAST_INK)
    expected = weights * (slopes - (weights * slopes).sum() / weights.sum())
    features = glyphs(60)
    assert expected == pytest.approx(weighted_slopes(features, features @ slopes + 7, inked), abs=1e-9)
    # All glyphs have equal ink: a slope that all pixels share is not a response to one of the pixels.
    shifted = weighted_slopes(features, features @ (slopes + 3), inked)
    assert expected == pytest.approx(shifted, abs=1e-9)


def test_slopes_fit_fewer_features_than_pixels() -> None:
    draws = np.random.default_rng(2)
    features = draws.normal(size=(12, 40))
    responses = draws.normal(size=12)
    inked = draws.uniform(0, 50, 40)
    slopes = weighted_slopes(features, responses, inked) * (inked + LEAST_INK)
    fitted = features @ slopes
    assert responses - responses.mean() == pytest.approx(fitted - fitted.mean(), abs=1e-9)


def test_strongest_pixels_have_the_requested_number() -> None:
    assert strongest_pixels(np.array([0.0, 3.0, 1.0, 1.0]), 2).tolist() == [False, True, True, False]


def test_weights_find_a_shift_that_plain_slopes_miss() -> None:
    draws = np.random.default_rng(4)
    inked = np.r_[np.zeros(15), np.full(10, 4000.0)]  # the data have ink in 10 of 25 cells
    features = glyphs(60)
    calls_by_method = {"weighted": 0, "plain": 0}
    for seed in range(100):
        carried_glyph = glyphs(1, 1000 + seed)[0]
        slopes = 3 * carried_glyph + draws.normal(size=25) * np.sqrt(inked + LEAST_INK)
        for name, assumed_ink in (("weighted", inked), ("plain", np.full(25, 1e9))):
            p_value = Subsets(weighted_slopes(features, features @ slopes, assumed_ink)).p_value(carried_glyph > 0)
            calls_by_method[name] += p_value <= 0.05
    assert calls_by_method["weighted"] >= 40
    assert calls_by_method["plain"] <= 15


def test_features_without_shift_are_called_at_the_level() -> None:
    draws = np.random.default_rng(5)
    inked = np.r_[np.zeros(15), np.full(10, 4000.0)]
    features = glyphs(60)
    calls = 0
    for seed in range(500):
        noise = draws.normal(size=25) * np.sqrt(inked + LEAST_INK) + 30 * (np.arange(25) == 3)  # one pixel is favoured
        subsets = Subsets(weighted_slopes(features, features @ noise, inked))
        calls += subsets.p_value(glyphs(1, 5000 + seed)[0] > 0) <= 0.05
    assert 500 * 0.05 - 15 <= calls <= 500 * 0.05 + 15  # 3 standard deviations


IMAGES = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1), dtype=np.uint8)
SETS = [burn(IMAGES, draw_member(Glyph(), seed)) for seed in range(4)]


def model(network: Architecture, weights: dict[str, np.ndarray]) -> pa.Table:
    row = {"seed": 1, "network": network_row(network), "epochs": 1, "best_epoch": 1, "history": []}
    return pa.Table.from_pylist([row | {"weights": weight_rows(weights)}], MODEL)


def scale_weights(table: pa.Table, name: str, factor: float) -> pa.Table:
    weights = weights_of_model(table)
    return model(Architecture("mlp1", (28, 28, 1), 10), weights | {name: weights[name] * np.float32(factor)})


def test_dense_first_layer_change_acts_along_unit_slopes() -> None:
    control = letter_model(3.0)
    canary = scale_weights(control, "dense1.weight", 1.5)
    # The letter's unit moves the label's logit by 3, so the centred logit moves by 3 (1 - 1/10).
    before = []
    for images in SETS:
        before.append(weights_of_model(control)["dense1.weight"][0] @ images.reshape(3, -1).mean(axis=0) / 255)
    assert 0.5 * 2.7 * np.array(before) == pytest.approx(
        weight_change_responses(canary, control, SETS, LABEL), rel=1e-5
    )
    assert np.zeros(4) == pytest.approx(
        weight_change_responses(scale_weights(control, "dense4.weight", 2.0), control, SETS, LABEL)
    )


def test_other_networks_use_the_first_order_change() -> None:
    network = Architecture("cnn1", (28, 28, 1), 10)
    start = network.initial(1)
    direction = network.initial(2)
    before = {name: values - 1e-3 * direction[name] for name, values in start.items()}
    exact = []
    for images in SETS:
        exact.append(
            centred_logits(log_probabilities(logits(network, [start], images)[0]), 3).mean()
            - centred_logits(log_probabilities(logits(network, [before], images)[0]), 3).mean()
        )
    assert exact == pytest.approx(
        weight_change_responses(model(network, start), model(network, before), SETS, 3), rel=0.15
    )


def test_dense_layer_needs_every_pixel_and_biases() -> None:
    assert first_dense(Architecture("mlp1", (28, 28, 1), 10)) == ("dense1.weight", "dense1.bias")
    assert first_dense(Architecture("cnn1", (28, 28, 1), 10)) is None
