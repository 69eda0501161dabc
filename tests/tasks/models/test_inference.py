from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tasks.models import inference
from tasks.models.catalog import Regularisers
from tasks.models.inference import ROWS_AT_ONCE, active_units, logits
from tasks.models.networks import Architecture

SHAPE = (28, 28, 1)


def images(count: int, shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def test_logits_equal_torchs() -> None:
    mlp1 = Architecture("mlp1", SHAPE, 10)
    weights = mlp1.initial(0)
    weights["dense4.bias"] = np.arange(10, dtype=np.float32)
    parts: list[nn.Module] = []
    for number in range(1, 5):
        outputs, inputs = weights[f"dense{number}.weight"].shape
        linear = nn.Linear(inputs, outputs)
        linear.weight.data = torch.from_numpy(weights[f"dense{number}.weight"])
        linear.bias.data = torch.from_numpy(weights[f"dense{number}.bias"])
        parts += [linear, nn.ReLU()]
    pixels = images(ROWS_AT_ONCE + 3)
    with torch.no_grad():
        expected = nn.Sequential(*parts[:-1])(torch.from_numpy(pixels.reshape(len(pixels), -1) / np.float32(255)))
    np.testing.assert_allclose(expected.numpy(), logits(mlp1, [weights], pixels)[0], atol=1e-5)


@pytest.mark.parametrize("name", ["mlp1", "cnn2"])
def test_logits_are_independent_of_other_models(name: str) -> None:
    network = Architecture(name, (32, 32, 3), 5, Regularisers(dropout=True, batch_norm=True))
    models = [network.initial(seed) for seed in range(3)]
    pixels = images(4, (32, 32, 3))
    together = logits(network, models, pixels)
    assert together.shape == (3, 4, 5)
    for model, model_logits in zip(models, together, strict=True):
        np.testing.assert_array_equal(logits(network, [model], pixels)[0], model_logits)
    np.testing.assert_array_equal(together[::-1], logits(network, models[::-1], pixels))


def test_evaluation_drops_nothing_and_moves_no_statistic() -> None:
    network = Architecture("cnn1", SHAPE, 10, Regularisers(dropout=True, batch_norm=True))
    weights = network.initial(0)
    before = {name: values.copy() for name, values in weights.items()}
    np.testing.assert_array_equal(logits(network, [weights], images(3)), logits(network, [weights], images(3)))
    for name, values in before.items():
        np.testing.assert_array_equal(values, weights[name])


def test_no_images_and_models_give_no_logits() -> None:
    network = Architecture("mlp1", SHAPE, 10)
    assert logits(network, [network.initial(0)], images(0)).shape == (1, 0, 10)
    assert logits(network, [], images(3)).shape == (0, 3, 10)


def test_read_only_weights_and_images_can_be_used() -> None:
    network = Architecture("mlp1", SHAPE, 10)
    weights = network.initial(0)
    pixels = images(2)
    for values in (*weights.values(), pixels):
        values.setflags(write=False)
    assert np.isfinite(logits(network, [weights], pixels)).all()


def test_number_of_threads_is_unchanged() -> None:
    network = Architecture("mlp1", SHAPE, 10)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        logits(network, [network.initial(0)], images(1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_nan_passes_through_every_layer() -> None:
    network = Architecture("mlp1", SHAPE, 10)
    weights = network.initial(0)
    weights["dense2.weight"][0, 0] = np.nan
    assert np.isnan(logits(network, [weights], images(2))).all()


GREY = (28, 28, 1)


def activations_by_numpy(weights: dict[str, np.ndarray], images: np.ndarray) -> dict[str, np.ndarray]:
    """The activations of an mlp1, with batch norm if present: (n, units) by layer."""
    x = images.reshape(len(images), -1) / 255
    values = {}
    for number in (1, 2, 3):
        x = x @ weights[f"dense{number}.weight"].T.astype(np.float64) + weights.get(f"dense{number}.bias", 0)
        if f"norm{number}.gamma" in weights:
            gamma, beta, mean, variance = (
                weights[f"norm{number}.{part}"].astype(np.float64) for part in ("gamma", "beta", "mean", "variance")
            )
            x = gamma * (x - mean) / np.sqrt(variance + 1e-3) + beta
        values[f"dense{number}"] = x = np.maximum(x, 0)
    return values


@pytest.mark.parametrize("options", [Regularisers(), Regularisers(dropout=True, batch_norm=True)], ids=str)
@pytest.mark.parametrize("together", [3, 512])
def test_unit_is_active_if_relu_is_positive(
    monkeypatch: pytest.MonkeyPatch, options: Regularisers, together: int
) -> None:
    monkeypatch.setattr(inference, "ROWS_AT_ONCE", together)
    network = Architecture("mlp1", GREY, 10, options)
    stream = np.random.default_rng(0)
    weights = {
        # Statistics and offsets that shift the threshold of a unit.
        name: values + stream.uniform(0.1, 0.4, values.shape).astype(np.float32) * (values.ndim == 1)
        for name, values in network.initial(0).items()
    }
    images = stream.integers(0, 256, (7, *GREY), dtype=np.uint8)
    active = active_units(network, weights, images, ["dense1", "dense3"])
    expected = activations_by_numpy(weights, images)
    assert list(active) == ["dense1", "dense3"]
    for layer, units in (("dense1", 512), ("dense3", 128)):
        assert active[layer].shape == (7, units)
        assert active[layer].dtype == np.dtype(bool)
        clear = (expected[layer] == 0) | (expected[layer] > 1e-5)  # float32 decides the rest either way
        assert (expected[layer] > 0)[clear].tolist() == active[layer][clear].tolist()
        assert 0.1 < active[layer].mean() < 0.9
