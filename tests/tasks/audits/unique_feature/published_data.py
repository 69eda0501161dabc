"""Data sets with the names, splits and shapes of the published ones, without their images: enough to plan with."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np

TRAIN, TEST = 60_000, 10_000


def write(root: Path) -> Path:
    """MNIST, Fashion-MNIST and CIFAR-10 in black, each class as often as any other."""
    for shade, folder in enumerate(("mnist", "fashion-mnist")):
        place = root / folder
        place.mkdir(parents=True)
        for part, count in (("train", TRAIN), ("t10k", TEST)):
            header = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
            (place / f"{part}-images-idx3-ubyte").write_bytes(header + bytes([shade]) * (count * 784))
            labels = (np.arange(count) % 10).astype(np.uint8)
            (place / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, count) + labels.tobytes())
    place = root / "cifar-10-batches-py"
    place.mkdir()
    batch = {b"data": np.zeros((10_000, 3072), np.uint8), b"labels": [row % 10 for row in range(10_000)]}
    content = pickle.dumps(batch, protocol=2)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (place / name).write_bytes(content)
    return root
