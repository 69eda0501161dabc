"""Images and fonts for tests."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tasks.worker.files import File, pin

FONT = pin(File(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")))


def saved(pixels: NDArray[np.uint8], path: Path) -> File:
    """Save these pixels (h, w) or (h, w, c) as an image file and pin it."""
    Image.fromarray(pixels).save(path)
    return pin(File(str(path)))
