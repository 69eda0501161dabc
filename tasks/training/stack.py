"""Train models together in a stack. Each place in the stack holds a model's weights, optimiser moments and data order.

All places take a step together (`tasks.training.step`). On a GPU, the step is recorded once as a CUDA graph and then
replayed, since launching its operations one by one takes longer than running them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.counter_rng import CounterRng, member_key
from tasks.models.layers import Mode
from tasks.training.device_data import DeviceData
from tasks.training.members import (
    Epoch,
    Member,
    Order,
    Spec,
    State,
    Trained,
    TrainingError,
    minibatches,
    not_finite,
    order,
)
from tasks.training.objective import AfterStep, Batch, FromImages
from tasks.training.optimisers import Nesterov, ParameterBuffer, optimiser_of
from tasks.training.step import Clock, Step, origins
from tasks.worker.ranks import add_over_ranks, share_blocks

REHEARSALS = 3  # steps before recording, in which libraries choose algorithms and allocate workspaces


class Graphs:
    """CUDA graphs on one device by name, each recorded on first use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def run(self, name: str, function: Callable[[], None], changed: Sequence[Tensor]) -> None:
        """Replay the recording of a function on the current stream.

        `changed` are the tensors that the function changes.
        """
        if name not in self._graphs:
            self._graphs[name] = self._record(function, changed)
        self._graphs[name].replay()

    def _record(self, function: Callable[[], None], changed: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        before = [tensor.clone() for tensor in changed]
        current = torch.cuda.current_stream(self._device)
        # A recording keeps the workspaces of its stream, so stacks that are replayed concurrently must be recorded on
        # separate streams. The default stream cannot be recorded.
        recording_stream = current
        if current == torch.cuda.default_stream(self._device):
            recording_stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        recording_stream.wait_stream(current)
        with torch.cuda.stream(recording_stream):
            for _ in range(REHEARSALS):
                function()
                with torch.no_grad():
                    for tensor, original in zip(changed, before, strict=True):
                        tensor.copy_(original)
        current.wait_stream(recording_stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate memory, since only this thread's operations are recorded.
        with torch.cuda.graph(graph, stream=recording_stream, capture_error_mode="thread_local"):
            function()
        return graph


ASSESSED_AT_ONCE = 512  # rows whose activations fit into a core's cache; random draws depend on this number


@dataclass
class Slot:
    """The member that occupies a place in a stack, and its history so far."""

    index: int
    member: Member
    history: list[Epoch] = field(default_factory=list)
    best: int = 0  # best epoch

    @property
    def best_loss(self) -> float:
        if self.best:
            return self.history[self.best - 1].validation_loss
        return math.inf


class Stack:
    """`count` places for members of the spec.

    Their rows are in `data`, with each member's replaced rows in `aliases`.
    """

    def __init__(
        self,
        spec: Spec,
        data: DeviceData,
        aliases: Sequence[Mapping[int, int]],
        steps: int,
        count: int,
        *,
        captured: bool = False,
        channels_last: bool = False,
    ) -> None:
        device = data.device
        dtype = torch.float64 if spec.recipe.precision == "float64" else torch.float32
        self.spec = spec
        self.data = data
        self.aliases = aliases
        self.captured = captured
        self.channels_last = channels_last
        self.places: list[Slot | None] = [None] * count
        weights = spec.learning.weights
        learned = {name: weight.shape for name, weight in weights.items() if weight.learned}
        fixed = {name: weight.shape for name, weight in weights.items() if not weight.learned}
        self.learned = ParameterBuffer(learned, count, device, dtype)
        self.fixed = ParameterBuffer(fixed, count, device, dtype)
        factors = {name: weight.rate for name, weight in weights.items()}
        self.optimiser = optimiser_of(spec.recipe, self.learned, factors)
        if spec.recipe.patience:
            self.best = (self.learned.like(), self.fixed.like())
        else:
            self.best = (self.learned, self.fixed)
        self.keys = torch.zeros(count, dtype=torch.int64, device=device)
        self.per_epoch = torch.ones(count, dtype=torch.int64, device=device)  # minibatches of an epoch
        self.order = torch.zeros(count, steps, spec.recipe.batch, dtype=torch.int32, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)  # current minibatch
        self.losses = torch.zeros(count, steps, dtype=dtype, device=device)
        self.assessment = torch.zeros(2, count, dtype=torch.float64, device=device)  # mean loss, accuracy
        # The number of epochs after each step, (places, steps), if an operation follows each step.
        self.passed = None
        if isinstance(spec.learning, AfterStep):
            self.passed = torch.zeros(self.losses.shape, device=device, dtype=torch.float64)
        clock = Clock(self.keys, self.per_epoch, origins(len(data.train_labels), aliases).to(device))
        self.stepping = Step(spec, data, self.learned, self.fixed, self.optimiser, clock, channels_last)
        self.graphs = Graphs(device) if captured else None
        self._orders: dict[tuple[int, int], Order] = {}  # drawn in advance, by member and epoch
        self._running: list[int] = []  # number of minibatches of each place in the current epoch
        self._sent: list[Tensor] = []  # tensors being copied to the device

    # Places

    @property
    def device(self) -> torch.device:
        return self.learned.buffer.device

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The weights by name, (places, *shape), in the network's order."""
        return self.stepping.tensors

    @property
    def bytes(self) -> int:
        """The number of bytes that the stack keeps between steps."""
        gradients = self.learned.buffer
        if self.stepping.sums is None:
            sums = []
        else:
            sums = [self.stepping.sums.buffer]
        return sum(tensor.nbytes for tensor in (*self._memory(), self.order, self.losses, gradients, *sums))

    @property
    def steps_taken(self) -> int:
        """The number of steps that all models take in the current epoch."""
        return sum(self._running)

    @property
    def occupied(self) -> list[int]:
        return [position for position, slot in enumerate(self.places) if slot is not None]

    def occupant(self, position: int) -> Slot:
        """Return the member of an occupied place."""
        slot = self.places[position]
        assert slot is not None
        return slot

    def enter(self, position: int, index: int, member: Member) -> None:
        """Put a member into a place, with initial weights or with the state from which it continues."""
        state = member.start
        if state is None:
            start = self._start(index, member)
        else:
            start = state.weights
        best = start if state is None else state.best_weights
        with torch.no_grad():
            fill(position, start, self.learned, self.fixed)
            if self.spec.recipe.patience:
                fill(position, best, *self.best)
            for number, moment in enumerate(self.optimiser.moments):
                moment.buffer[position].zero_()
                if state is not None:
                    fill(position, state.moments[number], moment)
            self.optimiser.steps[position] = 0 if state is None else state.steps
            self.keys[position] = member_key(member.seed)
            self.per_epoch[position] = minibatches(len(member.rows), self.spec.recipe.batch)
            if isinstance(self.optimiser, Nesterov):
                self.optimiser.lengths[position] = self.per_epoch[position] * self.spec.recipe.epochs
        history = [] if state is None else list(state.history)
        self.places[position] = Slot(index, member, history, 0 if state is None else state.best_epoch)

    def _start(self, index: int, member: Member) -> Mapping[str, NDArray[np.float32]]:
        """Return the initial tensors of a member."""
        learning = self.spec.learning
        count = learning.starting_images if isinstance(learning, FromImages) else 0
        if not count:
            return learning.initial(member.seed)
        assert isinstance(learning, FromImages)
        rows = [self.aliases[index].get(row, row) for row in member.rows[:count].tolist()]
        pixels, _ = self.data.rows(torch.tensor(rows, device=self.device))
        return learning.initial_from(member.seed, pixels.view(len(rows), *self.spec.images.shape))

    def leave(self, position: int) -> Trained:
        """Return the trained model of the member in this place.

        The member keeps its place until `free` or `go_on` is called.
        """
        slot = self.occupant(position)
        best = slot.best if self.spec.recipe.patience else len(slot.history)
        state = self._state(position) if slot.member.returns_state else None
        return Trained(best, tuple(slot.history), self._weights(position, self.best), state)

    def _state(self, position: int) -> State:
        slot = self.occupant(position)
        current = self._weights(position, (self.learned, self.fixed))
        best = self._weights(position, self.best)
        moments = tuple(numbers(position, moment) for moment in self.optimiser.moments)
        return State(tuple(slot.history), slot.best, int(self.optimiser.steps[position]), current, best, moments)

    def _weights(
        self, position: int, flats: tuple[ParameterBuffer, ParameterBuffer]
    ) -> dict[str, NDArray[np.floating]]:
        """Return the tensors of a model, in the network's order."""
        tensors = numbers(position, *flats)
        return {name: tensors[name] for name in self.spec.learning.weights}

    def go_on(self, position: int, index: int, member: Member) -> None:
        """Continue the member in this place as the next link of its chain."""
        slot = self.occupant(position)
        self.places[position] = Slot(index, member, slot.history, slot.best)

    def free(self, position: int) -> None:
        self.places[position] = None

    def only(self, places: Sequence[int]) -> Stack:
        """Return a smaller stack that contains these places, with unchanged models."""
        steps = self.order.shape[1]
        smaller = Stack(
            self.spec,
            self.data,
            self.aliases,
            steps,
            len(places),
            captured=self.captured,
            channels_last=self.channels_last,
        )
        rows = torch.tensor(places, device=self.device)
        with torch.no_grad():
            for source, target in zip(self._memory(), smaller._memory(), strict=True):
                target.copy_(source[rows])
        smaller.places = [self.places[position] for position in places]
        return smaller

    def _memory(self) -> Iterable[Tensor]:
        """Yield the tensors that a place keeps between epochs."""
        yield from (self.learned.buffer, self.fixed.buffer, self.keys, self.per_epoch, self.optimiser.steps)
        if isinstance(self.optimiser, Nesterov):
            yield self.optimiser.lengths
        yield from (moment.buffer for moment in self.optimiser.moments)
        if self.spec.recipe.patience:
            yield from (flat.buffer for flat in self.best)

    # Epochs

    def launch(self) -> None:
        """Start the next epoch of every member. On a GPU, this returns before the epoch ends."""
        for with_padding in self.begin():
            self.step(with_padding)
        self._assess()
        self._draw_ahead()

    def begin(self) -> list[bool]:
        """Arrange the minibatches of the next epoch. Returns whether each of them has padding."""
        recipe = self.spec.recipe
        self._running = [0] * len(self.places)
        rates = np.zeros(len(self.places))
        passed = np.zeros(self.losses.shape)
        row_table = np.zeros(self.order.shape, np.int32)  # row 0 in empty places, whose results are unused
        for position in self.occupied:
            slot = self.occupant(position)
            rows = self._order(slot, len(slot.history) + 1)
            row_table[position, : len(rows)], row_table[position, len(rows) :] = rows, -1
            self._running[position] = len(rows)
            if slot.member.learning_rate is None:
                rate = recipe.learning_rate
            else:
                rate = slot.member.learning_rate
            rates[position] = rate * recipe.factor(len(slot.history) + 1)
            passed[position, : len(rows)] = len(slot.history) + np.arange(1, len(rows) + 1) / len(rows)
        steps = max(self._running)
        padded: list[bool] = np.any(row_table[:, :steps] < 0, axis=(0, 2)).tolist()  # a step without padding is cheaper
        self._sent.clear()
        self._send(row_table, self.order)
        self._send(rates, self.optimiser.rates)
        if self.passed is not None:
            self._send(passed, self.passed)
        self.cursor.zero_()
        self.losses.zero_()
        return padded

    def _send(self, values: NDArray[Any], to: Tensor) -> None:
        tensor = torch.from_numpy(values)
        self._sent.append(tensor if self.device.type == "cpu" else tensor.pin_memory())
        to.copy_(self._sent[-1], non_blocking=True)

    def land(self) -> list[tuple[int, Epoch | TrainingError]]:
        """Wait for the epoch to end, keep the best weights, and return the results by place."""
        losses = self.losses.double().cpu().numpy()
        assessed = self.assessment.cpu().numpy()
        results: list[tuple[int, Epoch | TrainingError]] = []
        better = []
        for position in self.occupied:
            slot = self.occupant(position)
            outcome = self._epoch(slot, losses[position, : self._running[position]], *assessed[:, position])
            if isinstance(outcome, Epoch):
                slot.history.append(outcome)
                if outcome.validation_loss < slot.best_loss:
                    slot.best = outcome.epoch
                    better.append(position)
            results.append((position, outcome))
        if better and self.spec.recipe.patience:
            rows = torch.tensor(better, device=self.device)
            with torch.no_grad():
                for current, best in zip((self.learned, self.fixed), self.best, strict=True):
                    best.buffer[rows] = current.buffer[rows]
        return results

    def _epoch(self, slot: Slot, losses: NDArray[np.float64], loss: float, accuracy: float) -> Epoch | TrainingError:
        epoch = len(slot.history) + 1
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad):
            step = (epoch - 1) * len(losses) + int(bad[0]) + 1
            return not_finite("loss", f"at step {step}", slot.member.seed)
        if not math.isfinite(loss):
            return not_finite("validation loss", f"after epoch {epoch}", slot.member.seed)
        # The loss of a minibatch is the mean or the sum over its rows.
        if self.spec.learning.total:
            train_loss = losses.sum() / len(slot.member.rows)
        else:
            train_loss = losses.mean()
        return Epoch(epoch, float(train_loss), float(loss), float(accuracy))

    def _order(self, slot: Slot, epoch: int) -> Order:
        ahead = self._orders.pop((slot.index, epoch), None)
        if ahead is not None:
            return ahead
        return order(slot.member, epoch, self.spec.recipe.batch, self.aliases[slot.index])

    def _draw_ahead(self) -> None:
        """Draw the order of the next epoch while a GPU computes the current one."""
        self._orders.clear()
        if self.device.type == "cpu":
            return
        for position in self.occupied:
            slot = self.occupant(position)
            next_epoch = len(slot.history) + 2
            if next_epoch <= (slot.member.until or self.spec.recipe.epochs):
                rows = order(slot.member, next_epoch, self.spec.recipe.batch, self.aliases[slot.index])
                self._orders[slot.index, next_epoch] = rows

    # Steps

    def step(self, padded: bool) -> None:
        """Take a step in every place on the minibatch at the cursor. `padded` is set if any place has padding."""
        if self.graphs is not None and (self.spec.learning.captures_padding or not padded):
            self.graphs.run("padded step" if padded else "step", lambda: self._step(padded), self._changing_tensors())
        else:
            self._step(padded)

    def copies(self) -> list[Tensor]:
        """Copy the tensors that must be restored after rehearsing a step."""
        return [tensor.clone() for tensor in self._changing_tensors()]

    def _changing_tensors(self) -> list[Tensor]:
        """Return the tensors that a step changes and that must be restored after rehearsing it."""
        return [*self._memory(), self.cursor, self.losses]

    def _step(self, padded: bool) -> None:
        passed = None if self.passed is None else self._now(self.passed)
        losses = self.stepping.take(self._now(self.order), padded, self.occupied, passed)
        with torch.no_grad():
            self.losses.index_copy_(1, self.cursor, losses[:, None])
        self.cursor += 1

    def _now(self, table: Tensor) -> Tensor:
        """Return the entries (places, ...) of a table (places, steps, ...) for the step at the cursor."""
        return torch.index_select(table, 1, self.cursor)[:, 0]

    def _assess(self) -> None:
        if self.graphs is not None:
            self.graphs.run("assessment", self._assess_all, [self.assessment])
        else:
            self._assess_all()

    def _assess_all(self) -> None:
        """Compute the mean loss and accuracy of every model on the test split."""
        count = self.data.test_count
        models = len(self.places)
        self.assessment.zero_()
        with torch.no_grad():
            for start in share_blocks(count, ASSESSED_AT_ONCE):
                rows, labels = self.data.test_rows(start, start + ASSESSED_AT_ONCE)
                pixels = rows.expand(models, -1, -1)
                truth = labels.expand(models, -1)
                # Use the same draws after every epoch. Steps count from 0 and use other draws.
                draws = CounterRng(self.keys, torch.full_like(self.keys, -1 - start))
                mode = Mode(draws=draws, channels_last=self.channels_last)
                losses, right = self.spec.learning.evaluate_rows(self.tensors, Batch(pixels, truth, mode))
                self.assessment[0] += losses.double().sum(1)
                self.assessment[1] += math.nan if right is None else right.sum(1)
            add_over_ranks([self.assessment])
            self.assessment /= count


def fill(position: int, values: Mapping[str, NDArray[np.floating]], *flats: ParameterBuffer) -> None:
    """Copy values into the place of a model."""
    for flat in flats:
        for name, view in flat.views.items():
            view[position].copy_(torch.from_numpy(np.array(values[name])))  # a copy: torch has no read-only tensors


def numbers(position: int, *flats: ParameterBuffer) -> dict[str, NDArray[np.floating]]:
    """Return a copy of the values in the place of a model."""
    result = {}
    for flat in flats:
        for name, view in flat.views.items():
            result[name] = view[position].cpu().numpy().copy()
    return result
