"""Where networks are computed, and how exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tasks import heap
from tasks.precision import full_float32
from tasks.threads import threads

if TYPE_CHECKING:
    import torch


def device() -> torch.device:
    """On the GPU where there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def name(place: torch.device) -> str:
    """What a device is called by those who sell it; "cpu" for any processor."""
    import torch

    return torch.cuda.get_device_name(place) if place.type == "cuda" else place.type


@contextmanager
def exactly(place: torch.device) -> Iterator[None]:
    """Inside, float32 is float32 and the same work gives the same bits, on a GPU as far as its libraries can.

    By default torch rounds the factors of convolutions to 10 bits (TF32) there. On a CPU, one thread, and freed memory
    is kept for the next step (for good: it makes a third of a convolutional network's step).
    """
    import torch

    if place.type != "cuda":
        heap.keep()
        with threads(1):
            yield
        return
    library: Any = torch.backends.cudnn
    kinds = (library.conv, library.rnn)  # torch wants the two to agree
    before, repeatable = [kind.fp32_precision for kind in kinds], library.deterministic
    library.deterministic = True
    for kind in kinds:
        kind.fp32_precision = "ieee"
    try:
        with full_float32():
            yield
    finally:
        library.deterministic = repeatable
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision
