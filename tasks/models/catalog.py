"""Networks by name: which there are, and which regularisers each takes. Planning a training imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tasks.models import factories
from tasks.models.factories import Factory
from tasks.models.regularisers import PLAIN, Regularisers

DESCRIPTIONS: Mapping[str, str] = {
    "mlp1": "512-256-128 units, ReLU; dropout, batch_norm",
    "cnn1": "two convolutions and two dense layers, for 28x28 images; dropout, batch_norm",
    "cnn2": "four convolutions and a dense layer of 1024, for 32x32 images; dropout, batch_norm",
    "densenet100": "DenseNet-BC, 100 layers, growth 12, with batch norm; dropout",
    "resnet18": "ResNet-18 for small images, with batch norm",
    "PACKAGE.MODULE:FACTORY": "your own: factory(shape, classes) makes a torch.nn.Module from images to logits",
}
# Batch norm that a network always has is no option, so that one network is written in one way.
OPTIONS: Mapping[str, frozenset[str]] = {
    "mlp1": frozenset({"dropout", "batch_norm"}),
    "cnn1": frozenset({"dropout", "batch_norm"}),
    "cnn2": frozenset({"dropout", "batch_norm"}),
    "densenet100": frozenset({"dropout"}),
    "resnet18": frozenset(),
}


def is_own(name: str) -> bool:
    """Whether the name is that of a user's own network."""
    return ":" in name


def pin(name: str) -> str:
    """The name as keys see it: a user's own network with the digest of its source.

    ValueError, in one line, where there is no such network or it is not the one pinned.
    """
    if is_own(name):
        return str(factories.pinned(Factory.parse(name)))
    check(name)
    return name


def check(name: str, regularisers: Regularisers = PLAIN) -> None:
    """ValueError, in one line, unless the name is a network's and it takes these regularisers."""
    if is_own(name):
        Factory.parse(name)
    elif name not in OPTIONS:
        raise ValueError(f"network is {name!r}; it must be one of {', '.join(DESCRIPTIONS)}")
    options = OPTIONS.get(name, frozenset())
    asked = {option for option, on in dataclasses.asdict(regularisers).items() if on}
    refused = sorted(asked - options)
    if refused:
        taken = ", ".join(sorted(options)) or "none"
        raise ValueError(f"{refused[0]} is on, but {name} has no such option; its regularisers are: {taken}")
