"""A user's own torch.nn.Module: its tensors are ours, by name, and its randomness the seed's.

Parameters are learned; floating-point buffers, such as running statistics, are kept along with them; other buffers,
such as counters, stay what they are when the module is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from tasks import seeds
from tasks.models import custom
from tasks.models.custom import Factory
from tasks.models.layers import Start, Weight

_imported: dict[str, str] = {}  # module -> digest of the source that this process runs


class Module:
    """The module that a user's factory makes from these arguments.

    ValueError, in one line, where there is no such factory or what it makes cannot be trained.
    """

    def __init__(self, text: str, *arguments: object) -> None:
        self.name = text
        self._arguments = arguments
        self._factory = import_factory(Factory.parse(text))
        self._module = self._make(0)
        self._called = _Called(self._module)
        self.constants = {name: b for name, b in self._module.named_buffers() if not b.is_floating_point()}
        self.weights = self._weights()

    def initial(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """The weights a model starts from: what its factory makes when torch's generator starts from the seed."""
        made = tensors_of(self._make(seed))
        return {name: made[name].detach().to(torch.float32).numpy().copy() for name in self.weights}

    def attribute(self, name: str, default: object = None) -> object:
        """The module's attribute of this name, or the default."""
        return getattr(self._module, name, default)

    def apply(
        self, method: str, tensors: Mapping[str, Tensor], training: bool, *arguments: object
    ) -> tuple[object, dict[str, Tensor]]:
        """The result of one model's method for the arguments, and the buffers as the module leaves them.

        `tensors` are (*shape); they stay as they are.
        """
        device = next(iter(tensors.values())).device
        kept = [name for name, weight in self.weights.items() if not weight.learned]
        # Copies, which the module may change in place while autograd remembers what it was given.
        given = dict(tensors) | {name: tensors[name].clone() for name in kept}
        given |= {name: constant.to(device, copy=True) for name, constant in self.constants.items()}
        inside = {f"module.{name}": tensor for name, tensor in given.items()}
        outputs = functional_call(self._called.train(training), inside, (method, *arguments))
        return outputs, {name: inside[f"module.{name}"] for name in kept}

    def _make(self, seed: int) -> nn.Module:
        """A new module; it neither depends on the global random state nor changes it."""
        with drawing(seeds.derive(seed, "initial weights"), torch.device("cpu")):
            try:
                module = self._factory(*self._arguments)
            except Exception as error:
                raise ValueError(f"network {self.name}: its factory failed: {one_line(error)}") from error
        if not isinstance(module, nn.Module):
            raise ValueError(f"network {self.name}: its factory made a {kind(module)}; it must make a torch.nn.Module")
        return module.cpu()

    def _weights(self) -> dict[str, Weight]:
        weights = {}
        start = Start(self.name, _never)
        for name, tensor in tensors_of(self._module).items():
            if name in self.constants:
                continue
            if not tensor.is_floating_point():
                raise ValueError(f"network {self.name}: {name} is {tensor.dtype}; parameters must be real numbers")
            weights[name] = Weight(tuple(tensor.shape), start, 1, 1, tensor.requires_grad)
        if not any(weight.learned for weight in weights.values()):
            raise ValueError(f"network {self.name}: it has no parameters to learn")
        again = tensors_of(self._make(0))
        if any(not torch.equal(again[name], tensor) for name, tensor in tensors_of(self._module).items()):
            raise ValueError(f"network {self.name}: its weights do not follow torch's seed; draw them with torch alone")
        return weights


class _Called(nn.Module):
    """Any method of a module as the forward pass of another, which is what torch calls with given tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, method: str, *arguments: object) -> object:
        return getattr(self.module, method)(*arguments)


def import_factory(factory: Factory) -> Callable[..., object]:
    """The factory function; ValueError where its source is not the one pinned, or it cannot be imported."""
    digest = custom.pin_factory(factory).digest
    if _imported.setdefault(factory.module, digest) != digest:
        raise ValueError(f"network {factory}: its source has changed since this process imported it; start again")
    try:
        module = importlib.import_module(factory.module)
    except Exception as error:
        del _imported[factory.module]
        raise ValueError(f"network {factory}: {factory.module} cannot be imported: {one_line(error)}") from error
    there = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    if factory.function not in there:
        raise ValueError(
            f"network {factory}: {factory.module} has no function {factory.function}; it has {', '.join(there)}"
        )
    function: Callable[..., object] = there[factory.function]
    return function


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, those shared once."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, torch draws from this seed; afterwards as if nothing had been drawn."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def one_line(error: Exception) -> str:
    """An error of a user's code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def kind(value: object) -> str:
    return type(value).__name__


def _never(*_: object) -> NDArray[np.floating]:
    raise TypeError("the weights of a user's own module start together, by Module.initial")
