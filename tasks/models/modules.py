"""A user's own torch.nn.Module as a network: its tensors are ours, by name, and its randomness the member's.

Parameters are learned; floating-point buffers, such as running statistics, are kept along with them; other buffers,
such as counters, stay what they are when the module is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from tasks import seeds
from tasks.models import factories
from tasks.models.factories import Factory
from tasks.models.layers import Layers, Mode, Shape, Start, Weight

TRIED = 4  # rows of the images that a module is tried with

_imported: dict[str, str] = {}  # module -> digest of the source that this process runs


class Module:
    """A network that a user's factory makes for images (channels, height, width) and so many classes.

    ValueError, in one line, where there is no such factory or what it makes cannot be used.
    """

    def __init__(self, text: str, shape: Shape, classes: int) -> None:
        self.name, self.shape, self.classes = text, shape, classes
        self._factory = imported(Factory.parse(text))
        self._module = self._made(0)
        self.constants = {name: b for name, b in self._module.named_buffers() if not b.is_floating_point()}
        self.weights = self._weights()
        self.random = self._tried()

    def initial(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """The weights a model starts from: what its factory makes when torch's generator starts from the seed."""
        made = tensors_of(self._made(seed))
        return {name: made[name].detach().to(torch.float32).numpy().copy() for name in self.weights}

    def logits(self, layers: Layers, images: Tensor) -> Tensor:
        """The logits (models, rows, classes) of images (models, rows, channels, height, width).

        In training padding is left out, since rows may bear on one another, and a module that draws random numbers
        is computed model by model, each from its own key.
        """
        tensors, mode = layers.tensors, layers.mode
        apart = mode.training and (self.random or mode.real is not None)
        if layers.models > 1 and self.stackable and not apart:
            return self._together(tensors, images, mode.training)
        each = [self._alone(layers, model, images[model]) for model in range(layers.models)]
        return torch.stack(each) if len(each) > 1 else each[0][None]

    def judged(self, tensors: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """One model's logits (rows, classes) in evaluation, from its tensors; nothing of it changes."""
        return self._applied(tensors, images, False)[0]

    @property
    def capturable(self) -> bool:
        """Whether a step can be recorded and replayed: nothing in it depends on values, or on torch's generator."""
        return self.stackable

    @cached_property
    def stackable(self) -> bool:
        """Whether several models can be computed in one pass, with the same result."""
        if self.random:
            return False
        two = [self.initial(seed) for seed in (0, 1)]
        images = trial(self.shape).expand(2, -1, -1, -1, -1)
        for training in (True, False):
            stacks = {name: torch.from_numpy(np.stack([model[name] for model in two])) for name in self.weights}
            apart = {name: stack.clone() for name, stack in stacks.items()}
            try:
                found = self._together(stacks, images, training)
            except Exception:  # whatever vmap, or the module below it, does not know how to do
                return False
            layers = Layers(apart, Mode(training))
            expected = torch.stack([self._alone(layers, model, images[model]) for model in (0, 1)])
            same = [(expected, found), *((apart[name], stacks[name]) for name in self.weights)]
            if not all(torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in same):
                return False
        return True

    @cached_property
    def separable(self) -> bool:
        """Whether rows can be judged each for itself in one pass, as slopes per row need."""
        tensors = {name: torch.from_numpy(values) for name, values in self.initial(0).items()}
        images = trial(self.shape)
        with torch.no_grad():
            try:
                found = torch.vmap(lambda image: self.judged(tensors, image[None])[0])(images)
            except Exception:  # whatever vmap, or the module below it, does not know how to do
                return False
            return torch.allclose(self.judged(tensors, images), found, rtol=1e-3, atol=1e-4)

    def _alone(self, layers: Layers, model: int, images: Tensor) -> Tensor:
        mode = layers.mode
        tensors = {name: layers.tensors[name][model] for name in self.weights}
        real = mode.real[model].bool() if mode.training and mode.real is not None else None
        rows = images if real is None else images[real]
        if not len(rows):
            return images.new_zeros(len(images), self.classes)
        if mode.training and self.random:
            assert mode.draws is not None
            with drawing(int(mode.draws.keys[model]), images.device):
                said, kept = self._applied(tensors, rows, True)
        else:
            said, kept = self._applied(tensors, rows, mode.training)
        self._keep({name: layers.tensors[name][model] for name in kept}, kept, mode.training)
        if real is None:
            return said
        return said.new_zeros(len(images), self.classes).index_put((real,), said)

    def _together(self, tensors: Mapping[str, Tensor], images: Tensor, training: bool) -> Tensor:
        stacks = {name: tensors[name] for name in self.weights}
        said, kept = torch.vmap(lambda parts, rows: self._applied(parts, rows, training))(stacks, images)
        self._keep({name: tensors[name] for name in kept}, kept, training)
        result: Tensor = said
        return result

    def _applied(
        self, tensors: Mapping[str, Tensor], images: Tensor, training: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The logits, and the buffers as the module leaves them."""
        kept = [name for name, weight in self.weights.items() if not weight.learned]
        # Copies, which the module may change in place while autograd remembers what it was given.
        given = dict(tensors) | {name: tensors[name].clone() for name in kept}
        given |= {name: constant.to(images.device, copy=True) for name, constant in self.constants.items()}
        said = functional_call(self._module.train(training), given, (images,))
        return said, {name: given[name] for name in kept}

    def _keep(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor], training: bool) -> None:
        if training:
            with torch.no_grad():
                for name, tensor in before.items():
                    tensor.copy_(after[name])

    def _made(self, seed: int) -> nn.Module:
        """A new module, whatever the global random state is, which stays as it is."""
        with drawing(seeds.derive(seed, "initial weights"), torch.device("cpu")):
            try:
                module = self._factory(self.shape, self.classes)
            except Exception as error:
                raise ValueError(f"network {self.name}: its factory failed: {told(error)}") from error
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
        again = tensors_of(self._made(0))
        if any(not torch.equal(again[name], tensor) for name, tensor in tensors_of(self._module).items()):
            raise ValueError(f"network {self.name}: its weights do not follow torch's seed; draw them with torch alone")
        return weights

    def _tried(self) -> bool:
        """Whether it draws random numbers in training; ValueError where what it says cannot be used."""
        before = tensors_of(self._made(0))
        tensors = {name: before[name].detach() for name in self.weights}

        def said(seed: int, training: bool) -> tuple[Tensor, bool]:
            with drawing(seed, torch.device("cpu")), torch.no_grad():
                state = torch.get_rng_state()
                try:
                    logits = self._applied(tensors, trial(self.shape), training)[0]
                except Exception as error:
                    images = f"{TRIED} images of {'x'.join(map(str, self.shape))}"
                    raise ValueError(f"network {self.name} failed on {images}: {told(error)}") from error
                drawn = not torch.equal(state, torch.get_rng_state())
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else kind(logits)
            if shape != (TRIED, self.classes):
                raise ValueError(
                    f"network {self.name} makes {shape} of {TRIED} images; it must make logits {(TRIED, self.classes)}"
                )
            return logits, drawn

        judged, moved = said(0, False)
        if moved or not torch.equal(judged, said(1, False)[0]):
            raise ValueError(f"network {self.name} draws random numbers in evaluation; it may do so in training alone")
        trained, random = said(0, True)
        if not torch.equal(trained, said(0, True)[0]):
            raise ValueError(f"network {self.name} does not follow torch's seed in training; draw with torch alone")
        return random


@cache
def module_of(name: str, shape: Shape, classes: int) -> Module:
    """The network of this name, made and tried once per process."""
    return Module(name, shape, classes)


def imported(factory: Factory) -> Callable[[Shape, int], object]:
    """The factory itself; ValueError where its source is not the one pinned, or it cannot be imported."""
    digest = factories.pinned(factory).digest
    if _imported.setdefault(factory.module, digest) != digest:
        raise ValueError(f"network {factory}: its source has changed since this process imported it; start again")
    try:
        module = importlib.import_module(factory.module)
    except Exception as error:
        del _imported[factory.module]
        raise ValueError(f"network {factory}: {factory.module} cannot be imported: {told(error)}") from error
    there = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    if factory.function not in there:
        raise ValueError(
            f"network {factory}: {factory.module} has no function {factory.function}; it has {', '.join(there)}"
        )
    found: Callable[[Shape, int], object] = there[factory.function]
    return found


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


def trial(shape: Shape) -> Tensor:
    """Images to try a module with."""
    return torch.rand((TRIED, *shape), generator=torch.Generator().manual_seed(0))


def told(error: Exception) -> str:
    """An error of somebody else's code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def kind(value: object) -> str:
    return type(value).__name__


def _never(*_: object) -> NDArray[np.floating]:
    raise TypeError("the weights of a user's own module start together, by Architecture.initial")
