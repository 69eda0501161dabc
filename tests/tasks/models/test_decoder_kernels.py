"""Triton's kernels for log p, computed by its interpreter, against torch; and compiled for a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shell import Shell

# The interpreter multiplies float32 numbers for TF32 and the bits of bfloat16 numbers. Here, factors have the numbers
# that a GPU multiplies: it ignores the last 13 bits of TF32's factors.
INTERPRETED = """
import numpy as np
import torch
from triton.language import bfloat16, float32
from triton.runtime import interpreter

from tasks.models import importance
from tasks.models.importance import Chunk, Sampling, estimate_log_density
from tasks.models.likelihoods import Binary
from tasks.models.vae import Dense


def bits(values, change):
    return change(np.ascontiguousarray(values).view(np.int32)).astype(np.int32).view(np.float32)


def truncated(values):
    return bits(values, lambda b: b & -8192)


def rounded(values):
    return bits(values, lambda b: (b + 4096) & -8192)


def dot(self, a, b, d, input_precision, imprecise):
    first, second = (
        interpreter._convert_float(f.data, bfloat16, float32, None).view(np.float32) if f.dtype == bfloat16 else f.data
        for f in (a, b)
    )
    if "TF32x3" in str(input_precision):
        large = rounded(first), rounded(second)
        small = rounded(first - large[0]), rounded(second - large[1])
        total = small[0] @ large[1] + large[0] @ small[1] + large[0] @ large[1]
    elif "TF32" in str(input_precision):
        total = truncated(first) @ truncated(second)
    else:
        total = first @ second
    return interpreter.TensorHandle(total + d.data, d.dtype.scalar)


interpreter.InterpreterBuilder.create_dot = dot
vae = Dense(Binary((7, 9, 1), padding=1), 5, (40, 24))
stream = torch.Generator().manual_seed(0)
tensors = {}
for name, weight in vae.weights.items():
    tensors[name] = torch.randn(2, *weight.shape, generator=stream) / weight.shape[-1] ** 0.5
exact = {name: tensor.double() for name, tensor in tensors.items()}
pixels = torch.randint(0, 256, (5, 63), dtype=torch.uint8, generator=stream)
arguments = pixels, torch.tensor([4, 1, 9, 0, 2]), torch.tensor([5, 6])
for afresh, precision in ((False, "float32"), (True, "tf32"), (False, "bfloat16")):
    sampling = Sampling(40, afresh=afresh, precision=precision)
    expected = estimate_log_density(vae, exact, *arguments, sampling)
    by_torch = estimate_log_density(vae, tensors, *arguments, sampling)
    importance.has_kernels = lambda device: True
    results = [estimate_log_density(vae, tensors, *arguments, sampling, Chunk(*c)) for c in ((5, 5, 40), (3, 2, 16))]
    importance.has_kernels = lambda device: False
    assert (by_torch.way, results[0].way) == ("torch", "triton")
    errors = [float((r.log_p - expected.log_p).abs().max()) for r in (by_torch, *results)]
    print(precision, *(f"{error:.1e}" for error in errors))
    assert max(errors[1:]) < {"float32": 2e-5, "tf32": 3e-3, "bfloat16": 5e-2}[precision]
    assert (results[0].effective_samples / expected.effective_samples - 1).abs().max() < 0.1
"""


def test_kernels_estimate_log_p_within_each_precision() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


COMPILED = """
from bench.decoder_kernels import SHARED, compile_bernoulli, compile_codes

last = compile_bernoulli("float32")
assert last.shared_bytes <= SHARED
print(last.spilled_bytes, last.tensor_cores, compile_codes().spilled_bytes)
"""


def test_kernels_compile_for_a_gpu_without_spills(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    done = Shell(tmp_path).script(COMPILED)
    assert (done.stdout, done.returncode) == ("0 True 0\n", 0), done.stderr


def test_kernels_draw_with_the_constants_of_the_generator() -> None:
    pytest.importorskip("triton")
    from tasks.models import counter_rng, decoder_kernels

    kernels = (decoder_kernels._FIRST, decoder_kernels._SECOND, decoder_kernels._GAMMA)
    expected = (counter_rng.FIRST, counter_rng.SECOND, counter_rng.GAMMA)
    assert [constant.value for constant in kernels] == [number % 2**64 for number in expected]
