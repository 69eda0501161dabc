"""The ways to train many models on a device, and which of them is the fastest there.

- loop: one model after another. On a CPU nothing is faster: a model's products fill a core, and a stack's convolutions
  take 1.6 to 1.9 times as long as the same ones apart.
- stack: as many models in one step as fit and pay. On a GPU the step is recorded and replayed.
- graph: models apart, each one's step recorded and replayed on a stream of its own. Needs a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tasks import devices
from tasks.compute_context import Choice, Manner
from tasks.training import memory
from tasks.training.device_data import Resident
from tasks.training.members import Member, Spec
from tasks.training.minibatches import minibatches
from tasks.training.stack import Stack

STREAMS = (4, 16)  # of the way "graph"
STACKED = (64, 256)  # of the way "stack": 64 models come within a sixth of the full rate of large stacks
TIMED = 20  # steps of each candidate
WARMING = 3  # steps before


class NoWay(ValueError):
    """The way that was asked for does not lead anywhere on this device."""


@dataclass(frozen=True)
class Way:
    """So many stacks side by side, each with so many places."""

    name: str
    stacks: int = 1
    places: int = 1
    captured: bool = False

    @property
    def members(self) -> int:
        return self.stacks * self.places


@dataclass(frozen=True, eq=False)
class Ground:
    """What a way is chosen for: the members of one call on one device."""

    spec: Spec
    data: Resident
    members: Sequence[Member]
    aliases: Sequence[Mapping[int, int]]

    @property
    def device(self) -> torch.device:
        return self.data.train.device

    @property
    def name(self) -> str:
        """Choices are made once for each of these."""
        spec, recipe = self.spec, self.spec.recipe
        shape = "x".join(map(str, spec.images.shape))
        how = f"batch {recipe.batch}, {recipe.optimiser}, {recipe.precision}"
        return f"{devices.name(self.device)}, {spec.learning.name} on {shape}, {how}"

    def stacks(self, way: Way) -> list[Stack]:
        """The way's empty stacks."""
        steps = max(minibatches(len(member.rows), self.spec.recipe.batch) for member in self.members)
        stacks = [
            Stack(self.spec, self.data, self.aliases, steps, way.places, captured=way.captured)
            for _ in range(way.stacks)
        ]
        synchronise(self.device)  # they are used on other streams, which do not wait for their zeros
        return stacks


def chosen(ground: Ground, manner: Manner, most: int) -> tuple[Way, memory.Need | None]:
    """The way to train these members in that manner, at most `most` in one step; NoWay where it cannot be had.

    The second is what a stack takes, where that has been measured. How many members this call has does not bear on
    which way is the fastest: the choice is for all calls.
    """
    most = min(most, manner.members or most)
    names = [way.name for way in candidates(ground, most)]
    if manner.way != "auto" and manner.way not in names:
        what = f"{ground.spec.learning.name} on {devices.name(ground.device)}"
        raise NoWay(f"way is {manner.way}; for {what} it must be auto or one of {', '.join(dict.fromkeys(names))}")
    if ground.device.type == "cpu" and manner.way in ("auto", "loop"):
        return Way("loop"), None
    required = memory.need(lambda models: rehearsed(ground, models), ground.device)
    most = max(1, min(most, required.fitting(memory.free(ground.device) // manner.sharers)))
    now = max(1, min(most, len(ground.members)))
    ways = {way.name: way for way in candidates(ground, now)}  # the largest of each name
    if manner.way != "auto":
        return ways[manner.way], required
    choice = manner.settle(ground.name, lambda: raced(ground, candidates(ground, most)))
    found = ways.get(choice["way"], Way("loop"))
    places, stacks = min(found.places, int(choice["places"])), min(found.stacks, int(choice["stacks"]))
    return Way(found.name, stacks, places, found.captured), required


def candidates(ground: Ground, limit: int) -> list[Way]:
    """The ways worth trying for at most `limit` members at one time, the larger of a name after the smaller."""
    learning, gpu = ground.spec.learning, ground.device.type == "cuda"
    ways = [Way("loop")]
    if gpu and learning.capturable:
        ways += [Way("graph", stacks=count, captured=True) for count in sizes(STREAMS, limit)]
    if learning.stackable:
        captured = gpu and learning.capturable
        ways += [Way("stack", places=count, captured=captured) for count in sizes(STACKED, limit)]
    return ways


def sizes(wanted: Sequence[int], limit: int) -> list[int]:
    return sorted({min(size, limit) for size in wanted})


def rehearsed(ground: Ground, models: int) -> int:
    """Take a step with so many models; the bytes that the stack holds."""
    (stack,) = ground.stacks(Way("stack", places=models))
    for place in range(models):
        stack.enter(place, 0, ground.members[0])
    padded = stack.begin()[0]
    # Recording a step takes a copy of what the step changes, too.
    copies = stack.copies() if ground.device.type == "cuda" else []
    stack.step(padded)
    return stack.bytes + sum(copy.nbytes for copy in copies)


def raced(ground: Ground, ways: Sequence[Way]) -> Choice:
    """The fastest way, with the model-steps per second of each."""
    rates: dict[str, float] = {}
    best = ways[0]
    for way in ways:
        label = f"{way.name} {way.members}"
        try:
            rates[label] = rate(ground, way)
        except RuntimeError as error:  # an operation that cannot be recorded, or memory: then it is not this one
            if "CUDA error" in str(error) and "captur" not in str(error) and not memory.is_out(error):
                raise
            rates[label] = 0.0
        memory.free_unused(ground.device)
        if rates[label] > rates[f"{best.name} {best.members}"]:
            best = way
    return {"way": best.name, "places": best.places, "stacks": best.stacks, "rates": rates}


def rate(ground: Ground, way: Way) -> float:
    """Model-steps per second of a way."""
    stacks = ground.stacks(way)
    streams = [stream(ground.device) for _ in stacks]
    padded = False
    for number, stack in enumerate(stacks):
        for place in range(way.places):
            index = (number * way.places + place) % len(ground.members)
            stack.enter(place, index, ground.members[index])
        padded |= stack.begin()[0]
    run = steps_of(stacks, streams, padded)
    synchronise(ground.device)  # the steps' streams do not wait for the members that have just been put in
    for _ in range(WARMING):
        run()
    synchronise(ground.device)
    began = time.perf_counter()
    for _ in range(TIMED):
        run()
    synchronise(ground.device)
    return TIMED * way.members / (time.perf_counter() - began)


def steps_of(stacks: Sequence[Stack], streams: Sequence[torch.cuda.Stream | None], padded: bool) -> Callable[[], None]:
    """The first minibatch of every stack, each on its stream."""

    def run() -> None:
        for stack, own in zip(stacks, streams, strict=True):
            with torch.cuda.stream(own):  # None: the stream as it is
                stack.cursor.zero_()
                stack.step(padded)

    return run


def stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
