"""Networks by name: which there are, and which regularisers each takes. Planning a training imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.models import widths
from tasks.models.custom import Factory, Named, is_own
from tasks.models.regularisers import PLAIN, Regularisers

DESCRIPTIONS: Mapping[str, str] = {
    "mlp1": "512-256-128 units, ReLU; dropout, batch_norm, width",
    "cnn1": "two convolutions and two dense layers, for 28x28 images; dropout, batch_norm, width",
    "cnn2": "four convolutions and a dense layer of 1024, for 32x32 images; dropout, batch_norm, width",
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


@dataclass(frozen=True)
class Network(Named):
    """A classifier by name: `mlp1`, `package.module:factory` or `package.module:factory@digest`."""

    def check(self) -> None:
        check(str(self))


def check(name: str, regularisers: Regularisers = PLAIN, width: float = 1.0) -> None:
    """ValueError, in one line, unless the name is a network's, it takes these regularisers and comes in this width."""
    if is_own(name):
        Factory.parse(name)
    elif name not in OPTIONS:
        raise ValueError(f"network is {name!r}; it must be one of {', '.join(DESCRIPTIONS)}")
    widths.check("network", name, width, widths.CLASSIFIERS)
    options = OPTIONS.get(name, frozenset())
    asked = {field.name for field in dataclasses.fields(regularisers) if getattr(regularisers, field.name)}
    refused = sorted(asked - options)
    if refused:
        taken = ", ".join(sorted(options)) or "none"
        raise ValueError(f"{refused[0]} is on, but {name} has no such option; its regularisers are: {taken}")
