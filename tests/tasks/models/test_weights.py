import numpy as np
import pyarrow as pa

from tasks.models.networks import Architecture
from tasks.models.regularisers import Regularisers
from tasks.models.weights import architecture_of, network_row, rows, weights_of
from tasks.schemas import MODEL, add_width

NETWORK = Architecture("cnn2", (32, 32, 3), 10, Regularisers(batch_norm=True))


def model(weights: dict[str, np.ndarray], network: Architecture = NETWORK) -> pa.Table:
    row = {
        "seed": 0,
        "network": network_row(network),
        "epochs": 1,
        "best_epoch": 1,
        "history": [],
        "weights": rows(weights),
    }
    return pa.Table.from_pylist([row], schema=add_width(MODEL, network.width))


def test_weights_come_back_from_the_table_bit_for_bit_and_in_order() -> None:
    stream = np.random.default_rng(0)
    written = {"b": stream.normal(size=(3, 4)).astype(np.float32), "a": np.array([np.nan, -0.0], np.float32)}
    read = weights_of(model(written))
    assert list(written) == list(read)
    for name, values in written.items():
        assert (values.shape, values.tobytes()) == (read[name].shape, read[name].tobytes())


def test_weights_that_lie_otherwise_in_memory_are_written_row_by_row() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(values, weights_of(model({"w": values}))["w"])


def test_the_network_comes_back_from_the_table() -> None:
    for name, regularisers in (
        ("cnn2", Regularisers(batch_norm=True)),
        ("mlp1", Regularisers(dropout=True)),
        ("clinic.network:make@0123abcd", Regularisers()),
    ):
        network = Architecture(name, (28, 32, 3), 7, regularisers)
        assert network == architecture_of(model({}, network))
    narrow = Architecture("mlp1", (28, 28, 1), 10, width=0.3)
    assert narrow == architecture_of(model({}, narrow))
    assert MODEL == add_width(MODEL, 1.0)  # stored models of the published width stay as they are
