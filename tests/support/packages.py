"""Packages of third parties that offer audits, laid out as if installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.shell import ROOT

EXAMPLE = "label_memorization"


def offer(folder: Path, name: str, value: str, **modules: str) -> None:
    """Lay out an installed package that offers an audit."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[engram.audits]\n{name} = {value}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def offer_example(folder: Path) -> None:
    """Lay out a package whose audit is the one in `examples`."""
    text = (ROOT / "examples" / f"{EXAMPLE}.py").read_text()
    offer(folder, EXAMPLE, f"{EXAMPLE}:AUDIT", **{EXAMPLE: text})


@contextmanager
def offered_example(folder: Path) -> Iterator[None]:
    """The same, on Python's path during the context."""
    offer_example(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop(EXAMPLE, None)
