"""Independent random streams, derived by name from one seed.

    generator(seed, "batch order", epoch) and generator(seed, "initial weights")

are independent of one another and equal wherever they are drawn: nothing depends on which stream was used first.
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
    """A seed in [0, 2^63) for the stream called `names` below `seed`, by SHA-256 of the unambiguous path."""
    path = "\x1f".join([str(int(seed)), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator (PCG64) at the start of that stream."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


@contextmanager
def drawn_from(seed: int, *stream: str | int, place: torch.device) -> Iterator[None]:
    """Draw torch's own random numbers, such as initial weights and dropout, from this stream inside.

    Afterwards torch's random state is as it was.
    """
    import torch

    devices = [place] if place.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive(seed, *stream))
        yield
