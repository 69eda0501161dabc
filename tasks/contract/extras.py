"""Packages that an installation may lack, by the extra of Engram that installs each.

A config, model file or data set that needs one has a method `extras()`; planning, `show`, `list` and `doctor` read
those, so that what needs which package is said beside it, once. Nothing here imports a package.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Extra:
    """A package, the extra that installs it (`engram-audit[NAME]`), and what needs it.

    `imported_as` is the package's module where that has another name.
    """

    package: str
    name: str
    purpose: str
    imported_as: str = ""

    @property
    def module(self) -> str:
        return self.imported_as or self.package

    @property
    def is_installed(self) -> bool:
        """Whether the package can be found; it is not imported."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def advice(self) -> str:
        """`timm: pip install 'engram-audit[deja_vu]'`: the end of a message that says what needs the package."""
        return f"{self.package}: {install_command([self])}"


RUNS, PAGES = "running audits", "drawing pages and figures"
RAY = Extra("ray", "run", RUNS)
TORCH = Extra("torch", "run", RUNS)
TORCHVISION = Extra("torchvision", "run", RUNS)
SCIKIT_LEARN = Extra("scikit-learn", "run", RUNS, "sklearn")
EVERY_RUN = (RAY, TORCH, TORCHVISION, SCIKIT_LEARN)

MLFLOW = Extra("mlflow", "run", "tracking runs")
SAFETENSORS = Extra("safetensors", "run", "weights of models as files")
MATPLOTLIB = Extra("matplotlib", "report", PAGES)
JINJA2 = Extra("jinja2", "report", PAGES)
MARKUPSAFE = Extra("markupsafe", "report", PAGES)
SCIPY = Extra("scipy", "report", PAGES)
PILLOW = Extra("pillow", "report", PAGES, "PIL")
OBSTORE = Extra("obstore", "bucket", "stores in buckets")
COMMON = (*EVERY_RUN, MLFLOW, SAFETENSORS, MATPLOTLIB, JINJA2, MARKUPSAFE, SCIPY, PILLOW, OBSTORE)

# Those that only some settings need.
OPACUS = Extra("opacus", "privacy", "training with differential privacy")
TIMM = Extra("timm", "deja_vu", "vision transformers, and weights of timm's networks")
TRANSFORMERS = Extra("transformers", "run", "language models, and Hugging Face folders")
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


def describe_missing(absent: Sequence[Extra]) -> str:
    """`this needs timm (for ...), which is not installed; install it with: pip install ...`."""
    purposes: dict[str, list[str]] = {}
    for extra in absent:
        purposes.setdefault(extra.purpose, []).append(extra.package)
    reasons = ", ".join(f"{_enumerate(packages)} (for {purpose})" for purpose, packages in purposes.items())
    verb, them = ("is", "it") if len(absent) == 1 else ("are", "them")
    return f"this needs {reasons}, which {verb} not installed; install {them} with: {install_command(absent)}"


def _enumerate(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def extra_behind(error: ModuleNotFoundError) -> Extra | None:
    """The extra whose package this import did not find; None where it missed another module."""
    module = (error.name or "").partition(".")[0]
    return next((extra for extra in (*COMMON, *EXTRAS) if extra.module == module and not extra.is_installed), None)


def missing(extras: Iterable[Extra]) -> tuple[Extra, ...]:
    """Those whose package is not installed, each once."""
    return tuple(extra for extra in dict.fromkeys(extras) if not extra.is_installed)
