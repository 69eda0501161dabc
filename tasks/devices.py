"""Where networks are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device() -> torch.device:
    """On the GPU where there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
