"""Speed of training many classifiers together on a GPU, compared with a typical loop and with the device's limits.

The floor for one model's step in a stack is the sum of two times: its matrix products at the speed of the device's
fastest float32 product (8192 x 8192), and its memory traffic (see `traffic_of_a_step`) at the speed of a copy. The
rival is the loop of `bench.perceptron` over tensors, with autograd and torch.optim.Adam at its defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.engine import BATCH, FEW_STEPS, STEPS, classifiers, first, seated, steps
from bench.measuring import Row, Run, in_turn, synchronised_wall_clock
from bench.perceptron import gigaflops_of_a_step, tensors
from bench.sections import release_gpu_memory
from tasks.datasets.images import Images
from tasks.models.networks import Architecture
from tasks.training import memory
from tasks.training.recipe import Precision
from tasks.training.strategies import Strategy, benchmark, candidates, rehearse, synchronise
from tasks.training.trainer import MOST
from tasks.worker import hardware
from tasks.worker.hardware import full_float32

STACKS = (64, 256, 128, 512, 1, 16, 4)  # in order of importance
ENOUGH = 64  # smallest stack for which goals are set
# float32 numbers that a step reads or writes per weight: 7 by Adam (weight, gradient and two moments read; weight and
# two moments written), 2 to copy the gradient into the flat buffer, 2 reads of the weight by the products, and 1 write
# of its gradient.
PER_WEIGHT = 7 + 2 + 2 + 1
PER_UNIT = 5  # per unit and image: written and read forward, gradient written and read, read for weight gradients
ROUNDS = 3
REPEATS = 10  # copies or products in one timed run


@dataclass(frozen=True)
class Ceilings:
    """The device's limits: bytes per second read and written by a copy, and operations per second of products."""

    copy: float
    float32: float
    tf32: float
    bfloat16: float


@lru_cache
def ceilings(device: torch.device, tiny: bool) -> Ceilings:
    """Measure the device's limits, once per run."""
    side, size = (256, 2**20) if tiny else (8192, 2**30)
    source = torch.empty(size, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    left_factor, right_factor = torch.randn(2, side, side, device=device)
    product = torch.empty(side, side, device=device)
    half = [tensor.bfloat16() for tensor in (left_factor, right_factor, product)]
    work = 2 * side**3

    def timed(run: Run) -> float:
        def several() -> None:
            for _ in range(REPEATS):
                run()

        return in_turn({"run": several}, ROUNDS, synchronised_wall_clock(device))["run"] / REPEATS

    copying = 2 * size / timed(lambda: target.copy_(source))
    with full_float32():
        float32 = work / timed(lambda: torch.mm(left_factor, right_factor, out=product))
        torch.set_float32_matmul_precision("high")  # TF32
        tf32 = work / timed(lambda: torch.mm(left_factor, right_factor, out=product))
    bfloat16 = work / timed(lambda: torch.mm(half[0], half[1], out=half[2]))
    return Ceilings(copying, float32, tf32, bfloat16)


def ceiling_rows(device: torch.device, tiny: bool) -> Iterator[Row]:
    """Yield one row per device limit."""
    limits = ceilings(device, tiny)
    yield Row("ceiling: copy on the device, bytes read and written", f"{limits.copy / 1e9:.0f} GB/s")
    for name, rate in (("float32", limits.float32), ("TF32", limits.tf32), ("bfloat16", limits.bfloat16)):
        yield Row(f"ceiling: matrix product, {name}", f"{rate / 1e12:.1f} TFLOP/s")


@dataclass(frozen=True)
class Floor:
    """Minimum seconds of a model's step in float32: matrix products and the engine's memory traffic."""

    products: float
    traffic: float

    @property
    def seconds(self) -> float:
        return self.products + self.traffic

    def __str__(self) -> str:
        parts = f"products {self.products * 1e6:.1f}, memory {self.traffic * 1e6:.1f}"
        return f"floor {self.seconds * 1e6:.1f} us ({parts})"


def floor(data: Images, limits: Ceilings) -> Floor:
    return Floor(gigaflops_of_a_step(data) * 1e9 / limits.float32, traffic_of_a_step(data) / limits.copy)


def traffic_of_a_step(data: Images) -> int:
    """Return the bytes moved by a step of mlp1: for weights and, per image, its pixels twice and its units."""
    weights = Architecture("mlp1", data.shape, data.classes).weights
    shapes = [weight.shape for weight in weights.values()]
    count = sum(math.prod(shape) for shape in shapes)
    units = sum(shape[0] for shape in shapes if len(shape) == 1)  # each unit has one bias
    numbers = PER_WEIGHT * count + BATCH * (2 * math.prod(data.shape) + PER_UNIT * units)
    return 4 * numbers


def perceptron_rows(data: Images, device: torch.device, tiny: bool, stacks: Sequence[int] = STACKS) -> Iterator[Row]:
    """Measure model-steps of mlp1 in stacks, captured and eager, alternating with the typical loop."""
    workload = classifiers(data, device)
    lowest = floor(data, ceilings(device, tiny))
    few, count, rounds = first(data, 60 * BATCH), *((FEW_STEPS, 1) if tiny else (STEPS, ROUNDS))
    usual_loop = tensors(few, device)
    batches = math.ceil(len(few.train_images) / BATCH)
    with hardware.exactly(device):
        for models in stacks:
            runs: dict[str, Run] = {}
            for name, captured in (("captured", True), ("eager", False)):
                strategy = Strategy("stack", places=models, captured=captured and device.type == "cuda")
                runs[name] = steps(workload, seated(workload, strategy), count)
            seconds = in_turn({**runs, "tensors": usual_loop}, rounds, synchronised_wall_clock(device))
            rival = seconds["tensors"] / batches
            for name in runs:
                engram_seconds = seconds[name] / count / models
                is_judged = name == "captured" and models >= ENOUGH
                subject = f"mlp1, {models} stacked, {name}: model-step"
                yield Row(
                    subject,
                    f"{engram_seconds * 1e6:.1f} us, {lowest.seconds / engram_seconds:.0%} of the floor's speed",
                    f"{rival * 1e6:.0f} us, tensors; {lowest}",
                    rival / engram_seconds,
                    *((40, 80) if is_judged else ()),
                )
                if is_judged:
                    subject = f"mlp1, {models} stacked, {name}: time of a model-step"
                    yield Row(
                        subject, f"{engram_seconds * 1e6:.1f} us", str(lowest), engram_seconds * 1e6, 24, 14, "us"
                    )
            runs.clear()
            release_gpu_memory()


def epoch_rows(data: Images, device: torch.device, models: int, tiny: bool) -> Iterator[Row]:
    """Measure the cost of epochs beyond their steps: drawing and copying the order, validation, waiting."""
    # Many epochs, because the order of an epoch is drawn during the previous one.
    workload = classifiers(data, device, epochs=1000)
    captured = device.type == "cuda"
    (stack,) = seated(workload, Strategy("stack", places=models, captured=captured))
    of_epoch, count, rounds = stack.order.shape[1], *((FEW_STEPS, 1) if tiny else (STEPS, ROUNDS))

    def epoch() -> None:
        stack.launch()
        stack.land()

    with hardware.exactly(device):
        clock = synchronised_wall_clock(device)
        seconds = in_turn({"epoch": epoch, "steps": steps(workload, [stack], count)}, rounds, clock)
        step_alone = seconds["steps"] / count
        step_in_epoch = seconds["epoch"] / of_epoch
        yield Row(
            f"mlp1, {models} stacked: model-step in whole epochs, with orders and validation",
            f"{step_in_epoch / models * 1e6:.1f} us",
            f"{step_alone / models * 1e6:.1f} us, the same steps alone",
            step_alone / step_in_epoch,
        )


def strategy_rows(
    network: str,
    data: Images,
    device: torch.device,
    max_models: int = MOST,
    batch: int = BATCH,
    precision: Precision = "float32",
) -> Iterator[Row]:
    """Return model-steps per second for every strategy, taken from the engine's own selection."""
    with hardware.exactly(device):
        workload = classifiers(data, device, network, batch=batch, precision=precision)
        counter = FlopCounterMode(display=False)
        with counter:
            rehearse(workload, 1)
        need = memory.need(lambda models: rehearse(workload, models), device)
        release_gpu_memory()
        fitting = max(1, min(max_models, need.fitting(memory.free(device))))
        usual = candidates(workload, fitting)
        variants = [*usual, *(replace(strategy, channels_last=True) for strategy in usual)]
        choice = benchmark(workload, list(dict.fromkeys(variants)))
    rates: dict[str, float] = dict(choice["rates"])
    fastest = max(rates, key=lambda name: rates[name])
    for name, rate in rates.items():
        chosen_mark = ""
        if name == fastest:
            chosen_mark = " (taken)"
        speed = f"{rate:,.0f}, {rate * counter.get_total_flops() / 1e12:.3g} TFLOP/s"
        yield Row(
            f"{network} in {precision}, {name}{chosen_mark}: model-steps a second",
            speed if rate else "failed",
            f"{rates['loop 1']:,.0f}, loop",
            rate / rates["loop 1"] if rates["loop 1"] else math.nan,
        )


def memory_rows(data: Images, device: torch.device, models: int) -> Iterator[Row]:
    """Compare the memory of a stack, as predicted from steps with one and two models, with the measured memory."""
    with hardware.exactly(device):
        workload = classifiers(data, device)
        need = memory.need(lambda count: rehearse(workload, count), device)
        predicted = need.fixed + models * need.per_model
        release_gpu_memory()
        eager = memory.peak_memory(lambda: rehearse(workload, models), device)
        release_gpu_memory()
        before = reserved(device)

        def recorded() -> int:
            (recorded_stack,) = seated(workload, Strategy("stack", places=models, captured=device.type == "cuda"))
            recorded_stack.step(recorded_stack.begin()[0])
            synchronise(device)
            return recorded_stack.bytes

        captured = memory.peak_memory(recorded, device)
        pool_growth = reserved(device) - before
        pools = ""
        if pool_growth > 0:
            pools = f", {pool_growth / models / 1e6:.1f} MB of torch's pools"
        for name, peak, pools_text in (("eager", eager, ""), ("captured", captured, pools)):
            yield Row(
                f"memory of mlp1 in a stack of {models}, {name}, per model",
                f"predicted {predicted / models / 1e6:.1f} MB",
                f"{peak / models / 1e6:.1f} MB at most{pools_text}",
                peak / predicted,
            )


def reserved(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    return 0
