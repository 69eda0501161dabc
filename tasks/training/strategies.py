"""Strategies for training many models on a device, and how the fastest one is chosen.

- loop: one model after another. This is the fastest strategy on a CPU, where the matrix products of one model use a
  whole core and the convolutions of a stack take 1.6 to 1.9 times as long as separate ones.
- stack: several models in one step, as many as memory and speed allow. On a GPU, the step is recorded and replayed.
- graph: separate models, each with its step recorded and replayed on its own stream. Requires a GPU.

Steps are not recorded if their data is streamed to the GPU, or if the ranks of a process group share them. On a GPU,
convolutional networks are tried with channels first and with channels last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tasks.training import memory
from tasks.training.device_data import DeviceData
from tasks.training.members import Member, Spec, minibatches
from tasks.training.stack import Stack
from tasks.worker import hardware
from tasks.worker.compute_context import Choice, ComputeContext
from tasks.worker.ranks import current_ranks, least_over_ranks

STREAMS = (4, 16)  # for the strategy "graph"
STACKED = (64, 256)  # for the strategy "stack": 64 models reach five sixths of the full rate of large stacks
TIMED = 20  # timed steps per candidate
WARMING = 3  # steps before the timed ones


class UnsupportedStrategy(ValueError):
    """The requested strategy is not available on this device."""


@dataclass(frozen=True)
class Strategy:
    """A number of concurrent stacks, and the number of places in each."""

    name: str
    stacks: int = 1
    places: int = 1
    captured: bool = False
    channels_last: bool = False  # memory order of images

    @property
    def members(self) -> int:
        return self.stacks * self.places

    @property
    def label(self) -> str:
        """The name, the number of members, and the memory order if it is not the default."""
        return f"{self.name} {self.members}" + " channels last" * self.channels_last


@dataclass(frozen=True, eq=False)
class Workload:
    """The members of a call on a device, for which a strategy is chosen."""

    spec: Spec
    data: DeviceData
    members: Sequence[Member]
    aliases: Sequence[Mapping[int, int]]

    @property
    def device(self) -> torch.device:
        return self.data.device

    @property
    def name(self) -> str:
        """The name under which the chosen strategy is stored."""
        spec, recipe = self.spec, self.spec.recipe
        shape = "x".join(map(str, spec.images.shape))
        settings = [f"batch {recipe.batch}", recipe.optimiser, recipe.precision]
        if spec.parts > 1:
            settings += [f"in {spec.parts} parts"]
        settings += [] if self.data.is_resident else ["data streamed"]
        return f"{hardware.device_name(self.device)}, {spec.learning.name} on {shape}, {', '.join(settings)}"

    def stacks(self, strategy: Strategy) -> list[Stack]:
        """Return empty stacks for a strategy."""
        steps = max(minibatches(len(member.rows), self.spec.recipe.batch) for member in self.members)
        stacks = [
            Stack(
                self.spec,
                self.data,
                self.aliases,
                steps,
                strategy.places,
                captured=strategy.captured,
                channels_last=strategy.channels_last,
            )
            for _ in range(strategy.stacks)
        ]
        synchronise(self.device)  # other streams use the stacks without waiting for initialisation
        return stacks


def choose_strategy(workload: Workload, context: ComputeContext, limit: int) -> tuple[Strategy, memory.Need | None]:
    """Choose the strategy for these members in this context, with at most `limit` of them in one step.

    Also returns the memory it needs, or None if that was not measured. The choice does not depend on the number of
    members, so it applies to all calls. Raises UnsupportedStrategy if the context names an impossible strategy.
    """
    limit = min(limit, context.members or limit)
    names = [strategy.name for strategy in candidates(workload, limit)]
    if context.way != "auto" and context.way not in names:
        workload_name = f"{workload.spec.learning.name} on {hardware.device_name(workload.device)}"
        raise UnsupportedStrategy(
            f"way is {context.way}; for {workload_name} it must be auto or one of {', '.join(dict.fromkeys(names))}"
        )
    if workload.device.type == "cpu" and context.way in ("auto", "loop"):
        return Strategy("loop"), None
    required = memory.need(lambda models: rehearse(workload, models), workload.device)
    fitting = required.fitting(memory.free(workload.device) // context.sharers)
    limit = max(1, min(limit, least_over_ranks(fitting)))
    model_count = max(1, min(limit, len(workload.members)))
    # the largest of each name and memory order
    strategies = {(strategy.name, strategy.channels_last): strategy for strategy in candidates(workload, model_count)}
    if context.way != "auto":
        return strategies[context.way, False], required
    if current_ranks().size > 1:  # a measurement would differ between ranks
        return strategies.get(("stack", False), Strategy("loop")), required
    choice = context.settle(workload.name, lambda: benchmark(workload, candidates(workload, limit)))
    fastest = strategies.get((choice["way"], choice.get("channels_last", False)), Strategy("loop"))
    places = min(fastest.places, int(choice["places"]))
    stacks = min(fastest.stacks, int(choice["stacks"]))
    return replace(fastest, stacks=stacks, places=places), required


def candidates(workload: Workload, limit: int) -> list[Strategy]:
    """Return the candidate strategies for at most `limit` members at a time.

    Those with the same name are in ascending size.
    """
    learning = workload.spec.learning
    captured = workload.device.type == "cuda" and learning.capturable and workload.data.is_resident
    captured = captured and current_ranks().size == 1
    strategies = [Strategy("loop")]
    if captured:
        strategies += [Strategy("graph", stacks=count, captured=True) for count in sizes(STREAMS, limit)]
    if learning.stackable:
        strategies += [Strategy("stack", places=count, captured=captured) for count in sizes(STACKED, limit)]
    if captured and is_convolutional(workload):
        strategies += [replace(strategy, channels_last=True) for strategy in strategies[1:]]
    return strategies


def is_convolutional(workload: Workload) -> bool:
    return any(len(weight.shape) == 4 for weight in workload.spec.learning.weights.values())


def sizes(proposed: Sequence[int], limit: int) -> list[int]:
    return sorted({min(size, limit) for size in proposed})


def rehearse(workload: Workload, models: int) -> int:
    """Take a step with `models` models. Returns the number of bytes that the stack keeps."""
    (stack,) = workload.stacks(Strategy("stack", places=models))
    for position in range(models):
        stack.enter(position, 0, workload.members[0])
    padded = stack.begin()[0]
    # Recording a step also copies the tensors that the step changes.
    copies = stack.copies() if workload.device.type == "cuda" else []
    stack.step(padded)
    return stack.bytes + sum(copy.nbytes for copy in copies)


def benchmark(workload: Workload, strategies: Sequence[Strategy]) -> Choice:
    """Return the fastest strategy, and the model-steps per second of each strategy."""
    rates: dict[str, float] = {}
    best = strategies[0]
    for strategy in strategies:
        label = strategy.label
        try:
            rates[label] = rate(workload, strategy)
        except RuntimeError as error:  # a strategy is excluded if an operation cannot be recorded or memory runs out
            if "CUDA error" in str(error) and "captur" not in str(error) and not hardware.exhausted_memory(error):
                raise
            rates[label] = 0.0
        memory.free_cached_memory(workload.device)
        if rates[label] > rates[best.label]:
            best = strategy
    order = {"channels_last": True} if best.channels_last else {}
    return {"way": best.name, "places": best.places, "stacks": best.stacks, "rates": rates, **order}


def rate(workload: Workload, strategy: Strategy) -> float:
    """Measure the model-steps per second of a strategy."""
    stacks = workload.stacks(strategy)
    streams = [stream(workload.device) for _ in stacks]
    padded = False
    for number, stack in enumerate(stacks):
        for position in range(strategy.places):
            index = (number * strategy.places + position) % len(workload.members)
            stack.enter(position, index, workload.members[index])
        padded |= stack.begin()[0]
    run = steps_of(stacks, streams, padded)
    synchronise(workload.device)  # the streams of the steps do not wait for the new members
    for _ in range(WARMING):
        run()
    synchronise(workload.device)
    start_time = time.perf_counter()
    for _ in range(TIMED):
        run()
    synchronise(workload.device)
    return TIMED * strategy.members / (time.perf_counter() - start_time)


def steps_of(stacks: Sequence[Stack], streams: Sequence[torch.cuda.Stream | None], padded: bool) -> Callable[[], None]:
    """Return a function that processes the first minibatch of every stack, each on its own stream."""

    def run() -> None:
        for stack, stack_stream in zip(stacks, streams, strict=True):
            with torch.cuda.stream(stack_stream):  # None: the current stream
                stack.cursor.zero_()
                stack.step(padded)

    return run


def stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
