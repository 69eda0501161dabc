"""Networks by name: which there are, and which regularisers each takes. Planning a training imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tasks.models.regularisers import PLAIN, Regularisers

DESCRIPTIONS: Mapping[str, str] = {
    "mlp1": "512-256-128 units, ReLU; dropout, batch_norm",
    "cnn1": "two convolutions and two dense layers, for 28x28 images; dropout, batch_norm",
    "cnn2": "four convolutions and a dense layer of 1024, for 32x32 images; dropout, batch_norm",
    "densenet100": "DenseNet-BC, 100 layers, growth 12, with batch norm; dropout",
    "resnet18": "ResNet-18 for small images, with batch norm",
}
# Batch norm that a network always has is no option, so that one network is written in one way.
OPTIONS: Mapping[str, frozenset[str]] = {
    "mlp1": frozenset({"dropout", "batch_norm"}),
    "cnn1": frozenset({"dropout", "batch_norm"}),
    "cnn2": frozenset({"dropout", "batch_norm"}),
    "densenet100": frozenset({"dropout"}),
    "resnet18": frozenset(),
}


def check(name: str, regularisers: Regularisers = PLAIN) -> None:
    """ValueError, in one line, unless the network exists and takes these regularisers."""
    if name not in OPTIONS:
        raise ValueError(f"network is {name!r}; it must be one of {', '.join(OPTIONS)}")
    asked = {option for option, on in dataclasses.asdict(regularisers).items() if on}
    refused = sorted(asked - OPTIONS[name])
    if refused:
        taken = ", ".join(sorted(OPTIONS[name])) or "none"
        raise ValueError(f"{refused[0]} is on, but {name} has no such option; its regularisers are: {taken}")
