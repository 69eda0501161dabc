import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.pixel_slopes import centred_logits
from tasks.audits.unique_feature.scores import log_probabilities
from tasks.audits.unique_feature.weight_change import first_dense, responses
from tasks.datasets.features import Glyph, burn, draw_member
from tasks.models.inference import logits
from tasks.models.networks import Architecture, network_row, weight_rows, weights_of_model
from tasks.schemas import MODEL
from tests.tasks.audits.unique_feature.made_up import LABEL, reads_the_letter

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1), dtype=np.uint8)
SETS = [burn(IMAGES, draw_member(Glyph(), seed)) for seed in range(4)]


def model(network: Architecture, weights: dict[str, np.ndarray]) -> pa.Table:
    row = {"seed": 1, "network": network_row(network), "epochs": 1, "best_epoch": 1, "history": []}
    return pa.Table.from_pylist([row | {"weights": weight_rows(weights)}], MODEL)


def changed(table: pa.Table, name: str, factor: float) -> pa.Table:
    weights = weights_of_model(table)
    return model(Architecture("mlp1", (28, 28, 1), 10), weights | {name: weights[name] * np.float32(factor)})


def test_of_a_dense_first_layer_its_change_counts_along_the_slopes_of_its_units() -> None:
    twin = reads_the_letter(3.0)
    canary = changed(twin, "dense1.weight", 1.5)
    # The letter's unit moves the label's logit by 3, so the centred one by 3 (1 - 1/10).
    before = [weights_of_model(twin)["dense1.weight"][0] @ images.reshape(3, -1).mean(axis=0) / 255 for images in SETS]
    assert 0.5 * 2.7 * np.array(before) == pytest.approx(responses(canary, twin, SETS, LABEL), rel=1e-5)
    assert np.zeros(4) == pytest.approx(responses(changed(twin, "dense4.weight", 2.0), twin, SETS, LABEL))


def test_of_other_networks_it_is_what_the_change_does_to_the_response_to_first_order() -> None:
    network = Architecture("cnn1", (28, 28, 1), 10)
    start, other = network.initial(1), network.initial(2)
    before = {name: values - 1e-3 * other[name] for name, values in start.items()}
    exact = [
        centred_logits(log_probabilities(logits(network, [start], images)[0]), 3).mean()
        - centred_logits(log_probabilities(logits(network, [before], images)[0]), 3).mean()
        for images in SETS
    ]
    assert exact == pytest.approx(responses(model(network, start), model(network, before), SETS, 3), rel=0.15)


def test_only_a_layer_that_sees_every_pixel_and_has_biases_counts_as_dense() -> None:
    assert ("dense1.weight", "dense1.bias") == first_dense(Architecture("mlp1", (28, 28, 1), 10))
    assert first_dense(Architecture("cnn1", (28, 28, 1), 10)) is None
