"""Adam of many models: its first step, its update for GPUs, and bits that no neighbour changes."""

import os
import subprocess
import sys

import pytest
import torch

from tasks.training.optimisers.adam import Adam, torch_update
from tasks.training.parameter_buffer import ParameterBuffer
from tests.tasks.training.optimisers.models import CPU, EPSILON, RATES, numbers, started


def test_adams_first_step_is_the_learning_rate_against_the_gradient() -> None:
    weights = ParameterBuffer({"a": (3,)}, 1, CPU, torch.float32)
    adam = Adam(weights, EPSILON)
    adam.rates.fill_(0.5)
    adam.step([torch.tensor([[-3.0, 2.0, 0.0]])])
    torch.testing.assert_close(torch.tensor([[0.5, -0.5, 0.0]]), weights.views["a"])


def test_the_update_for_gpus_is_that_for_cpus() -> None:
    stream, weights = started()
    gradients = [numbers(stream, *view.shape) for view in weights.views.values()]
    expected, flat = weights.like(), weights.like()
    expected.buffer.copy_(weights.buffer)
    for view, gradient in zip(flat.views.values(), gradients, strict=True):
        view.copy_(gradient)
    adam, other = Adam(expected, EPSILON), Adam(weights, EPSILON)
    active = torch.tensor([True, False, True])
    for optimiser in (adam, other):
        optimiser.rates.copy_(torch.tensor(RATES, dtype=torch.float64))
    for _ in range(5):
        adam.step(gradients, active)
        other.steps += active
        moments = (other.means.buffer, other.squares.buffer)
        torch_update(weights.buffer, flat.buffer, *moments, *other.corrections(), active, 0.9, 0.999, EPSILON)
    torch.testing.assert_close(expected.buffer, weights.buffer, atol=1e-14, rtol=0)


KERNEL = """
import torch
from tasks.training import kernels
from tasks.training.optimisers.adam import torch_update

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


def test_the_kernel_gives_what_torchs_operations_give() -> None:
    pytest.importorskip("triton")
    # Triton's interpreter computes the kernel without a GPU.
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", KERNEL], env=environment, capture_output=True, text=True, check=False)
    assert ("equal\n", 0) == (done.stdout, done.returncode), done.stderr


def test_a_weights_bits_do_not_depend_on_its_neighbours() -> None:
    """Fused Adam alone and beside others: what the padding is for."""
    gradients = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    results = []
    for neighbours in ({}, {"before": (7,)}, {"before": (70,)}):
        flat = ParameterBuffer({**neighbours, "mine": (10,)}, 1, CPU, torch.float32)
        adam = Adam(flat, EPSILON)
        adam.rates.fill_(0.01)
        for _ in range(20):
            adam.step([*(torch.ones(1, *shape) for shape in neighbours.values()), gradients])
        results.append(flat.views["mine"].numpy().tobytes())
    assert 1 == len(set(results))
