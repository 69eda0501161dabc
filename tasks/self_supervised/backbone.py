"""Backbones by name. Light enough for plans: what builds them is in `tasks.self_supervised.networks`.

| written                                       | what it is                                                        |
|-----------------------------------------------|-------------------------------------------------------------------|
| `resnet18`, `resnet34`, `resnet50`, `resnet101` | torchvision's, without the last layer                           |
| `vit-ti`, `vit-s`, `vit-b`, `vit-l`           | timm's vision transformers, patches of 16, class token            |
| `small-resnet`, `small-resnet#WIDTH`          | for images of 32 x 32, of that width (32)                         |
"""

from __future__ import annotations

import re

from tasks.extras import TIMM, Extra

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101")
TRANSFORMERS = {  # by their names in timm
    "vit-ti": "vit_tiny_patch16_224",
    "vit-s": "vit_small_patch16_224",
    "vit-b": "vit_base_patch16_224",
    "vit-l": "vit_large_patch16_224",
}
PATCH = 16
SMALL = re.compile(r"small-resnet(?:#([1-9]\d{0,3}))?")
WIDTH = 32
NAMES = (*RESNETS, *TRANSFORMERS, "small-resnet")


def check(name: str, resolution: int) -> None:
    """ValueError, in one line, unless there is a backbone of this name, for images of this resolution."""
    if name not in NAMES and SMALL.fullmatch(name) is None:
        raise ValueError(f"backbone is {name!r}; it must be one of {', '.join(NAMES)}, small-resnet#WIDTH")
    if name in TRANSFORMERS and resolution % PATCH:
        raise ValueError(f"resolution is {resolution}; for {name} it must be a multiple of {PATCH}")


def extras(name: str) -> tuple[Extra, ...]:
    """The packages that a backbone of this name needs."""
    return (TIMM,) if name in TRANSFORMERS else ()


def width_of(name: str) -> int:
    """The width of a small-resnet."""
    match = SMALL.fullmatch(name)
    assert match is not None
    return int(match[1] or WIDTH)
