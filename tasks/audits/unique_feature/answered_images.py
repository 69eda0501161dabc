"""The outputs of a model that a user's program trained, for the images that the measures of a pair need.

The model itself is not kept. Outputs are found by the content of the images, so that every measure evaluates a
program's models in the same way as networks trained by the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.scores import Array
from tasks.contract.schemas import MODEL, make_table
from tasks.datasets.copies import contents
from tasks.datasets.images import InMemory, Pixels
from tasks.datasets.picture_rows import Selected, Sliceable, gather

DIGEST = 32  # bytes

# One row. `seed`, `best_epoch` and `history` mean the same as in MODEL; a program has no history.
OUTPUTS = pa.schema(
    [
        MODEL.field("seed"),
        MODEL.field("best_epoch"),
        MODEL.field("history"),
        ("images", pa.binary()),  # the SHA-256 of every image (`tasks.datasets.copies`), one after another
        ("classes", pa.int32()),
        ("log_p", pa.list_(pa.float32())),  # log-probabilities of the classes, image by image
        ("epsilons", pa.list_(pa.float64())),  # that the program states; empty without privacy
    ]
)


def outputs_table(seed: int, images: Pixels, log_p: Array, epsilons: list[float]) -> pa.Table:
    """Return a model's outputs (images, classes) for these images (OUTPUTS)."""
    return make_table(
        OUTPUTS,
        seed=[seed],
        best_epoch=[1],
        history=[[]],
        images=[contents(images).tobytes()],
        classes=[log_p.shape[1]],
        log_p=[log_p.astype(np.float32).ravel()],
        epsilons=[epsilons],
    )


def is_answered(model: pa.Table) -> bool:
    """Return whether a model's table holds outputs (OUTPUTS) rather than weights."""
    return bool(model.schema.equals(OUTPUTS))


def answered_predictor(model: pa.Table) -> Callable[[str, Sliceable], Array]:
    """Return the predictor of a model from its outputs. It raises ValueError for images without outputs."""
    digests = _split(model["images"][0].as_py())
    log_p = model["log_p"][0].values.to_numpy().reshape(len(digests), -1).astype(np.float64)
    index_of = {digest: index for index, digest in enumerate(digests)}

    def predict(name: str, images: Sliceable) -> Array:
        try:
            indices = [index_of[digest] for digest in _split(contents(images).tobytes())]
        except KeyError:
            raise ValueError(f"the program's model was not evaluated on all images of the set {name!r}") from None
        selected: Array = log_p[indices]
        return selected

    return predict


def distinct_images(sets: Sequence[Sliceable]) -> Pixels:
    """Return the images of these sets, each once, in the order of their first occurrence."""
    images = gather(sets)
    first: dict[bytes, int] = {}
    for index, digest in enumerate(_split(contents(images).tobytes())):
        first.setdefault(digest, index)
    rows: NDArray[np.int64] = np.fromiter(first.values(), np.int64)
    return gather([Selected(InMemory(images, np.zeros(len(images), np.int64)), rows)])


def _split(digests: bytes) -> list[bytes]:
    return [digests[start : start + DIGEST] for start in range(0, len(digests), DIGEST)]
