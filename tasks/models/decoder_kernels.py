"""GPU kernels for log p under fully connected autoencoders. Importing this module requires Triton.

For each model, point and sample, the kernels draw a code, apply the decoder, and return log p(x | z). Logits never
leave the chip: the last kernel computes a tile of logits, adds its log likelihood to a sum per sample, and discards it.
The random numbers are those of `tasks.models.counter_rng`. Nothing waits for the host.

Float32 products are computed as TF32x3: each factor is split into a large and a small TF32 number, and three products
of these are added. The error is that of float32, and the rate a third of TF32's.

Sizes of tiles: a program of the last kernel keeps a tile of logits and a tile of products of 1 + exp(-|t|) in
registers. With 128 x 128 numbers each, these are 64 + 64 of the 255 registers of each of its 256 threads. TF32x3 also
keeps both parts of each factor there and would spill with 32 inputs at a time, so it multiplies 16. For sm_90, the
compiler reports 240 registers, no spills and at most 128 KB of the 227 KB of shared memory (`bench.decoder_kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasks.models.counter_rng import FIRST, GAMMA, SECOND, site_key
from tasks.models.tf32 import round_to_tf32
from tasks.numerics.precision import DecoderPrecision

WORD = 2**64  # number of values of a word
PRODUCTS = {"float32": "tf32x3", "tf32": "tf32", "bfloat16": "ieee"}  # Triton's input_precision
LONGEST = 100  # tiles of logits per image: a product of as many numbers in [1, 2] is a float32 number


@dataclass(frozen=True)
class Tiles:
    """Sizes of the tiles of a product: samples, units, and inputs that are multiplied at a time."""

    samples: int
    units: int
    inputs: int
    warps: int
    stages: int


TILES = {
    "float32": Tiles(128, 128, 16, 8, 4),
    "tf32": Tiles(128, 128, 32, 8, 4),
    "bfloat16": Tiles(128, 128, 64, 8, 4),
}
CODES_AT_ONCE = 64  # samples whose codes a program draws


def fits(pixels: int, precision: DecoderPrecision) -> bool:
    """Return whether the last kernel can sum the log likelihood of images of this size."""
    return pixels <= LONGEST * TILES[precision].units


class Decoder:
    """The decoders of a stack of models: weights (models, outputs, inputs) and biases (models, outputs) by layer."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], precision: DecoderPrecision) -> None:
        self.precision = precision
        self.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self.layers = []
        for weight, bias in layers:
            factors = weight.detach().to(self.dtype)
            if precision == "tf32":
                factors = round_to_tf32(factors)
            self.layers.append((factors.contiguous(), bias.detach().contiguous()))

    def log_likelihoods(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return log p(x | z) for binary images x (models or 1, points, pixels) and codes (models, points, samples, k).

        Results are (models, points, samples) float32, in nats.
        """
        values = codes.to(self.dtype)
        for weight, bias in self.layers[:-1]:
            values = self._hidden(values, weight, bias)
        models, points, samples, inputs = values.shape
        weight, bias = self.layers[-1]
        pixels = weight.shape[1]
        shared = len(x) == 1
        ones = x.to(torch.int8).contiguous()
        log_p = torch.empty(models, points, samples, device=x.device)
        tiles = TILES[self.precision]
        rows = min(tiles.samples, max(16, triton.next_power_of_2(samples)))
        _bernoulli[(triton.cdiv(samples, rows), points, models)](
            *(values, weight, bias, ones, log_p),
            *(points, samples, 0 if shared else ones.stride(0)),
            INPUTS=inputs,
            PIXELS=pixels,
            PRECISION=PRODUCTS[self.precision],
            ROWS=rows,
            UNITS=tiles.units,
            BLOCK=min(tiles.inputs, max(16, triton.next_power_of_2(inputs))),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
        return log_p

    def _hidden(self, values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return relu(values W^T + b) for values (models, points, samples, inputs), rounded to the precision."""
        models, points, samples, inputs = values.shape
        units = weight.shape[1]
        outputs = torch.empty(models, points, samples, units, device=values.device, dtype=self.dtype)
        tiles = TILES[self.precision]
        count = points * samples
        _hidden[(triton.cdiv(units, tiles.units), triton.cdiv(count, tiles.samples), models)](
            *(values, weight, bias, outputs, count),
            INPUTS=inputs,
            OUTPUTS=units,
            PRECISION=PRODUCTS[self.precision],
            ROUNDED=self.precision == "tf32",
            ROWS=tiles.samples,
            UNITS=tiles.units,
            BLOCK=min(tiles.inputs, max(16, triton.next_power_of_2(inputs))),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
        return outputs


def draw_codes(
    keys: Tensor, mean: Tensor, log_variance: Tensor, site: int, samples: slice, *, rounded: bool
) -> tuple[Tensor, Tensor]:
    """Draw codes z (models, points, samples, k) from N(mean, variance), and return log p(z) - log q(z) of each.

    `keys` are (models, points), `mean` and `log_variance` (models, points, k). The numbers are those of
    `CounterRng(keys).normal(site, ...)` for these samples. The second result is (models, points, samples) float64. If
    `rounded`, codes are rounded to TF32.
    """
    models, points, latent = mean.shape
    count = samples.stop - samples.start
    codes = torch.empty(models, points, count, latent, device=mean.device)
    of_codes = torch.empty(models, points, count, device=mean.device, dtype=torch.float64)
    deviation = log_variance.mul(0.5).exp_()
    base = 0.5 * log_variance.sum(-1, dtype=torch.float64)
    _codes[(triton.cdiv(count, CODES_AT_ONCE), models * points)](
        *(keys.contiguous(), mean.contiguous(), deviation, base, codes, of_codes, samples.start, count),
        SITE=site_key(site) % WORD,
        LATENT=latent,
        COLUMNS=triton.next_power_of_2(latent),
        ROUNDED=rounded,
        ROWS=CODES_AT_ONCE,
    )
    return codes, of_codes


_FIRST = tl.constexpr(FIRST % WORD)
_SECOND = tl.constexpr(SECOND % WORD)
_GAMMA = tl.constexpr(GAMMA % WORD)


# Triton evaluates annotations, so those of arguments may only name Triton's types.
@triton.jit
def _mix(words):  # type: ignore[no-untyped-def]
    words = (words ^ (words >> 30)) * _FIRST
    words = (words ^ (words >> 27)) * _SECOND
    return words ^ (words >> 31)


@triton.jit
def _to_tf32(values):  # type: ignore[no-untyped-def]
    """As `tasks.models.tf32.round_to_tf32`, for finite values."""
    return ((values.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _codes(  # type: ignore[no-untyped-def]
    keys,
    means,
    deviations,
    bases,
    codes,
    of_codes,
    first,
    count,
    SITE: tl.constexpr,  # noqa: N803 - Triton's convention for constants
    LATENT: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    ROUNDED: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
):
    point = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    is_column = columns < LATENT
    start = _mix(tl.load(keys + point).to(tl.uint64, bitcast=True) ^ SITE)
    counters = ((first + rows)[:, None] * LATENT + columns[None, :] + 1).to(tl.uint64)
    words = _mix(start + counters * _GAMMA)
    radius_share = (words & 0xFFFFFF).to(tl.float32) * (1 / 16777216)
    turn = ((words >> 32) & 0xFFFFFF).to(tl.float32) * (1 / 16777216)
    noise = tl.sqrt_rn(-2 * tl.log(1 - radius_share)) * tl.cos(turn * 6.283185307179586)
    mean = tl.load(means + point * LATENT + columns, mask=is_column, other=0)
    deviation = tl.load(deviations + point * LATENT + columns, mask=is_column, other=0)
    code = mean[None, :] + deviation[None, :] * noise
    differences = tl.where(is_column[None, :], noise * noise - code * code, 0)
    log_ratio = tl.load(bases + point) + 0.5 * tl.sum(differences.to(tl.float64), 1)
    is_row = rows < count
    offsets = point * count + rows
    tl.store(of_codes + offsets, log_ratio, mask=is_row)
    if ROUNDED:
        code = _to_tf32(code)
    tl.store(codes + offsets[:, None] * LATENT + columns[None, :], code, mask=is_row[:, None] & is_column[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _product(  # type: ignore[no-untyped-def]
    rows_at,
    is_row,
    weights_at,
    is_unit,
    INPUTS: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    UNITS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Return the tile (ROWS, UNITS) of rows W^T.

    The pointers are those of the first input of every row and unit.
    """
    sums = tl.zeros((ROWS, UNITS), tl.float32)
    inputs = tl.arange(0, BLOCK)
    for start in range(0, INPUTS, BLOCK):
        is_row_input = is_row[:, None]
        is_unit_input = is_unit[None, :]
        if INPUTS % BLOCK != 0:
            is_input = start + inputs < INPUTS
            is_row_input = is_row_input & is_input[None, :]
            is_unit_input = is_unit_input & is_input[:, None]
        values = tl.load(rows_at[:, None] + (start + inputs)[None, :], mask=is_row_input, other=0)
        weights = tl.load(weights_at[None, :] + (start + inputs)[:, None], mask=is_unit_input, other=0)
        sums = tl.dot(values, weights, sums, input_precision=PRECISION)
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def _hidden(  # type: ignore[no-untyped-def]
    values,
    weights,
    biases,
    outputs,
    count,
    INPUTS: tl.constexpr,  # noqa: N803
    OUTPUTS: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    ROUNDED: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    UNITS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    model = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    units = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    is_row = rows < count
    is_unit = units < OUTPUTS
    first_row = model * count
    rows_at = values + (first_row + rows) * INPUTS
    weights_at = weights + (model * OUTPUTS + units) * INPUTS
    sums = _product(rows_at, is_row, weights_at, is_unit, INPUTS, PRECISION, ROWS, UNITS, BLOCK)
    sums += tl.load(biases + model * OUTPUTS + units, mask=is_unit, other=0).to(tl.float32)[None, :]
    sums = tl.maximum(sums, 0, propagate_nan=tl.PropagateNan.ALL)
    if ROUNDED:
        sums = _to_tf32(sums)
    places = outputs + (first_row + rows)[:, None] * OUTPUTS + units[None, :]
    tl.store(places, sums.to(outputs.dtype.element_ty), mask=is_row[:, None] & is_unit[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _bernoulli(  # type: ignore[no-untyped-def]
    values,
    weights,
    biases,
    images,
    log_p,
    points,
    samples,
    images_of_a_model,
    INPUTS: tl.constexpr,  # noqa: N803
    PIXELS: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    UNITS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Sum log sigmoid(t) over pixels, with t the logit of a pixel that is 1 and minus the logit of one that is 0.

    log sigmoid(t) = min(t, 0) - log(1 + exp(-|t|)). One logarithm is taken of the product of the last terms of the
    pixels at one place of all tiles.
    """
    model = tl.program_id(2).to(tl.int64)
    point = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = rows < samples
    offsets = (model * points + point) * samples + rows
    rows_at = values + offsets * INPUTS
    linear = tl.zeros((ROWS,), tl.float32)
    factors = tl.full((ROWS, UNITS), 1.0, tl.float32)
    for start in range(0, PIXELS, UNITS):
        units = start + tl.arange(0, UNITS)
        is_unit = units < PIXELS
        weights_at = weights + (model * PIXELS + units) * INPUTS
        logits = _product(rows_at, is_row, weights_at, is_unit, INPUTS, PRECISION, ROWS, UNITS, BLOCK)
        logits += tl.load(biases + model * PIXELS + units, mask=is_unit, other=0).to(tl.float32)[None, :]
        ones = tl.load(images + model * images_of_a_model + point * PIXELS + units, mask=is_unit, other=0)
        signed = tl.where(ones[None, :] != 0, logits, -logits)
        low = tl.minimum(signed, 0, propagate_nan=tl.PropagateNan.ALL)
        terms = 1 + tl.exp(-tl.abs(signed))
        if PIXELS % UNITS != 0:
            low = tl.where(is_unit[None, :], low, 0)
            terms = tl.where(is_unit[None, :], terms, 1)
        linear += tl.sum(low, 1)
        factors *= terms
    tl.store(log_p + offsets, linear - tl.sum(tl.log(factors), 1), mask=is_row)
