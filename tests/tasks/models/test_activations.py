import numpy as np
import pytest

from tasks.models import activations
from tasks.models.activations import active
from tasks.models.networks import Architecture
from tasks.models.regularisers import Regularisers

GREY = (28, 28, 1)


def manual_gradient(weights: dict[str, np.ndarray], images: np.ndarray) -> dict[str, np.ndarray]:
    """The activations of an mlp1, with batch norm where it has any: (n, units) by layer."""
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
def test_a_unit_is_active_where_its_relu_is_above_0(
    monkeypatch: pytest.MonkeyPatch, options: Regularisers, together: int
) -> None:
    monkeypatch.setattr(activations, "ROWS_AT_ONCE", together)
    network, stream = Architecture("mlp1", GREY, 10, options), np.random.default_rng(0)
    weights = {
        # Statistics and offsets that move the point at which a unit wakes.
        name: values + stream.uniform(0.1, 0.4, values.shape).astype(np.float32) * (values.ndim == 1)
        for name, values in network.initial(0).items()
    }
    images = stream.integers(0, 256, (7, *GREY), dtype=np.uint8)
    found, expected = active(network, weights, images, ["dense1", "dense3"]), manual_gradient(weights, images)
    assert ["dense1", "dense3"] == list(found)
    for layer, units in (("dense1", 512), ("dense3", 128)):
        assert ((7, units), np.dtype(bool)) == (found[layer].shape, found[layer].dtype)
        clear = (expected[layer] == 0) | (expected[layer] > 1e-5)  # float32 decides the rest either way
        assert (expected[layer] > 0)[clear].tolist() == found[layer][clear].tolist()
        assert 0.1 < found[layer].mean() < 0.9
