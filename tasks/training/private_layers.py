"""A network as torch modules, whose rows opacus can tell apart: dense and convolutional layers.

The modules are found by applying the objective to one image. Everything else that an objective does (activations,
pooling, dropout, draws) is computed as without privacy; it must keep rows apart, which batch norm does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tasks.models.counter_rng import CounterRng, member_key
from tasks.models.layers import Layers, Mode
from tasks.training.device_data import ResidentData
from tasks.training.members import Spec
from tasks.training.objective import Batch, ByLayers

Makers = Mapping[str, Callable[[], nn.Module]]  # a new module of each layer, by the layer's name


class Network(nn.Module):
    """The weights in modules, by the same names; called with a batch, each row's loss (rows,)."""

    def __init__(self, learning: ByLayers, makers: Makers, start: Mapping[str, Any]) -> None:
        super().__init__()
        self.learning = learning
        for name, make in makers.items():
            self.add_module(name, make())
        self.load_state_dict({name: torch.from_numpy(values) for name, values in copy_arrays(start).items()})

    def forward(self, batch: Batch) -> Tensor:
        return self.learning.layer_losses(ModuleLayers(self, batch.mode), batch)[0]


class ModuleLayers(Layers):
    """The layers of one model, of which the dense and the convolutional ones are its modules."""

    def __init__(self, network: nn.Module, mode: Mode) -> None:
        super().__init__({name: value[None] for name, value in network.named_parameters()}, mode)
        self._network = network

    def apply_dense(self, name: str, x: Tensor, /, *_: object) -> Tensor:
        result: Tensor = self._network.get_submodule(name)(x[0])
        return result[None]

    def apply_conv(self, name: str, x: Tensor, /, *_: object) -> Tensor:
        result: Tensor = self._network.get_submodule(name)(x)
        # Copied: what a hooked module returns must not be changed in place, as an activation may.
        return result.clone()


class _Outline(Layers):
    """Layers that record how to make a module of each that may be one."""

    def __init__(self, tensors: Mapping[str, Tensor], mode: Mode) -> None:
        super().__init__(tensors, mode)
        self.makers: dict[str, Callable[[], nn.Module]] = {}

    def apply_dense(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, /) -> Tensor:
        units, inputs = weight.shape[1:]
        self.makers[name] = lambda: uninitialised_module(nn.Linear, inputs, units, bias=bias is not None)
        return super().apply_dense(name, x, weight, bias)

    def apply_conv(
        self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, /
    ) -> Tensor:
        (channels, inputs, kernel, _), settings = weight.shape, {"stride": stride, "padding": padding}
        self.makers[name] = lambda: uninitialised_module(
            nn.Conv2d, inputs, channels, kernel, bias=bias is not None, **settings
        )
        return super().apply_conv(name, x, weight, bias, stride, padding)


def makers(spec: Spec, learning: ByLayers, data: ResidentData) -> Makers:
    """How to make the modules of the objective's layers; ValueError where it has others, as batch norm's."""
    start = {
        name: torch.from_numpy(values).to(data.device)[None]
        for name, values in copy_arrays(learning.initial(0)).items()
    }
    draws = CounterRng(torch.tensor([member_key(0)], device=data.device), torch.tensor([0], device=data.device))
    outline = _Outline(start, Mode(True, draws))
    with torch.no_grad():
        learning.layer_losses(outline, Batch(data.train[:1][None], data.train_labels[:1][None], outline.mode))
    reached = {f"{name}.{part}" for name, make in outline.makers.items() for part, _ in make().named_parameters()}
    if reached != set(learning.weights):
        raise ValueError(refusal(spec))
    return outline.makers


def refusal(spec: Spec) -> str:
    return (
        f"privacy is given and what learns is the {spec.learning.name}; only networks of dense and convolutional "
        "layers, without batch norm, have a private form"
    )


def uninitialised_module(kind: type[nn.Module], *sizes: int, **settings: Any) -> nn.Module:
    """A module with weights yet to be loaded: to begin them at random would draw from torch's ambient stream."""
    return nn.utils.skip_init(kind, *sizes, **settings)  # type: ignore[no-untyped-call, no-any-return]


def copy_arrays(start: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same arrays in memory of their own, since torch has no read-only tensors."""
    return {name: values.copy() for name, values in start.items()}
