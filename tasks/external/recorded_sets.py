"""Both sets of objects in memory, recorded as images on which networks are trained here."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.contract.schemas import make_table
from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import gather
from tasks.external.audit_inputs import BYTE, Array, RecordSet, is_bytes
from tasks.worker import files
from tasks.worker.files import File

RECORDED = pa.schema(
    [
        ("member", pa.bool_()),
        ("label", pa.int64()),
        ("height", pa.int64()),
        ("width", pa.int64()),
        ("channels", pa.int64()),
        ("pixels", pa.large_binary()),  # bytes (height, width, channels)
    ]
)


def record_images(inside: RecordSet, outside: RecordSet) -> pa.Table:
    """Return both sets as images that networks are trained on here (RECORDED).

    Records other than bytes are scaled from [0, 1] or, if they have other values, from the range of both sets.
    """
    pixels = _as_pixels(gather([inside.images, outside.images]))
    _, height, width, channels = pixels.shape
    encoded = [image.tobytes() for image in pixels]
    return make_table(
        RECORDED,
        member=np.arange(len(pixels)) < len(inside.labels),
        label=np.concatenate([inside.labels, outside.labels]),
        height=height,
        width=width,
        channels=channels,
        pixels=pa.array(encoded, pa.large_binary()),
    )


def _as_pixels(records: Array) -> Pixels:
    """Convert records of any shape to bytes (n, h, w, 1 or 3). Records other than images become one row of pixels."""
    if is_bytes(records):
        values = records.astype(np.uint8)
    else:
        low, high = 0.0, 1.0
        if records.min() < 0 or records.max() > 1:
            low, high = float(records.min()), float(records.max())
        shares = (records.astype(np.float64) - low) / ((high - low) or 1.0)
        values = np.rint(BYTE * shares).astype(np.uint8)
    if values.ndim == 3:
        return values[..., None]
    if values.ndim == 4 and values.shape[3] in (1, 3):
        return values
    if values.ndim == 4 and values.shape[1] in (1, 3):
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1))
    return values.reshape(len(values), 1, -1, 1)


def read_recorded_sets(file: File) -> tuple[RecordSet, RecordSet]:
    """Read both sets (RECORDED). Raises FileError if it is missing, another file, or not of this form."""
    table = read_recorded_table(file, RECORDED)
    first = table.slice(0, 1).to_pylist()[0]
    shape = first["height"], first["width"], first["channels"]
    pixels = np.frombuffer(b"".join(table["pixels"].to_pylist()), np.uint8).reshape(-1, *shape)
    labels = table["label"].to_numpy()
    is_member = np.asarray(table["member"])
    inside, outside = (RecordSet(pixels[rows], labels[rows]) for rows in (is_member, ~is_member))
    return inside, outside


def read_recorded_table(file: File, schema: pa.Schema) -> pa.Table:
    """Read a table that `engram.audit` recorded. Raises FileError if the file is missing, or another one."""
    import pyarrow.parquet as pq

    content = files.read(file)
    try:
        table = pq.read_table(pa.BufferReader(content))
    except pa.ArrowInvalid as error:
        raise files.FileError(f"{file.path} is not a Parquet file: {' '.join(str(error).split())}") from None
    if not table.schema.equals(schema):
        raise files.FileError(
            f"{file.path} has the columns {', '.join(table.column_names)}; expected a recording by "
            f"engram.audit, with {', '.join(schema.names)}"
        )
    return table.replace_schema_metadata(None)
