"""Writes result files atomically."""

from __future__ import annotations

from pathlib import Path


def write_whole(text: str, path: Path) -> None:
    """Write a file atomically, creating its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
