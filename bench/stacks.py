"""How fast many classifiers train together on a GPU, beside one usual loop and beside what the device can do at most.

The floor of a step of one model in a stack is the sum of two times: its matrix products at the device's fastest
float32 product (8192 x 8192), and its memory traffic (see `traffic_of_a_step`) at the rate of a copy. The rival is the
loop of `bench.perceptron` over tensors, with autograd and torch.optim.Adam at its defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from bench.engine import BATCH, FEW_STEPS, STEPS, classifiers, first, seated, steps
from bench.measuring import Row, Run, in_turn, wall_after_the_device
from bench.perceptron import gigaflops_of_a_step, tensors
from bench.sections import release
from tasks.datasets.images import Images
from tasks.models.networks import Architecture
from tasks.training import memory
from tasks.training.strategies import Strategy, benchmark, candidates, rehearse, synchronise
from tasks.training.trainer import MOST
from tasks.worker import hardware
from tasks.worker.hardware import full_float32

STACKS = (64, 256, 128, 512, 1, 16, 4)  # the most telling first
ENOUGH = 64  # models in a stack from which on the goals hold
# float32 numbers that a step reads or writes for each weight: 7 by Adam (weight, gradient and two moments read; weight
# and two moments written), 2 to copy the gradient into the flat buffer, 2 reads of the weight by the products, and 1
# write of its gradient.
PER_WEIGHT = 7 + 2 + 2 + 1
PER_UNIT = 5  # for each unit and image: written and read forward, its gradient written and read, read for the weights'
ROUNDS = 3
REPEATS = 10  # of a copy or a product in one run


@dataclass(frozen=True)
class Ceilings:
    """What the device does at most: bytes a second that a copy reads and writes; operations a second of products."""

    copy: float
    float32: float
    tf32: float
    bfloat16: float


@lru_cache
def ceilings(place: torch.device, tiny: bool) -> Ceilings:
    """Measured once in a run."""
    side, size = (256, 2**20) if tiny else (8192, 2**30)
    source = torch.empty(size, dtype=torch.uint8, device=place).random_()
    target = torch.empty_like(source)
    left, right = torch.randn(2, side, side, device=place)
    found = torch.empty(side, side, device=place)
    half = [tensor.bfloat16() for tensor in (left, right, found)]
    work = 2 * side**3

    def timed(run: Run) -> float:
        def several() -> None:
            for _ in range(REPEATS):
                run()

        return in_turn({"run": several}, ROUNDS, wall_after_the_device(place))["run"] / REPEATS

    copying = 2 * size / timed(lambda: target.copy_(source))
    with full_float32():
        float32 = work / timed(lambda: torch.mm(left, right, out=found))
        torch.set_float32_matmul_precision("high")  # TF32
        tf32 = work / timed(lambda: torch.mm(left, right, out=found))
    bfloat16 = work / timed(lambda: torch.mm(half[0], half[1], out=half[2]))
    return Ceilings(copying, float32, tf32, bfloat16)


def device(place: torch.device, tiny: bool) -> Iterator[Row]:
    """The device's ceilings."""
    most = ceilings(place, tiny)
    yield Row("ceiling: copy on the device, bytes read and written", f"{most.copy / 1e9:.0f} GB/s")
    for name, reached in (("float32", most.float32), ("TF32", most.tf32), ("bfloat16", most.bfloat16)):
        yield Row(f"ceiling: matrix product, {name}", f"{reached / 1e12:.1f} TFLOP/s")


@dataclass(frozen=True)
class Floor:
    """Seconds of a model's step in float32: its products, and the memory traffic of the engine's own algorithm."""

    products: float
    traffic: float

    @property
    def seconds(self) -> float:
        return self.products + self.traffic

    def __str__(self) -> str:
        parts = f"products {self.products * 1e6:.1f}, memory {self.traffic * 1e6:.1f}"
        return f"floor {self.seconds * 1e6:.1f} us ({parts})"


def floor(data: Images, most: Ceilings) -> Floor:
    return Floor(gigaflops_of_a_step(data) * 1e9 / most.float32, traffic_of_a_step(data) / most.copy)


def traffic_of_a_step(data: Images) -> int:
    """Bytes that a step of mlp1 moves: for each weight, and for each image its pixels twice and its units."""
    weights = Architecture("mlp1", data.shape, data.classes).weights
    shapes = [weight.shape for weight in weights.values()]
    count = sum(math.prod(shape) for shape in shapes)
    units = sum(shape[0] for shape in shapes if len(shape) == 1)  # each unit has one bias
    numbers = PER_WEIGHT * count + BATCH * (2 * math.prod(data.shape) + PER_UNIT * units)
    return 4 * numbers


def perceptrons(data: Images, place: torch.device, tiny: bool, stacks: Sequence[int] = STACKS) -> Iterator[Row]:
    """Model-steps of mlp1 in stacks, recorded and not, each in turn with the usual loop."""
    workload, least = classifiers(data, place), floor(data, ceilings(place, tiny))
    few, count, rounds = first(data, 60 * BATCH), *((FEW_STEPS, 1) if tiny else (STEPS, ROUNDS))
    usual, batches = tensors(few, place), math.ceil(len(few.train_images) / BATCH)
    with hardware.exactly(place):
        for models in stacks:
            runs: dict[str, Run] = {}
            for name, captured in (("captured", True), ("eager", False)):
                way = Strategy("stack", places=models, captured=captured and place.type == "cuda")
                runs[name] = steps(workload, seated(workload, way), count)
            seconds = in_turn({**runs, "tensors": usual}, rounds, wall_after_the_device(place))
            rival = seconds["tensors"] / batches
            for name in runs:
                ours = seconds[name] / count / models
                judged = name == "captured" and models >= ENOUGH
                what = f"mlp1, {models} stacked, {name}: model-step"
                yield Row(
                    what,
                    f"{ours * 1e6:.1f} us, {least.seconds / ours:.0%} of the floor's speed",
                    f"{rival * 1e6:.0f} us, tensors; {least}",
                    rival / ours,
                    *((40, 80) if judged else ()),
                )
                if judged:
                    what = f"mlp1, {models} stacked, {name}: time of a model-step"
                    yield Row(what, f"{ours * 1e6:.1f} us", str(least), ours * 1e6, 24, 14, "us")
            runs.clear()
            release()


def whole_epochs(data: Images, place: torch.device, models: int, tiny: bool) -> Iterator[Row]:
    """What epochs cost beyond their steps: drawing and sending the order, validation, waiting."""
    # Of many epochs: while one is computed, the order of the next is drawn.
    workload, captured = classifiers(data, place, epochs=1000), place.type == "cuda"
    (stack,) = seated(workload, Strategy("stack", places=models, captured=captured))
    of_epoch, count, rounds = stack.order.shape[1], *((FEW_STEPS, 1) if tiny else (STEPS, ROUNDS))

    def epoch() -> None:
        stack.launch()
        stack.land()

    with hardware.exactly(place):
        clock = wall_after_the_device(place)
        both = in_turn({"epoch": epoch, "steps": steps(workload, [stack], count)}, rounds, clock)
        alone, each = both["steps"] / count, both["epoch"] / of_epoch
        yield Row(
            f"mlp1, {models} stacked: model-step in whole epochs, with orders and validation",
            f"{each / models * 1e6:.1f} us",
            f"{alone / models * 1e6:.1f} us, the same steps alone",
            alone / each,
        )


def race(network: str, data: Images, place: torch.device, most: int = MOST, batch: int = BATCH) -> Iterator[Row]:
    """Model-steps per second of every way, as the engine itself decides between them."""
    with hardware.exactly(place):
        workload = classifiers(data, place, network, batch=batch)
        need = memory.need(lambda models: rehearse(workload, models), place)
        release()
        fitting = max(1, min(most, need.fitting(memory.free(place))))
        choice = benchmark(workload, candidates(workload, fitting))
    rates: dict[str, float] = dict(choice["rates"])
    members = choice["places"] * choice["stacks"]
    for name, reached in rates.items():
        taken = " (taken)" if name == f"{choice['way']} {members}" else ""
        yield Row(
            f"{network}, {name}{taken}: model-steps a second",
            f"{reached:,.0f}" if reached else "failed",
            f"{rates['loop 1']:,.0f}, loop",
            reached / rates["loop 1"] if rates["loop 1"] else math.nan,
        )


def room(data: Images, place: torch.device, models: int) -> Iterator[Row]:
    """Memory of a stack as predicted from steps of one and of two models, and as it was."""
    with hardware.exactly(place):
        workload = classifiers(data, place)
        need = memory.need(lambda count: rehearse(workload, count), place)
        predicted = need.fixed + models * need.per_model
        release()
        eager = memory.peak_memory(lambda: rehearse(workload, models), place)
        release()
        before = reserved(place)

        def recorded() -> int:
            (stack,) = seated(workload, Strategy("stack", places=models, captured=place.type == "cuda"))
            stack.step(stack.begin()[0])
            synchronise(place)
            return stack.bytes

        captured = memory.peak_memory(recorded, place)
        kept = reserved(place) - before
        pools = f", {kept / models / 1e6:.1f} MB of torch's pools" if kept > 0 else ""
        for name, took, more in (("eager", eager, ""), ("captured", captured, pools)):
            yield Row(
                f"memory of mlp1 in a stack of {models}, {name}, per model",
                f"predicted {predicted / models / 1e6:.1f} MB",
                f"{took / models / 1e6:.1f} MB at most{more}",
                took / predicted,
            )


def reserved(place: torch.device) -> int:
    return torch.cuda.memory_reserved(place) if place.type == "cuda" else 0
