"""Optional packages, and the extra of Engram that installs each.

A config, model file or data set that needs such packages has a method `extras()`, which planning, `show`, `list` and
`doctor` call. This module imports none of the packages.
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
    """A package, the extra that installs it (`engram-audit[NAME]`), and its purpose.

    `imported_as` is the name of the package's module if the two differ.
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
        """Whether the package is installed. Does not import it."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def advice(self) -> str:
        """The end of an error message: `timm: pip install 'engram-audit[deja_vu]'`."""
        return f"{self.package}: {install_command([self])}"


RUNS = "running audits"
PAGES = "drawing pages and figures"
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

# Needed by some settings only.
OPACUS = Extra("opacus", "privacy", "training with differential privacy")
TIMM = Extra("timm", "deja_vu", "vision transformers, and weights of timm's networks")
TRANSFORMERS = Extra("transformers", "run", "language models, and Hugging Face folders")
PEFT = Extra("peft", "relational", "fine-tuning by low-rank updates")
NIBABEL = Extra("nibabel", "medical", "the volumes of ACDC")
OPTUNA = Extra("optuna", "search", "the sampler optuna of a search")
ONNXRUNTIME = Extra("onnxruntime", "onnx", "models as ONNX files")
DATASETS = Extra("datasets", "hub", "downloading data sets of the Hugging Face hub")
EXTRAS = (TRANSFORMERS, PEFT, OPACUS, TIMM, NIBABEL, OPTUNA, ONNXRUNTIME, DATASETS)


class NeedsExtras(Protocol):
    """A config, or a part of one, that requires optional packages."""

    def extras(self) -> tuple[Extra, ...]:
        """Return the packages that this object requires, not counting those that its parts require."""


def install_command(extras: Iterable[Extra]) -> str:
    """Return the command that installs these packages for the running Python.

    In the environment managed by `make`, the command is `make`, whose lock files list every package and pin a single
    CUDA version. Elsewhere, it is a pip command, which adds the extras to an existing installation of `engram-audit`.
    """
    if Path(sys.prefix) == ROOT / ".venv" and (ROOT / "requirements.lock").exists():
        return f"make -B -C {ROOT} install"
    names = dict.fromkeys(extra.name for extra in extras)
    return f"pip install 'engram-audit[{','.join(names)}]'"


def describe_missing(absent: Sequence[Extra]) -> str:
    """Format a message: `this needs timm (for ...), which is not installed; install it with: pip install ...`."""
    purposes: dict[str, list[str]] = {}
    for extra in absent:
        purposes.setdefault(extra.purpose, []).append(extra.package)
    reasons = ", ".join(f"{_enumerate(packages)} (for {purpose})" for purpose, packages in purposes.items())
    verb, them = ("is", "it") if len(absent) == 1 else ("are", "them")
    return f"this needs {reasons}, which {verb} not installed; install {them} with: {install_command(absent)}"


def _enumerate(words: Sequence[str]) -> str:
    if len(words) > 1:
        return " and ".join((", ".join(words[:-1]), words[-1]))
    return words[0]


def extra_behind(error: ModuleNotFoundError) -> Extra | None:
    """Return the extra whose package is missing, or None if the missing module belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    return next((extra for extra in (*COMMON, *EXTRAS) if extra.module == module and not extra.is_installed), None)


def missing(extras: Iterable[Extra]) -> tuple[Extra, ...]:
    """Return the extras whose package is not installed, without duplicates."""
    return tuple(extra for extra in dict.fromkeys(extras) if not extra.is_installed)
