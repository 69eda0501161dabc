"""Hugging Face's folders of image classifiers: `config.json` and `model.safetensors`, as `save_pretrained` writes them.

Written `transformers:FOLDER`. Naming and pinning one import neither torch nor transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tasks import files
from tasks.datasets.content import digest_of
from tasks.external.file_contents import check_contents
from tasks.files import File, FileError

RULE = "given model: transformers folder, 1"
CONFIG, WEIGHTS, PREPROCESSOR = "config.json", "model.safetensors", "preprocessor_config.json"
CLASSIFIER = "ForImageClassification"  # in the names of transformers' classes that tell classes apart
BYTE = 255


def file_names(folder: str) -> tuple[str, ...]:
    """The files of the folder that make the model: its config, its weights and, where it has one, its preprocessor."""
    there = (files.expand_home(folder) / PREPROCESSOR).exists()
    return (CONFIG, WEIGHTS, *((PREPROCESSOR,) if there else ()))


def read_folder(name: str, folder: str) -> dict[str, bytes]:
    """The bytes of each file that makes the model.

    FileError, in one line, where a file is absent; ValueError where the model is no image classifier.
    """
    root = files.expand_home(folder)
    if not root.is_dir():
        raise FileError(f"there is no folder {root}")
    held = {file: files.read(File(str(root / file))) for file in file_names(folder)}
    classes = _parse_json(name, CONFIG, held).get("architectures") or []
    if not any(CLASSIFIER in str(each) for each in (classes if isinstance(classes, list) else [classes])):
        shown = ", ".join(map(str, classes)) if isinstance(classes, list) and classes else "none"
        raise ValueError(
            f"model {name}: the architectures in its {CONFIG} are {shown}; one must be an image classifier of "
            f"transformers (...{CLASSIFIER})"
        )
    check_contents(name, str(root / WEIGHTS), "factory", held[WEIGHTS])
    return held


def digest_of_folder(held: Mapping[str, bytes]) -> str:
    return digest_of(RULE, tuple(part for file, content in held.items() for part in (file.encode(), content)))


def normalisation(name: str, held: Mapping[str, bytes]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and deviation, of images in [0, 1], that the folder's preprocessor takes; both empty for none.

    The preprocessor multiplies images in [0, 255] by `rescale_factor` and normalises them by `image_mean` and
    `image_std`. ValueError, in one line, where it does something else, or its numbers are none.
    """
    if PREPROCESSOR not in held:
        return (), ()
    told = _parse_json(name, PREPROCESSOR, held)
    try:
        factor = float(told.get("rescale_factor") or 1 / BYTE) if told.get("do_rescale", True) else 1.0
        scale = BYTE * factor
        normalises = told.get("do_normalize", "image_mean" in told)
        mean = _numbers(told["image_mean"]) if normalises else (0.0,)
        std = _numbers(told["image_std"]) if normalises else (1.0,)
        if told.get("rescale_offset") or len(mean) != len(std) or scale <= 0 or min(std) <= 0:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"model {name}: its {PREPROCESSOR} prepares images in a way that is not read here; give the interface's "
            "mean and std"
        ) from None
    if abs(scale - 1) < 1e-6:
        return (mean, std) if normalises else ((), ())
    return tuple(number / scale for number in mean), tuple(number / scale for number in std)


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(float(number) for number in value) if isinstance(value, list) else (float(value),)


def _parse_json(name: str, file: str, held: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        told = json.loads(held[file])
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ValueError(f"model {name}: its {file} is no JSON object")
    return told
