"""The optimisers of many models equal torch's for each model, independent of the other models."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tasks.training import optimisers
from tasks.training.optimisers import (
    PAD,
    Adam,
    Nesterov,
    Optimiser,
    ParameterBuffer,
    fill_row,
    optimiser_of,
    torch_update,
)
from tasks.training.recipe import OptimiserName, Recipe
from tests.support.shell import Shell

CPU = torch.device("cpu")
SHAPES = {"a": (9, 64), "b": (10,), "c": (3, 1, 2, 2)}
MODELS = 3
EPSILON = 1e-7
RATES = [0.01, 0.002, 0.3]


def numbers(stream: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=stream)


def initial_weights() -> tuple[torch.Generator, ParameterBuffer]:
    stream = torch.Generator().manual_seed(0)
    weights = ParameterBuffer(SHAPES, MODELS, CPU, torch.float64)
    for view in weights.views.values():
        view.copy_(numbers(stream, *view.shape))
    return stream, weights


def test_flat_buffer_parts_are_padded() -> None:
    flat = ParameterBuffer({"a": (3, 5), "b": (10,), "c": (65,)}, 2, CPU, torch.float32)
    starts = []
    for view in flat.views.values():
        starts.append((view.data_ptr() - flat.buffer.data_ptr()) // 4)
    assert starts == [0, PAD, 2 * PAD]
    assert [len(part) for part in flat.parts(1)] == [PAD, PAD, 2 * PAD]
    flat.tensors_of_model(1)["b"].fill_(1)
    assert flat.buffer.sum(1).tolist() == [0, 10]
    assert torch.equal(flat.views["b"][1], flat.parts(1)[1][:10])


def test_gradient_is_padded_with_zeros() -> None:
    assert fill_row(torch.ones(1, 3), 4).tolist() == [1, 1, 1, 0]
    full_row = torch.ones(2, 2)
    assert full_row.data_ptr() == fill_row(full_row, 4).data_ptr()


def test_adams_first_step_is_the_learning_rate() -> None:
    weights = ParameterBuffer({"a": (3,)}, 1, CPU, torch.float32)
    adam = Adam(weights, EPSILON)
    adam.rates.fill_(0.5)
    adam.step([torch.tensor([[-3.0, 2.0, 0.0]])])
    torch.testing.assert_close(torch.tensor([[0.5, -0.5, 0.0]]), weights.views["a"])


def test_gpu_update_equals_cpu_update() -> None:
    stream, weights = initial_weights()
    gradients = [numbers(stream, *view.shape) for view in weights.views.values()]
    expected = weights.like()
    flat = weights.like()
    expected.buffer.copy_(weights.buffer)
    for view, gradient in zip(flat.views.values(), gradients, strict=True):
        view.copy_(gradient)
    adam = Adam(expected, EPSILON)
    gpu_adam = Adam(weights, EPSILON)
    active = torch.tensor([True, False, True])
    for optimiser in (adam, gpu_adam):
        optimiser.rates.copy_(torch.tensor(RATES, dtype=torch.float64))
    for _ in range(5):
        adam.step(gradients, active)
        gpu_adam.steps += active
        moments = (gpu_adam.means.buffer, gpu_adam.squares.buffer)
        torch_update(weights.buffer, flat.buffer, *moments, *gpu_adam.corrections(), active, 0.9, 0.999, EPSILON)
    torch.testing.assert_close(expected.buffer, weights.buffer, atol=1e-14, rtol=0)


KERNEL = """
import torch
from tasks.training import kernels
from tasks.training.optimisers import torch_update

stream = torch.Generator().manual_seed(0)
for size in (64, 1024, 1600):
    theirs = [torch.randn(3, size, dtype=torch.float64, generator=stream) for _ in range(4)]
    theirs[3].abs_()
    ours, before = [values.clone() for values in theirs], theirs[0].clone()
    scale, root = (torch.rand(3, dtype=torch.float64, generator=stream) + 0.1 for _ in range(2))
    active = torch.tensor([True, False, True])
    for update, values in ((kernels.adam, ours), (torch_update, theirs)):
        update(*values, scale, root, active, 0.9, 0.999, 1e-7)
    for mine, their in zip(ours, theirs, strict=True):
        assert (mine - their).abs().max() < 1e-13
    assert torch.equal(ours[0][1], before[1])
    assert not torch.equal(ours[0][0], before[0])
print("equal")
"""


def test_kernel_equals_torch_operations() -> None:
    pytest.importorskip("triton")
    # Triton's interpreter computes the kernel without a GPU.
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", KERNEL], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("equal\n", 0), done.stderr


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tasks.training import kernels

pointers = dict.fromkeys(("weights", "gradients", "means", "squares", "scale", "root"), "*fp32")
floats = [name + end for name in ("slow", "slower", "epsilon") for end in ("", "_rest")]
numbers = {"takes": "*i32", "size": "i32", **dict.fromkeys(floats, "fp32")}
source = ASTSource(kernels._adam, {**pointers, **numbers, "BLOCK": "constexpr"}, {"BLOCK": kernels.BLOCK})
print("ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm)
"""


def test_kernel_compiles_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")  # the compiler checks more of a kernel than the interpreter
    done = Shell(tmp_path).script(COMPILE)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_kernels_annotate_only_triton_types() -> None:
    tree = ast.parse(Path(optimisers.__file__).with_name("kernels.py").read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    kernels = []
    for definition in functions:
        if any("triton.jit" in ast.unparse(decorator) for decorator in definition.decorator_list):
            kernels.append(definition)
    annotations = set()
    for kernel in kernels:
        for definition in kernel.args.args:
            if definition.annotation:
                annotations.add(ast.unparse(definition.annotation))
    assert annotations == {"tl.constexpr"}


def test_weight_is_independent_of_its_neighbours() -> None:
    """Fused Adam gives a weight the same bits alone and with neighbours, because of the padding."""
    gradients = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    results = []
    for neighbours in ({}, {"before": (7,)}, {"before": (70,)}):
        flat = ParameterBuffer({**neighbours, "mine": (10,)}, 1, CPU, torch.float32)
        adam = Adam(flat, EPSILON)
        adam.rates.fill_(0.01)
        for _ in range(20):
            adam.step([*(torch.ones(1, *shape) for shape in neighbours.values()), gradients])
        results.append(flat.views["mine"].numpy().tobytes())
    assert len(set(results)) == 1


TorchFactory = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]
OPTIMISERS: Sequence[OptimiserName] = ["adam", "rmsprop", "nesterov"]


def make_optimiser(
    optimiser_name: OptimiserName, weights: ParameterBuffer, rates: Sequence[float] = RATES
) -> Optimiser:
    recipe = Recipe(1, 1, 1.0, optimiser=optimiser_name)
    optimiser = optimiser_of(recipe, weights)
    optimiser.rates.copy_(torch.tensor(rates, dtype=torch.float64))
    return optimiser


AGAINST: list[tuple[OptimiserName, TorchFactory]] = [
    ("adam", lambda weights, rate: torch.optim.Adam(weights, lr=rate, eps=EPSILON)),
    ("rmsprop", lambda weights, rate: torch.optim.RMSprop(weights, lr=rate, alpha=0.9, eps=EPSILON)),
    ("nesterov", lambda weights, rate: sgd(weights, rate * SHARE, 0.0153 / rate)),
]
SHARE = 1 / 1024 / (1 + 1 / 0.15)  # of a batch of one row, with momentum 0.85


def sgd(weights: list[nn.Parameter], rate: float, decay: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=rate, momentum=0.85, nesterov=True, weight_decay=decay)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(("optimiser_name", "make_reference"), AGAINST, ids=range(len(AGAINST)))
def test_every_model_steps_as_torchs_optimiser(
    optimiser_name: OptimiserName, make_reference: TorchFactory, one_by_one: bool
) -> None:
    stream, weights = initial_weights()
    apart = [[nn.Parameter(view[m].clone()) for view in weights.views.values()] for m in range(MODELS)]
    references = [make_reference(parameters, rate) for parameters, rate in zip(apart, RATES, strict=True)]
    optimiser = make_optimiser(optimiser_name, weights)
    for step in range(100):
        active = torch.tensor([True, step % 3 != 1, step > 40])
        # Small gradients, so that epsilon matters.
        gradients = [numbers(stream, *view.shape) * 1e-6 for view in weights.views.values()]
        for m in active.nonzero()[:, 0].tolist():
            for parameter, gradient in zip(apart[m], gradients, strict=True):
                parameter.grad = gradient[m].clone()
            references[m].step()
            if one_by_one:
                optimiser.step_of(m, [gradient[m] for gradient in gradients])
        if not one_by_one:
            optimiser.step(gradients, None if active.all() else active)
    assert optimiser.steps.tolist() == [100, 67, 59]
    for m, parameters in enumerate(apart):
        for parameter, view in zip(parameters, weights.views.values(), strict=True):
            assert (parameter.detach() - view[m]).abs().max() < 1e-13


@pytest.mark.parametrize("optimiser_name", OPTIMISERS, ids=str)
def test_model_is_identical_alone_and_in_stack(optimiser_name: OptimiserName) -> None:
    _, weights = initial_weights()
    together = ParameterBuffer(SHAPES, MODELS, CPU, torch.float32)
    together.buffer.copy_(weights.buffer)
    alone = ParameterBuffer(SHAPES, 1, CPU, torch.float32)
    alone.buffer.copy_(together.buffer[1:2])
    optimisers = make_optimiser(optimiser_name, together), make_optimiser(optimiser_name, alone, RATES[1:2])
    stream = torch.Generator().manual_seed(1)
    for _ in range(20):
        gradients = []
        for view in together.views.values():
            gradients.append(numbers(stream, *view.shape).float())
        optimisers[0].step(gradients)
        optimisers[1].step([gradient[1:2] for gradient in gradients])
    assert torch.equal(together.buffer[1], alone.buffer[0])
    for stacked, single in zip(*(optimiser.moments for optimiser in optimisers), strict=True):
        assert torch.equal(stacked.buffer[1], single.buffer[0])


@pytest.mark.parametrize("optimiser_name", OPTIMISERS, ids=str)
def test_inactive_model_keeps_weights_and_moments(optimiser_name: OptimiserName) -> None:
    stream, weights = initial_weights()
    optimiser = make_optimiser(optimiser_name, weights)

    def state_of_model() -> list[Tensor]:
        return [flat.buffer[1].clone() for flat in (weights, *optimiser.moments)]

    optimiser.step([numbers(stream, *view.shape) for view in weights.views.values()])
    before = state_of_model()
    optimiser.step([numbers(stream, *view.shape) for view in weights.views.values()], torch.tensor([True, False, True]))
    assert all(torch.equal(was, now) for was, now in zip(before, state_of_model(), strict=True))
    assert optimiser.steps.tolist() == [2, 1, 2]


def test_nesterov_follows_its_schedule_and_looks_ahead() -> None:
    """Two models with different lengths and a factor on the rate of one weight, compared with torch's SGD."""
    stream = torch.Generator().manual_seed(3)
    weights = ParameterBuffer({"a": (3, 2), "bias": (4,)}, 2, CPU, torch.float64)
    weights.buffer.copy_(numbers(stream, *weights.buffer.shape))
    optimiser = optimiser_of(Recipe(1, 512, 1.0, optimiser="nesterov"), weights, {"bias": 64.0})
    assert isinstance(optimiser, Nesterov)
    lengths = (13, 20)
    optimiser.rates.fill_(11.5)
    optimiser.lengths.copy_(torch.tensor(lengths))
    share = 0.5 / (1 + 1 / 0.15)
    apart = [[nn.Parameter(view[m].clone()) for view in weights.views.values()] for m in range(2)]
    references = []
    for parameters in apart:
        groups = [sgd([parameters[0]], 11.5 * share, 0.0153 / 11.5)]
        references.append([*groups, sgd([parameters[1]], 64 * 11.5 * share, 0.0153 / 11.5 / 64)])
    slow = [[parameter.detach().clone() for parameter in parameters] for parameters in apart]
    for step in range(max(lengths)):
        gradients = [numbers(stream, *view.shape) for view in weights.views.values()]
        active = torch.tensor([step < length for length in lengths])
        for m in active.nonzero()[:, 0].tolist():
            factor = float(np.interp(step / lengths[m], [0, 0.23, 1], [0.2, 1, 0.07]))
            for parameter, gradient, reference, base in zip(apart[m], gradients, references[m], (1, 64), strict=True):
                parameter.grad = gradient[m].clone()
                reference.param_groups[0]["lr"] = base * 11.5 * share * factor
                reference.step()
            for parameter, kept in zip(apart[m], slow[m], strict=True):
                if (step + 1) % 5 == 0:
                    kept.lerp_(parameter.detach(), 1 - 0.95**5 * ((step + 1) / lengths[m]) ** 3)
                if (step + 1) % 5 == 0 or step + 1 == lengths[m]:
                    parameter.data.copy_(kept)
        optimiser.step(gradients, active)
    for m, parameters in enumerate(apart):
        for parameter, view in zip(parameters, weights.views.values(), strict=True):
            torch.testing.assert_close(view[m], parameter.detach(), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("optimiser_name", ["adam", "rmsprop"])
def test_a_rate_of_zero_moves_nothing(optimiser_name: OptimiserName) -> None:
    """As in the first step of a warm-up."""
    stream, weights = initial_weights()
    before = weights.buffer.clone()
    make_optimiser(optimiser_name, weights, [0.0] * MODELS).step(
        [numbers(stream, *view.shape) for view in weights.views.values()]
    )
    assert torch.equal(before, weights.buffer)


@pytest.mark.parametrize("optimiser_name", OPTIMISERS, ids=str)
def test_gradient_of_zero_keeps_weights_finite(optimiser_name: OptimiserName) -> None:
    """For example, the embeddings of words that a minibatch does not contain."""
    _, weights = initial_weights()
    weights.views["c"].zero_()
    optimiser = make_optimiser(optimiser_name, weights)
    for _ in range(3):
        optimiser.step([torch.zeros_like(view) for view in weights.views.values()])
    assert weights.buffer.isfinite().all()


def test_every_optimiser_name_is_accepted() -> None:
    _, weights = initial_weights()
    assert [
        optimiser_of(replace(Recipe(1, 1, 1.0), optimiser=optimiser_name), weights) for optimiser_name in OPTIMISERS
    ]
