"""Independent random streams, derived by name from one seed.

    generator(seed, "batch order", epoch) and generator(seed, "initial weights")

are independent and reproducible: the numbers in a stream do not depend on how other streams are used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *names: str | int) -> int:
    """Return a seed in [0, 2^63) for the stream `names` of `seed`: the SHA-256 of the unambiguous path."""
    path = "\x1f".join([str(int(seed)), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a NumPy generator (PCG64) at the start of the stream."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


@contextmanager
def drawn_from(seed: int, *stream: str | int, device: torch.device) -> Iterator[None]:
    """Inside the block, draw torch's random numbers, such as initial weights and dropout, from this stream.

    torch's random state is restored afterwards.
    """
    import torch

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive(seed, *stream))
        yield
