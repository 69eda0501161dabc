"""A user's function that maps records to vectors, pinned by the digest of its source.

`package.module:function` takes float32 images (rows, channels, height, width) in [0, 1], or the encoded features (rows,
features) of a table, and returns one vector per row, (rows, d).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tasks.models.custom import Factory, Named

Vectors = NDArray[np.float32]
ROWS = 256  # passed to the function at a time


@dataclass(frozen=True)
class Embedding(Named):
    """A function by name: `package.module:function` or `package.module:function@digest`."""

    noun: ClassVar[str] = "source of an embedding"
    choices: ClassVar[str] = "package.module:function"

    def check(self) -> None:
        Factory.parse(str(self), "embedding")

    def embed(self, records: NDArray[np.float32]) -> Vectors:
        """Return a vector for each record (rows, d).

        Raises ValueError if the function does not exist, its source has changed, it fails, or its result is invalid.
        """
        from tasks.models.factory_import import import_factory

        function = import_factory(Factory.parse(str(self), "embedding"))
        parts = []
        for start in range(0, len(records), ROWS):
            rows = records[start : start + ROWS]
            try:
                vectors = np.asarray(function(rows))
            except Exception as error:  # a user's function may raise anything
                message = " ".join(str(error).split())
                raise ValueError(f"embedding {self.name} failed: {type(error).__name__}: {message}") from error
            parts.append(self._checked(vectors, len(rows)))
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise ValueError(f"embedding {self.name} returns {min(widths)} or {max(widths)} numbers; use one length")
        return np.concatenate(parts)

    def _checked(self, vectors: NDArray[Any], rows: int) -> Vectors:
        if vectors.ndim != 2 or len(vectors) != rows or not vectors.shape[1] or vectors.dtype.kind not in "fiu":
            raise ValueError(
                f"embedding {self.name} returns {vectors.dtype} {vectors.shape} for {rows} rows; return numbers "
                f"({rows}, d)"
            )
        with np.errstate(over="ignore"):
            floats = vectors.astype(np.float32)
        bad = int((~np.isfinite(floats)).any(axis=1).sum())
        if bad:
            raise ValueError(
                f"embedding {self.name} returns {bad} of {rows} vectors with NaN or infinity; return finite numbers"
            )
        return floats
