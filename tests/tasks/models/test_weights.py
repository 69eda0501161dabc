import numpy as np
import pyarrow as pa

from tasks.models.weights import rows, weights_of
from tasks.schemas import MODEL


def model(weights: dict[str, np.ndarray]) -> pa.Table:
    row = {"seed": 0, "epochs": 1, "best_epoch": 1, "history": [], "weights": rows(weights)}
    return pa.Table.from_pylist([row], schema=MODEL)


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
