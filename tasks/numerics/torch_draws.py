"""Draws of torch's own functions, such as initial weights and dropout, from a stream of `tasks.numerics.seeds`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tasks.numerics import seeds


@contextmanager
def drawn_from(seed: int, *stream: str | int, place: torch.device) -> Iterator[None]:
    """Draw from this stream inside; afterwards torch's random state is as it was."""
    devices = [place] if place.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seeds.derive(seed, *stream))
        yield
