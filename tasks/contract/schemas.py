"""The Arrow schemas that tables agree on."""

from __future__ import annotations

import pyarrow as pa

# One row per number that an audit reports. Null where there is none.
SUMMARY = pa.schema(
    [
        ("metric", pa.string()),
        ("setting", pa.string()),  # JSON of what was varied
        ("estimate", pa.float64()),
        ("low", pa.float64()),  # 95 % interval
        ("high", pa.float64()),
        ("n", pa.int64()),
        ("unit", pa.string()),  # what n counts; the independent training wherever there are several
        ("null", pa.float64()),  # what the estimate is where nothing is memorised
        ("p_value", pa.float64()),
        ("published", pa.float64()),  # the paper's number, only where data and network are the paper's
    ]
)

# One row: a trained network, the epoch its weights come from, and how it got there.
MODEL = pa.schema(
    [
        ("seed", pa.int64()),
        (
            "network",
            pa.struct(
                [
                    ("name", pa.string()),
                    ("shape", pa.list_(pa.int32())),  # of the images: height, width, channels
                    ("classes", pa.int32()),
                    ("dropout", pa.bool_()),
                    ("batch_norm", pa.bool_()),
                ]
            ),
        ),
        ("epochs", pa.int32()),  # epochs trained
        ("best_epoch", pa.int32()),  # the epoch whose weights these are, counted from 1
        (
            "history",
            pa.list_(
                pa.struct(
                    [
                        ("epoch", pa.int32()),
                        ("train_loss", pa.float64()),  # mean over the epoch's batches, in nats
                        ("validation_loss", pa.float64()),
                        ("validation_accuracy", pa.float64()),
                    ]
                )
            ),
        ),
        (
            "weights",
            pa.list_(
                pa.struct(
                    [
                        ("name", pa.string()),
                        ("shape", pa.list_(pa.int32())),
                        ("values", pa.large_binary()),  # little-endian float32, row-major
                    ]
                )
            ),
        ),
    ]
)

# A MODEL of a private training, with the epsilon that was spent by the end of each epoch.
PRIVATE_MODEL = pa.schema([*MODEL, ("epsilons", pa.list_(pa.float64()))])


def add_width(model: pa.Schema, width: float) -> pa.Schema:
    """The schema of a MODEL whose network has this width: one that is not 1 stands in `network`, too."""
    if width == 1:
        return model
    place = model.get_field_index("network")
    network = pa.struct([*model.field(place).type, ("width", pa.float64())])
    return model.set(place, pa.field("network", network))
