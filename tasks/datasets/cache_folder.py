"""The cache folder of this machine: ENGRAM_CACHE or, if that is not set, `engram` in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from tasks.worker.files import expand_home


def cache_folder() -> Path:
    """Return the cache folder, which need not exist."""
    configured_path = os.environ.get("ENGRAM_CACHE")
    if configured_path:
        return expand_home(configured_path).absolute()
    return expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache").absolute() / "engram"
