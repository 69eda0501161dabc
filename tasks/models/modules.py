"""Run a user's torch.nn.Module, with tensors managed by Engram and randomness from the seed.

Parameters are learned. Floating-point buffers, such as running statistics, are stored with them. Other buffers, such as
counters, keep their initial values. A method of the module is applied to rows of images for many models at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from tasks.models import custom
from tasks.models.custom import Factory
from tasks.models.factory_import import import_factory, one_line
from tasks.models.layers import Layers, Mode, PartRows, Shape, Start, Weight
from tasks.models.row_draws import RowDraws, RowShare
from tasks.models.synchronised_norm import synchronise_norms, use_rows
from tasks.numerics import seeds
from tasks.user_code import loaded
from tasks.user_code.loaded import UncoveredImport


class Module:
    """The module that a user's factory returns for these arguments.

    Raises ValueError if the factory does not exist, or if its module cannot be trained.
    """

    def __init__(self, text: str, *arguments: object) -> None:
        self.name = text
        self._arguments = arguments
        factory = Factory.parse(text)
        self._factory = import_factory(factory)
        self._files = custom.source_files(factory)
        self._module = self._make(0)
        synchronise_norms(self._module)
        self._called = _Called(self._module)
        self.constants = {name: b for name, b in self._module.named_buffers() if not b.is_floating_point()}
        self.weights = self._weights()

    def initial(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """Return the initial weights that the factory's module has if torch's generator is seeded with this seed."""
        tensors = tensors_of(self._make(seed))
        result = {}
        for name in self.weights:
            result[name] = tensors[name].detach().to(torch.float32).numpy().copy()
        return result

    def watch(self) -> AbstractContextManager[None]:
        """Raise UncoveredImport if the block imports a user's file that keys do not cover."""
        return loaded.watch_imports(f"network {self.name}", self._files)

    def attribute(self, name: str, default: object = None) -> object:
        """Return the module's attribute with this name, or the default."""
        return getattr(self._module, name, default)

    def apply(
        self, method: str, tensors: Mapping[str, Tensor], training: bool, *arguments: object
    ) -> tuple[object, dict[str, Tensor]]:
        """Return the result of calling a method of one model with these arguments, and the buffers afterwards.

        `tensors` are (*shape) and do not change.
        """
        device = next(iter(tensors.values())).device
        buffer_names = [name for name, weight in self.weights.items() if not weight.learned]
        # Copies, which the module may change in place while autograd keeps the inputs.
        all_tensors = dict(tensors) | {name: tensors[name].clone() for name in buffer_names}
        all_tensors |= {name: constant.to(device, copy=True) for name, constant in self.constants.items()}
        named_tensors = {f"module.{name}": tensor for name, tensor in all_tensors.items()}
        outputs = functional_call(self._called.train(training), named_tensors, (method, *arguments))
        return outputs, {name: named_tensors[f"module.{name}"] for name in buffer_names}

    def _make(self, seed: int) -> nn.Module:
        """Create a new module without using or changing the global random state."""
        with drawing(seeds.derive(seed, "initial weights"), torch.device("cpu")):
            try:
                with self.watch():
                    module = self._factory(*self._arguments)
            except UncoveredImport:
                raise
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
        repeated_tensors = tensors_of(self._make(0))
        if any(not torch.equal(repeated_tensors[name], tensor) for name, tensor in tensors_of(self._module).items()):
            raise ValueError(f"network {self.name}: its weights do not follow torch's seed; draw them with torch alone")
        return weights


class _Called(nn.Module):
    """A module whose forward pass calls any method of another module.

    It is needed because `functional_call` runs only forward passes.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, method: str, *arguments: object) -> object:
        return getattr(self.module, method)(*arguments)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers by name. A shared tensor occurs once."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Draw torch's random numbers from this seed inside the block, and restore the random state afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def kind(value: object) -> str:
    return type(value).__name__


def _never(*_: object) -> NDArray[np.floating]:
    raise TypeError("the weights of a user's own module start together, by Module.initial")


TRIED = 4  # number of trial images


@dataclass(frozen=True, eq=False)
class _Tried:
    """The outputs of a method, the gradients of their squares by learned weight, and the buffers afterwards."""

    outputs: Tensor
    gradients: Sequence[Tensor]
    buffers: Sequence[Tensor]


class Method:
    """A method that maps images (rows, *image) to numbers (rows, *result), which error messages call `values`.

    It is tested with `trial` images on construction. Raises ValueError for invalid results. It may draw random numbers
    in training; in evaluation, it may do so only if it is `chancy`.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        values: str,
        trial: Tensor,
        result: Shape = (),
        *,
        chancy: bool = False,
    ) -> None:
        self.module = module
        self.name = name
        self.values = values
        self.result = result
        self._trial = trial
        self._random = {}
        with module.watch():
            for training in (True, False):  # evaluation comes last, since its values are stored
                self.tried, self._random[training] = self._try_outputs(training)
        if self._random[False] and not chancy:
            raise ValueError(f"{self.subject} draws random numbers in evaluation; this is allowed only in training")

    def random(self, training: bool) -> bool:
        """Return whether random numbers are drawn."""
        return self._random[training]

    def compute(self, layers: Layers, images: Tensor) -> Tensor:
        """Compute the values (models, rows, *result) for images (models, rows, *image).

        In training, padding is left out, since rows may affect each other. A method that draws random numbers is
        computed model by model, each with its own key from the mode's draws. Raises ValueError if ranks share the rows
        of a training step, and the method does not permit this.
        """
        tensors = layers.tensors
        mode = layers.mode
        if mode.part is not None and not self.divisible:
            raise ValueError(
                f"{self.subject} lets the rows of a training step affect each other other than by torch's batch norm, "
                "or draws random numbers that do not belong to rows. Several processes cannot divide its rows: set "
                "gpus_per_job and processes_per_job to 1."
            )
        is_separate = self.random(mode.training) or (mode.training and mode.real is not None)
        if layers.models > 1 and self.stackable and not is_separate:
            return self._compute_stacked(tensors, images, mode.training)
        values = []
        for model in range(layers.models):
            values.append(self._compute_separately(layers, model, images[model]))
        return torch.stack(values) if len(values) > 1 else values[0][None]

    def evaluate(self, tensors: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Return one model's values (rows, *result) in evaluation mode. Its tensors stay unchanged."""
        return self._apply(tensors, images, False)[0]

    @cached_property
    def stackable(self) -> bool:
        """Whether several models can be computed in one pass with the same result."""
        if any(self._random.values()):
            return False
        weights = self.module.weights
        initial_weights = [self.module.initial(seed) for seed in (0, 1)]
        images = self._trial.expand(2, *self._trial.shape)
        for training in (True, False):
            stacks = {}
            for name in weights:
                stacks[name] = torch.from_numpy(np.stack([model[name] for model in initial_weights]))
            separate_stacks = {name: stack.clone() for name, stack in stacks.items()}
            try:
                stacked = self._compute_stacked(stacks, images, training)
            except Exception:  # vmap or the module cannot do this
                return False
            layers = Layers(separate_stacks, Mode(training))
            expected = torch.stack([self._compute_separately(layers, model, images[model]) for model in (0, 1)])
            same = [(expected, stacked), *((separate_stacks[name], stacks[name]) for name in weights)]
            if not all(torch.allclose(first, second, rtol=1e-3, atol=1e-4) for first, second in same):
                return False
        return True

    @cached_property
    def separable(self) -> bool:
        """Whether rows can be evaluated independently in one pass, as per-row gradients require."""
        tensors = self._initial()
        with torch.no_grad():
            try:
                by_row = torch.vmap(lambda image: self.evaluate(tensors, image[None])[0])(self._trial)
            except Exception:  # vmap or the module cannot do this
                return False
            return torch.allclose(self.evaluate(tensors, self._trial), by_row, rtol=1e-3, atol=1e-4)

    def _compute_separately(self, layers: Layers, model: int, images: Tensor) -> Tensor:
        mode = layers.mode
        tensors = {name: layers.tensors[name][model] for name in self.module.weights}
        if mode.training and mode.real is not None:
            real = mode.real[model].bool()
        else:
            real = None
        rows = images if real is None else images[real]
        share = _row_share(mode.part, model, len(rows))
        if not share.count:
            return images.new_zeros(len(images), *self.result)
        is_padding = len(rows) == 0
        if is_padding:  # batch norm needs all ranks, so one that has no rows computes a row of padding
            rows = images[:1]
            real = torch.arange(len(images), device=images.device) == 0
            share = replace(share, first=0, own=1)
        with ExitStack() as contexts:
            if self.random(mode.training):
                assert mode.draws is not None
                contexts.enter_context(drawing(int(mode.draws.keys[model]), images.device))
                if mode.part is not None:
                    contexts.enter_context(RowDraws(share))
            contexts.enter_context(use_rows("padding" if is_padding else "counted"))
            outputs, buffers = self._apply(tensors, rows, mode.training)
        self._keep({name: layers.tensors[name][model] for name in buffers}, buffers, mode.training)
        if real is None:
            return outputs
        return outputs.new_zeros(len(images), *self.result).index_put((real,), outputs)

    @cached_property
    def divisible(self) -> bool:
        """Whether the rows of a training step can be divided without changing outputs, gradients or buffers.

        Apart from torch's batch norm, no row may affect another one, and random numbers must belong to rows.
        """
        whole = self._try_share(RowShare(0, TRIED, TRIED))
        first = self._try_share(RowShare(0, 1, TRIED))
        second = self._try_share(RowShare(1, TRIED - 1, TRIED))
        pairs = [(torch.cat([first.outputs, second.outputs]), whole.outputs)]
        pairs += zip(map(torch.add, first.gradients, second.gradients), whole.gradients, strict=True)
        for part in (first, second):
            pairs += zip(part.buffers, whole.buffers, strict=True)
        return all(torch.allclose(parts, expected, rtol=1e-3, atol=1e-4, equal_nan=True) for parts, expected in pairs)

    def _try_share(self, share: RowShare) -> _Tried:
        """Return the result of a training step on some of the trial images."""
        tensors = self._initial()
        learned = [tensors[name].requires_grad_() for name, weight in self.module.weights.items() if weight.learned]
        with ExitStack() as contexts:
            for context in (drawing(0, torch.device("cpu")), RowDraws(share), use_rows("independent")):
                contexts.enter_context(context)
            contexts.enter_context(torch.autocast("cpu", enabled=False))  # rows are compared in float32
            contexts.enter_context(torch.enable_grad())
            outputs, buffers = self._apply(tensors, self._trial[share.rows], True)
        gradients = torch.autograd.grad(outputs.square().sum(), learned)
        return _Tried(outputs.detach(), gradients, list(buffers.values()))

    def _compute_stacked(self, tensors: Mapping[str, Tensor], images: Tensor, training: bool) -> Tensor:
        stacks = {name: tensors[name] for name in self.module.weights}
        outputs, buffers = torch.vmap(lambda parts, rows: self._apply(parts, rows, training))(stacks, images)
        self._keep({name: tensors[name] for name in buffers}, buffers, training)
        result: Tensor = outputs
        return result

    def _apply(self, tensors: Mapping[str, Tensor], images: Tensor, training: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the values, and the buffers afterwards."""
        outputs, buffers = self.module.apply(self.name, tensors, training, images)
        return self._check_outputs(outputs, len(images)), buffers

    def _check_outputs(self, outputs: object, count: int) -> Tensor:
        rows = (count, *self.result)
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else kind(outputs)
        if not isinstance(outputs, Tensor) or shape != rows:
            raise ValueError(f"{self.subject} returns {shape} for {count} images; expected {self.values} {rows}")
        return outputs

    def _keep(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor], training: bool) -> None:
        if training:
            with torch.no_grad():
                for name, tensor in before.items():
                    tensor.copy_(after[name])

    def _initial(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(values) for name, values in self.module.initial(0).items()}

    @property
    def subject(self) -> str:
        """The subject of error messages."""
        return f"network {self.module.name}" + ("" if self.name == "__call__" else f": {self.name}")

    def check_gradients(self) -> None:
        """Raise ValueError unless the training values have a gradient with respect to every learned weight."""
        tensors = self._initial()
        learned = {n: tensors[n].requires_grad_() for n, weight in self.module.weights.items() if weight.learned}
        with drawing(0, torch.device("cpu")), torch.enable_grad():
            total = self._apply(tensors, self._trial, True)[0].sum()
        if not total.requires_grad:
            raise ValueError(f"{self.subject} has no gradient in its weights, so that it cannot be trained")
        gradients = torch.autograd.grad(total, list(learned.values()), allow_unused=True)
        unused = [name for name, gradient in zip(learned, gradients, strict=True) if gradient is None]
        if unused:
            raise ValueError(
                f"{self.subject} does not depend on {', '.join(unused)}; register tensors that are not learned as "
                "buffers"
            )

    def _try_outputs(self, training: bool) -> tuple[Tensor, bool]:
        """Return the outputs for the trial images, and whether they use random numbers."""
        outputs, random = self._apply_to_trial(training)
        if outputs.isnan().any():
            raise ValueError(f"{self.subject} returns NaN for {self._images}")
        if not torch.equal(outputs, self._apply_to_trial(training)[0]):
            where = "training" if training else "evaluation"
            raise ValueError(f"{self.subject} does not follow torch's seed in {where}; draw with torch alone")
        return outputs, random

    def _apply_to_trial(self, training: bool) -> tuple[Tensor, bool]:
        """Return the outputs for the trial images, and whether they use torch's generator."""
        tensors = self._initial()
        with drawing(0, torch.device("cpu")), torch.no_grad():
            state = torch.get_rng_state()
            try:
                outputs = self.module.apply(self.name, tensors, training, self._trial)[0]
            except Exception as error:
                raise ValueError(f"{self.subject} failed on {self._images}: {one_line(error)}") from error
            return self._check_outputs(outputs, len(self._trial)), not torch.equal(state, torch.get_rng_state())

    @property
    def _images(self) -> str:
        return f"{len(self._trial)} images of {'x'.join(map(str, self._trial.shape[1:]))}"


def _row_share(part: PartRows | None, model: int, own: int) -> RowShare:
    """Return this process's share of the rows of a model that are computed together, without padding."""
    if part is None:
        return RowShare(0, own, own)
    if part.real is None:
        return RowShare(part.first, own, part.count)
    real = part.real[model]
    return RowShare(int(real[: part.first].sum()), own, int(real.sum()))


def trial(shape: Shape) -> Tensor:
    """Return images in [0, 1] for testing a method."""
    return torch.rand((TRIED, *shape), generator=torch.Generator().manual_seed(0))
