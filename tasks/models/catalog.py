"""Networks by name: which there are, and which regularisers each takes. Planning a training imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Network:
    """A network by name; one of the user's own is pinned once `digest`, of its source, is set.

    Written `mlp1`, `package.module:factory` or `package.module:factory@digest`.
    """

    name: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Network:
        name, _, digest = text.partition("@")
        return cls(name, digest)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.name

    def identity(self) -> str:
        """What a key sees: of a user's own the function and the source, never the module's name or path."""
        if not is_own(self.name):
            return self.name
        if not self.digest:
            raise ValueError(f"network {self.name!r} has no digest yet; pin it before planning")
        return f"{Factory.parse(self.name).function}@{self.digest}"


def is_own(name: str) -> bool:
    """Whether the name is that of a user's own network."""
    return ":" in name


def pin(network: Network) -> Network:
    """The network as it is now: a user's own with the digest of its source.

    ValueError, in one line, where there is no such network or it is not the one pinned.
    """
    if is_own(network.name):
        return replace(network, digest=factories.pinned(Factory.parse(str(network))).digest)
    check(str(network))
    return network


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
