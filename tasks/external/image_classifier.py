"""An image classifier of transformers, loaded from a folder's bytes; nothing is downloaded, and no code is read."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.external.library_errors import one_line
from tasks.extras import TRANSFORMERS


def image_classifier(name: str, held: Mapping[str, bytes], place: torch.device) -> Callable[[Tensor], Any]:
    """The classifier in evaluation mode, from images (n, c, h, w) to transformers' outputs, logits among them.

    ValueError, in one line, where transformers cannot read it or weights are missing, which it would draw by chance.
    """
    try:
        from transformers import AutoModelForImageClassification
    except ImportError:
        raise ValueError(f"model {name} needs {TRANSFORMERS.advice}") from None
    with tempfile.TemporaryDirectory() as folder, silence_transformers(), torch.random.fork_rng(devices=[]):
        for file, content in held.items():  # what was pinned, and nothing else of its folder
            (Path(folder) / file).write_bytes(content)
        try:
            module, info = AutoModelForImageClassification.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except Exception as error:
            told = one_line(error).replace(folder, "the folder")
            raise ValueError(f"model {name} cannot be read by transformers: {told}") from None
    lacking = sorted(map(str, info["missing_keys"]))
    if lacking:
        raise ValueError(f"model {name} lacks {len(lacking)} of its weights, such as {lacking[0]}")
    module.to(place).eval()

    def classify(images: Tensor) -> Any:
        return module(pixel_values=images, return_dict=True)

    return classify


@contextlib.contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence transformers' advice and progress inside: what matters is raised."""
    import logging

    from transformers.utils import logging as told

    level, bars = told.get_verbosity(), told.is_progress_bar_enabled()
    told.set_verbosity(logging.CRITICAL)
    told.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()
