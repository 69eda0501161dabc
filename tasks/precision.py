"""How exactly float32 matrix products are computed in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_float32() -> Iterator[None]:
    """Inside, float32 products round as float32: no TF32 on a GPU, no bfloat16 on a CPU. Afterwards as before.

    Both ways in which torch lets a user ask for less are put back, `set_float32_matmul_precision` and
    `torch.backends.*.fp32_precision`; torch refuses to multiply where the two contradict each other.
    """
    import torch

    backends = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:  # asked for through the backends alone
        legacy = None
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if legacy is not None:
            torch.set_float32_matmul_precision(legacy)
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision
