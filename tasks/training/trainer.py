"""Train many models with the fastest strategy for the device, yielding each result when it ends.

Members wait for a place in a stack. When a member ends, the next one takes its place, or the stack shrinks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch

from tasks.training import memory
from tasks.training.device_data import place_images
from tasks.training.members import Member, Spec, Trained, TrainingError
from tasks.training.stack import Slot, Stack
from tasks.training.strategies import Strategy, UnsupportedStrategy, Workload, choose_strategy, stream
from tasks.worker import compute_context, hardware
from tasks.worker.ranks import current_ranks

Outcome = tuple[int, Trained | Exception]

MOST = 512  # models in one step; no device benefits from more
_fitted: dict[str, int] = {}  # number of models that fit, if memory ran out in this process


def train_many(spec: Spec, members: Sequence[Member], device: torch.device | None = None) -> Iterator[Outcome]:
    """Yield each member's index with its trained model or its TrainingError when it ends, in any order.

    The result of a member depends on the spec and the member, but not on other members, their order or the strategy.
    This holds bitwise on a CPU with the strategy "loop" and for networks with explicit gradients, and otherwise up to
    rounding.
    """
    device = device or hardware.device()
    check(spec, members)
    return inside_context(lambda: hardware.exactly(device), _train(spec, members, device))


def train_by_index(spec: Spec, members: Mapping[int, Member]) -> Iterator[Outcome]:
    """Run `train_many` for numbered members. Each outcome has its member's number instead of its position."""
    numbers = list(members)
    for position, outcome in train_many(spec, list(members.values())):
        yield numbers[position], outcome


def check(spec: Spec, members: Sequence[Member]) -> None:
    """Raise ValueError if a member has impossible settings."""
    count = len(spec.images.train)
    for index, member in enumerate(members):
        if not len(member.rows):
            raise ValueError(f"member {index} has no rows to train on")
        if member.rows.min() < 0 or member.rows.max() >= count:
            raise ValueError(f"member {index} trains on rows {member.rows.min()} to {member.rows.max()} of {count}")
        if member.after is not None and not 0 <= member.after < len(members):
            raise ValueError(f"member {index} comes after member {member.after}; there are {len(members)}")


def inside_context(
    context: Callable[[], AbstractContextManager[None]], outcomes: Iterator[Outcome]
) -> Iterator[Outcome]:
    """Yield the outcomes, each computed inside the context.

    The context is left while the consumer handles the outcome.
    """
    while True:
        with context():
            outcome = next(outcomes, None)
        if outcome is None:
            return
        yield outcome


def _train(spec: Spec, members: Sequence[Member], device: torch.device) -> Iterator[Outcome]:
    if not members:
        return
    data, aliases = place_images(spec.images, device).replace_images([member.replaced for member in members])
    workload = Workload(spec, data, members, aliases)
    remaining = dict(enumerate(members))
    while remaining:
        size = 1
        try:
            strategy, need = choose_strategy(
                workload, compute_context.current_context(), _fitted.get(workload.name, MOST)
            )
            size = strategy.members
            for outcome in Trainer(workload, strategy, need, remaining).outcomes():
                remaining.pop(outcome[0])
                yield outcome
            return
        except UnsupportedStrategy as error:
            yield from [(index, TrainingError(str(error))) for index in remaining]
            return
        except Exception as error:
            # Another rank may have enough memory, so this one must not change the strategy alone.
            if current_ranks().size > 1 or not hardware.exhausted_memory(error):
                raise
        # At this point, the stacks are no longer referenced.
        memory.free_cached_memory(device)
        if size > 1:
            _fitted[workload.name] = size // 2
            continue
        try:
            workload = in_more_parts(workload)
        except TrainingError as error:
            yield from [(index, error) for index in remaining]
            return


def in_more_parts(workload: Workload) -> Workload:
    """Return a workload whose steps are computed in more parts. Raises TrainingError if its result would change."""
    spec = workload.spec
    batch = spec.recipe.batch
    parts = memory.next_parts(spec.parts, batch)
    obstacle = None
    if parts is not None:
        try:
            obstacle = PARTS_MATTER if depends_on_parts(workload) else None
        except Exception as error:
            if not hardware.exhausted_memory(error):
                raise
            parts = None  # not even a few rows fit
    if parts is None or obstacle is not None:
        raise memory.too_large(spec.learning.name, batch, spec.parts, workload.device, obstacle)
    return replace(workload, spec=replace(spec, divided=parts // spec.recipe.accumulate))


PARTS_MATTER = "in parts, batch norm would use other statistics, which changes the result"
FEW_ROWS = 4  # of the minibatch from which it is determined whether parts matter


def depends_on_parts(workload: Workload) -> bool:
    """Return whether the losses of rows differ if a minibatch is computed in parts, as with batch norm."""
    member = workload.members[0]
    count = min(FEW_ROWS, len(member.rows))
    if count < 2:
        return False
    (stack,) = replace(workload, members=[replace(member, rows=member.rows[:count])]).stacks(Strategy("loop"))
    stack.enter(0, 0, member)
    return stack.stepping.depends_on_parts(torch.from_numpy(member.rows[None, :count]).to(workload.device))


class Trainer:
    """Trains members in the stacks of one strategy. Members without a place wait."""

    def __init__(
        self,
        workload: Workload,
        strategy: Strategy,
        need: memory.Need | None,
        remaining: dict[int, Member],
    ) -> None:
        self.workload = workload
        self.strategy = strategy
        self.recipe = workload.spec.recipe
        self.measured: dict[str, float] = {}
        if need is not None:
            self.measured = {"bytes_per_member": need.per_model, "device_bytes": memory.whole(workload.device)}
        if workload.spec.divided > 1:
            self.measured["parts"] = workload.spec.parts
        self.stacks = workload.stacks(strategy)
        self.streams = [stream(workload.device) for _ in self.stacks]
        # A link waits for its predecessor, unless that has already ended or continues as another link.
        self.waiting: deque[tuple[int, Member]] = deque()
        self.links: dict[int, tuple[int, Member]] = {}
        for index, member in remaining.items():
            if member.after is None or member.after not in remaining or member.after in self.links:
                self.waiting.append((index, member))
            else:
                self.links[member.after] = (index, member)
        self.began = time.perf_counter()
        self.steps = 0  # steps of all models
        self.waited = 0.0  # seconds spent waiting for the device

    def outcomes(self) -> Iterator[Outcome]:
        for number in range(len(self.stacks)):
            yield from self._fill(number)
        while any(stack.occupied for stack in self.stacks):
            for number, stack in enumerate(self.stacks):
                if stack.occupied:
                    with torch.cuda.stream(self.streams[number]):  # None: the current stream
                        finished = self._land(stack)
                    yield from self._report_outcomes(finished)
                    yield from self._fill(number)

    def _fill(self, number: int) -> Iterator[Outcome]:
        """Fill free places with waiting members and start the next epoch."""
        stack = self.stacks[number]
        with torch.cuda.stream(self.streams[number]):
            finished: list[Outcome] = []
            for position in range(len(stack.places)):
                while stack.places[position] is None and self.waiting:
                    stack.enter(position, *self.waiting.popleft())
                    finished += self._leave_if_over(stack, position)
            if stack.occupied:
                self.stacks[number] = stack = self._compact(stack)
                stack.launch()
        yield from self._report_outcomes(finished)

    def _compact(self, stack: Stack) -> Stack:
        """Remove the free places of a stack if this saves time. A recorded step would have to be recorded again."""
        occupied = len(stack.occupied)
        places = len(stack.places)
        if occupied == places or (stack.captured and 2 * occupied > places):
            return stack
        return stack.only(stack.occupied)

    def _land(self, stack: Stack) -> list[Outcome]:
        """Wait for the epoch to end. Returns the outcomes of members that end with it and of links that follow them."""
        finished: list[Outcome] = []
        wait_start = time.perf_counter()
        results = stack.land()
        self.waited += time.perf_counter() - wait_start
        self.steps += stack.steps_taken
        self._watch(stack, [position for position, outcome in results if not isinstance(outcome, TrainingError)])
        compute_context.advance(self._networks_trained())
        for position, outcome in results:
            if isinstance(outcome, TrainingError):
                finished += self._fail(stack.occupant(position).index, outcome)
                stack.free(position)
            else:
                finished += self._leave_if_over(stack, position)
        return finished

    def _networks_trained(self) -> float:
        """Return how far the members in all stacks are, as a number of members."""
        networks = 0.0
        for stack in self.stacks:
            for position in stack.occupied:
                slot = stack.occupant(position)
                first = 0 if slot.member.start is None else len(slot.member.start.history)
                last = slot.member.until or self.recipe.epochs
                networks += (len(slot.history) - first) / max(1, last - first)
        return networks

    def _watch(self, stack: Stack, places: Sequence[int]) -> None:
        watch = self.workload.spec.watch
        if watch is None or not places:
            return
        progress = [(slot.index, len(slot.history)) for slot in map(stack.occupant, places)]
        is_entire_stack = len(places) == len(stack.places)
        rows = torch.tensor(places, device=stack.device)
        with torch.no_grad():
            watch(
                progress,
                {name: t.detach() if is_entire_stack else t.detach()[rows] for name, t in stack.tensors.items()},
            )

    def _leave_if_over(self, stack: Stack, position: int) -> list[Outcome]:
        """Return the outcomes of the member in this place and of its links, as far as they have ended."""
        finished: list[Outcome] = []
        while self._over(stack.occupant(position)):
            index = stack.occupant(position).index
            finished.append((index, stack.leave(position)))
            if index not in self.links:
                stack.free(position)
                break
            stack.go_on(position, *self.links.pop(index))
        return finished

    def _over(self, slot: Slot) -> bool:
        epochs = len(slot.history)
        stopped = bool(self.recipe.patience) and epochs - slot.best >= self.recipe.patience
        return stopped or epochs >= (slot.member.until or self.recipe.epochs)

    def _fail(self, index: int, error: TrainingError) -> list[Outcome]:
        """Return the same error for a member and all later links of its chain, since each would raise it."""
        failures: list[Outcome] = [(index, error)]
        while index in self.links:
            index, _ = self.links.pop(index)
            failures.append((index, TrainingError(*error.args)))
        return failures

    def _report_outcomes(self, finished: Sequence[Outcome]) -> Iterator[Outcome]:
        for outcome in finished:
            seconds = max(time.perf_counter() - self.began, 1e-9)
            rate = round(self.steps / seconds, 1)
            facts = dict(self.measured)
            if self.workload.device.type == "cuda":
                facts["busy"] = round(
                    min(1.0, self.waited / seconds), 3
                )  # a lower bound, since the device also computes during launches
            start = self.workload.members[outcome[0]].start
            if start is not None:
                facts["continued_from"] = len(start.history)
            compute_context.note(way=self.strategy.name, stack=self.strategy.members, steps_per_second=rate, **facts)
            yield outcome
