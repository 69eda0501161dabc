"""Number formats of matrix products and convolutions.

Training has two of them. Weights, moments, losses and evaluation use float32 in both. With bfloat16, a step rounds the
factors of its products and convolutions to 8 significant bits (torch's autocast), and their results with them.

Estimates of log p have a third one, TF32: factors are rounded to 11 significant bits, sums are float32. GPUs multiply
in TF32 several times as fast as in float32. On a CPU, factors are rounded and then multiplied in float32, so that
results do not depend on the device by more than the order of sums.

Planning does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bfloat16"]
DecoderPrecision = Literal["float32", "tf32", "bfloat16"]


def autocast(device_type: str, precision: str, *, has_cache: bool = False) -> torch.autocast:
    """Return a context in which products and convolutions are computed in this precision.

    In any precision but bfloat16, the context has no effect. By default, rounded weights are not cached, because a CUDA
    graph would keep a reference to the cache.
    """
    import torch

    return torch.autocast(device_type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=has_cache)


def is_autocast(device: torch.device) -> bool:
    """Return whether products on this device are computed in bfloat16 here. Tensors without memory have no autocast."""
    import torch

    return device.type != "meta" and torch.is_autocast_enabled(device.type)
