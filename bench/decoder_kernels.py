"""Registers, spills and shared memory of the kernels for log p, which Triton compiles for sm_90 without a GPU.

    python -m bench.decoder_kernels [--out bench/results/NAME.md]

The shapes are those of the density audit's autoencoder: 256 -> 512 units in a hidden layer, 512 -> 1024 logits in the
last. A kernel that spills keeps numbers in memory that should be in registers.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bench.measuring import Row, bench_parser, publish
from measurement.report import measurement_facts
from tasks.models import decoder_kernels
from tasks.models.decoder_kernels import CODES_AT_ONCE, PRODUCTS, TILES
from tasks.numerics.precision import DecoderPrecision

PRECISIONS: tuple[DecoderPrecision, ...] = get_args(DecoderPrecision)
SM90 = GPUTarget("cuda", 90, 32)
SHARED = 227 * 1024  # bytes of shared memory that a program can use


@dataclass(frozen=True)
class Compiled:
    """What the compiler reports of a kernel."""

    name: str
    precision: DecoderPrecision
    registers: int  # of a thread
    spilled_bytes: int  # of a thread
    shared_bytes: int  # of a program
    tensor_cores: bool  # whether it has Hopper's matrix instructions


def compile_hidden(precision: DecoderPrecision) -> Compiled:
    """Compile the kernel of a hidden layer."""
    number = number_type(precision)
    types = dict.fromkeys(("values", "weights", "outputs"), number) | {"biases": "*fp32", "count": "i32"}
    constants = {"INPUTS": 256, "OUTPUTS": 512, "ROUNDED": precision == "tf32"}
    return compile_product("_hidden", precision, types, constants)


def compile_bernoulli(precision: DecoderPrecision) -> Compiled:
    """Compile the kernel of the last layer and the likelihood."""
    number = number_type(precision)
    types = {"values": number, "weights": number, "biases": "*fp32", "images": "*i8", "log_p": "*fp32"}
    types |= dict.fromkeys(("points", "samples", "images_of_a_model"), "i32")
    return compile_product("_bernoulli", precision, types, {"INPUTS": 512, "PIXELS": 1024})


def compile_codes() -> Compiled:
    """Compile the kernel that draws codes."""
    types = {"keys": "*i64", "means": "*fp32", "deviations": "*fp32", "bases": "*fp64", "codes": "*fp32"}
    types |= {"of_codes": "*fp64", "first": "i32", "count": "i32"}
    constants = {"SITE": 1, "LATENT": 16, "COLUMNS": 16, "ROUNDED": False, "ROWS": CODES_AT_ONCE}
    return compile_kernel("_codes", "float32", types, constants, {})


def number_type(precision: DecoderPrecision) -> str:
    """Return the type of a pointer to factors."""
    return "*bf16" if precision == "bfloat16" else "*fp32"


def compile_product(
    name: str, precision: DecoderPrecision, types: Mapping[str, str], constants: Mapping[str, Any]
) -> Compiled:
    tiles = TILES[precision]
    sizes = {"ROWS": tiles.samples, "UNITS": tiles.units, "BLOCK": tiles.inputs, "PRECISION": PRODUCTS[precision]}
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    return compile_kernel(name, precision, types, {**constants, **sizes}, options)


def compile_kernel(
    name: str,
    precision: DecoderPrecision,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    options: Mapping[str, int],
) -> Compiled:
    kernel = getattr(decoder_kernels, name)
    # Tensors begin at multiples of 16 bytes, which the compiler needs to know to copy them in large pieces.
    aligned = {}
    for argument, type_name in types.items():
        if type_name.startswith("*"):
            aligned[kernel.arg_names.index(argument),] = [["tt.divisibility", 16]]
    signature = {**types, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(kernel, signature, dict(constants), aligned)
    compiled = triton.compile(source, target=SM90, options=dict(options))
    registers, spilled = resources(compiled.asm["cubin"])
    return Compiled(name, precision, registers, spilled, compiled.metadata.shared, "wgmma" in compiled.asm["ptx"])


def resources(binary: bytes) -> tuple[int, int]:
    """Return the registers and the bytes of the stack of each thread of a compiled kernel."""
    reader = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(reader), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if match is None:
        raise ValueError(f"cuobjdump printed no registers: {text}")
    return int(match[1]), int(match[2])


def compile_kernels() -> Iterator[Compiled]:
    """Compile every kernel in every precision."""
    for precision in PRECISIONS:
        yield compile_hidden(precision)
        yield compile_bernoulli(precision)
    yield compile_codes()


def row(compiled: Compiled) -> Row:
    return Row(
        f"{compiled.name.removeprefix('_')} in {compiled.precision}",
        f"{compiled.registers} registers, {compiled.spilled_bytes} bytes spilled, {compiled.shared_bytes // 1024} KB "
        f"shared, {'wgmma' if compiled.tensor_cores else 'no products'}",
        f"255 registers, {SHARED // 1024} KB shared",
    )


def main() -> None:
    arguments = bench_parser(__doc__).parse_args()
    rows = [row(compiled) for compiled in compile_kernels()]
    facts = measurement_facts("none", torch.device("cpu")) | {"device": "compiled for sm_90, not run"}
    publish("Kernels for log p", facts, rows, arguments.out)


if __name__ == "__main__":
    main()
