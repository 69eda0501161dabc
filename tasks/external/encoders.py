"""Load external encoders and compute embeddings of images with them.

encoder = encoders.load_encoder(model, (224, 224, 3), EncoderInterface())
encoder.embed(images)  # (n, d)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Pixels
from tasks.external import loading
from tasks.external.loading import LoadedModel
from tasks.external.model_file import EncoderInterface, Interface, ModelFile
from tasks.external.outputs import other_batch

Embeddings = NDArray[np.float32]
# Tolerance between two embeddings of the same image, relative to the largest coordinate; above TF32 and half precision.
SAME = 0.01


@dataclass(eq=False)
class LoadedEncoder:
    """An encoder loaded for images of one shape (height, width, channels)."""

    model: LoadedModel
    _width: int | None = field(default=None, init=False)  # d, known once an image has been embedded

    def embed(self, images: Pixels) -> Embeddings:
        """Embed images (n, h, w, c) as (n, d), with the same d in all calls.

        Images are embedded in batches of the size set in the interface. The first batch is embedded twice, the second
        time in another order. If the two results differ, the encoder draws random numbers or depends on other images.
        Raises ValueError in this case, and also if the encoder fails or an embedding is not finite in float32.
        """
        size = " x ".join(map(str, self.model.shape))
        if images.dtype != np.uint8 or images.shape[1:] != self.model.shape:
            raise ValueError(f"images are {images.dtype} {images.shape}; expected uint8 (n, {size})")
        if not len(images):
            raise ValueError(f"{self._where}: there are no images to embed")
        if self._width is None:
            self._try(images[: self.model.rows])
        rows = self.model.rows
        parts = []
        for start in range(0, len(images), rows):
            parts.append(self._batch(images[start : start + rows]))
        return np.concatenate(parts)

    def _try(self, images: Pixels) -> None:
        first = self._batch(images)
        half = other_batch(first)
        second = self._batch(images[half])
        difference = float(np.abs(second.astype(np.float64) - first[half]).max())
        largest = float(np.abs(first).max())
        if difference > SAME * largest:
            raise ValueError(
                f"{self._where}: two embeddings of one image differ by {difference / largest:.2g} of their largest "
                f"number; {loading.TRAINING_MODE}"
            )

    def _batch(self, images: Pixels) -> Embeddings:
        outputs = self.model.raw(images)
        if outputs.ndim < 2:
            raise ValueError(
                f"{self._where} returns {outputs.shape} for {len(images)} images; expected (rows, d); choose another "
                "output"
            )
        with np.errstate(over="ignore"):
            rows: Embeddings = outputs.reshape(len(outputs), -1).astype(np.float32)
        bad = int((~np.isfinite(rows)).any(axis=1).sum())
        if bad:
            raise ValueError(f"{self._where} returns embeddings that are not finite, for {bad} of {len(rows)} images")
        width = rows.shape[1] if self._width is None else self._width
        if rows.shape[1] != width or not width:
            raise ValueError(f"{self._where} returns embeddings of {rows.shape[1]} numbers, but of {width} earlier")
        self._width = width
        return rows

    @property
    def _where(self) -> str:
        return f"model {self.model.model.name}"


def load_encoder(model: ModelFile, shape: tuple[int, int, int], interface: EncoderInterface) -> LoadedEncoder:
    """Load an encoder for images of this shape (height, width, channels), as `tasks.external.loading` does.

    A factory, or timm, creates a network with 0 classes, and the weights of timm's classifier are ignored. Raises
    ValueError for other kinds of files and for files that would have to be unpickled.
    """
    model_interface = Interface(
        layout=interface.layout,
        mean=interface.mean,
        std=interface.std,
        output=interface.output,
        batch=interface.batch,
    )
    classes = 0 if model.is_weights else None
    return LoadedEncoder(loading.load_model(model, shape, model_interface, classes))
