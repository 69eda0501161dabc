"""Packages that only some settings need, by the extra of Engram that installs each.

A config, model file or data set that needs one has a method `extras()`; planning, `show`, `list` and `doctor` read
those, so that what needs which package is said beside it, once. Nothing here imports a package.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Extra:
    """A package, the extra that installs it (`engram-audit[NAME]`), and what needs it."""

    package: str
    name: str
    purpose: str

    @property
    def is_installed(self) -> bool:
        """Whether the package can be found; it is not imported."""
        return importlib.util.find_spec(self.package) is not None

    @property
    def advice(self) -> str:
        """`timm: pip install 'engram-audit[deja_vu]'`: the end of a message that says what needs the package."""
        return f"{self.package}: {install_command([self])}"


OPACUS = Extra("opacus", "privacy", "training with differential privacy")
TIMM = Extra("timm", "deja_vu", "vision transformers, and weights of timm's networks")
TRANSFORMERS = Extra("transformers", "relational", "language models, and Hugging Face folders")
PEFT = Extra("peft", "relational", "fine-tuning by low-rank updates")
NIBABEL = Extra("nibabel", "medical", "the volumes of ACDC")
OPTUNA = Extra("optuna", "search", "the sampler optuna of a search")
ONNXRUNTIME = Extra("onnxruntime", "onnx", "models as ONNX files")
EXTRAS = (TRANSFORMERS, PEFT, OPACUS, TIMM, NIBABEL, OPTUNA, ONNXRUNTIME)


class NeedsExtras(Protocol):
    """A config, or what a config names, that cannot be computed without some packages."""

    def extras(self) -> tuple[Extra, ...]:
        """The packages that this one needs by itself, beside what its parts need."""


def install_command(extras: Iterable[Extra]) -> str:
    """The command that installs these packages where this Python looks for them.

    In the environment that `make` keeps it is `make`, since the locks hold every package, and no second CUDA. Elsewhere
    it is pip, which installs an extra beside what `pip install engram-audit` has brought already.
    """
    if Path(sys.prefix) == ROOT / ".venv" and (ROOT / "requirements.lock").exists():
        return f"make -B -C {ROOT} install"
    names = dict.fromkeys(extra.name for extra in extras)
    return f"pip install 'engram-audit[{','.join(names)}]'"


def missing(extras: Iterable[Extra]) -> tuple[Extra, ...]:
    """Those whose package is not installed, each once."""
    return tuple(extra for extra in dict.fromkeys(extras) if not extra.is_installed)
