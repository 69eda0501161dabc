"""A training step for the models of a stack: losses, gradients, optimiser step and the objective's `after_step`.

On a CPU, a step with explicit gradients processes one model after another, and a step with autograd processes all
models together. On a GPU, where the step may be recorded, it processes all models together and does not depend on
values that only the host has.

With the precision bfloat16, every step uses autograd, and only the losses are computed under autocast. The loss that
selects the best epoch and all outputs of trained models have the precision of the weights.

The ranks of a process group (`tasks.worker.ranks`) share the rows of every part of a minibatch, and add up their
gradients and losses before the optimiser's step, so that all have the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.models.counter_rng import CounterRng, row_bits, step_keys
from tasks.models.layers import GradientPlace, Mode, PartRows
from tasks.numerics.precision import autocast
from tasks.training.device_data import DeviceData
from tasks.training.members import Spec
from tasks.training.objective import AfterStep, Batch, ByHand, Mirrors
from tasks.training.optimisers import Optimiser, ParameterBuffer
from tasks.worker.gradient_sums import GradientSums
from tasks.worker.ranks import add_over_ranks, current_ranks, share_rows

ROUNDING = 1e-3  # largest difference between losses that are equal up to rounding, relative and in nats

MIRRORED = -5  # random number site


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of every place that are computed together: a whole minibatch, or a part of one, or this rank's share of it.

    A rank without rows computes one row of padding, since batch norm needs all ranks.
    """

    number: int  # within the minibatch
    first: int  # its first row within the minibatch
    is_empty: bool
    pixels: Tensor  # (places, rows, features)
    labels: Tensor  # (places, rows)
    real: Tensor | None  # (places, rows) bool; None without padding
    mirrored: Tensor | None = None  # (places, rows) bool; None if the objective does not want to know
    together: PartRows | None = None  # the rows of all ranks; None for one rank


@dataclass(frozen=True, eq=False)
class Clock:
    """What a step knows of every model's data, (places,) each: its key and the number of minibatches of an epoch.

    `origins` (rows,) is the row itself, or the row whose image it replaces in one of the models.
    """

    keys: Tensor
    per_epoch: Tensor
    origins: Tensor


def origins(count: int, aliases: Sequence[Mapping[int, int]]) -> Tensor:
    """Return the `origins` of this number of rows, with each member's replacements."""
    result = torch.arange(count)
    for mapping in aliases:
        for row, alias in mapping.items():
            result[alias] = row
    return result


class Step:
    """Takes training steps in all places. The learned weights are in `learned` and all other tensors in `fixed`."""

    def __init__(
        self,
        spec: Spec,
        data: DeviceData,
        learned: ParameterBuffer,
        fixed: ParameterBuffer,
        optimiser: Optimiser,
        clock: Clock,
        channels_last: bool = False,
    ) -> None:
        keys = clock.keys
        self.learning = spec.learning
        self.precision = spec.recipe.precision
        self.data = data
        self.fixed = fixed
        self.optimiser = optimiser
        self.keys = keys
        self.clock = clock
        self.channels_last = channels_last
        self.alternates = isinstance(spec.learning, Mirrors) and spec.learning.alternates
        self.rows = spec.recipe.batch // spec.parts  # rows per part
        # Rows that share random numbers. A step that is divided further, for lack of memory, draws the same numbers.
        self.rows_of_draws = spec.recipe.batch // spec.recipe.accumulate
        self.has_parts = spec.recipe.accumulate > 1
        # Sums of the parts' gradients.
        self.sums = learned.like() if spec.parts > 1 or current_ranks().size > 1 else None
        self.after = self.learning if isinstance(self.learning, AfterStep) else None
        self.places: dict[str, GradientPlace] = {}
        if optimiser.gradients is not None and self.sums is None:
            self.places = {name: GradientPlace(view) for name, view in optimiser.gradients.views.items()}
        # The weights as autograd leaves, without a record of earlier steps.
        self.leaves = {name: view.detach().requires_grad_() for name, view in learned.views.items()}
        self.tensors = {
            name: self.leaves[name] if name in self.leaves else fixed.views[name] for name in self.learning.weights
        }
        self._gradient_sums = GradientSums(list(self.leaves.values()))
        if current_ranks().size > 1 and self.sums is not None:
            for name, leaf in self.leaves.items():  # backward passes add to the sums
                leaf.grad = self.sums.views[name]
        self._values = {name: tensor.detach() for name, tensor in self.tensors.items()}
        self.together = keys.device.type != "cpu"
        self.by_hand = self.learning if isinstance(self.learning, ByHand) else None
        self._written_out = (
            not self.together and self.by_hand is not None and self.precision != "bfloat16"
        )  # until a gradient is missing
        # For each model: its tensors (*shape), its stack of one, its key and its steps. They are split once here
        # instead of in every step.
        positions = range(len(keys))
        self._single = [learned.tensors_of_model(position) for position in positions]
        self._alone = [
            {name: values[position : position + 1] for name, values in self._values.items()} for position in positions
        ]
        self._drawn = list(zip(torch.split(keys, 1), torch.split(optimiser.steps, 1), strict=True))

    @property
    def dtype(self) -> torch.dtype:
        return self.fixed.buffer.dtype

    def take(self, row_table: Tensor, padded: bool, occupied: Sequence[int], passed: Tensor | None) -> Tensor:
        """Take a step on these rows of the data, (places, rows), where -1 is padding. Returns the losses (places,).

        `passed` (places,) is the number of epochs after the step, if an operation follows the step.
        """
        if padded and len(row_table) == 1 and row_table.device.type == "cpu":  # a single model needs no padding
            row_table = row_table[:, : int((row_table >= 0).sum())]
            padded = False
        real = (row_table >= 0) if padded else None
        if self._written_out:
            losses = self._explicit_step(row_table, real, occupied, passed)
            if losses is not None:
                return losses
            self._written_out = False
        return self._autograd_step(row_table, real, passed)

    def _parts(self, row_table: Tensor, real: Tensor | None) -> Iterator[Part]:
        rows = row_table if real is None else row_table.clamp(min=0)
        width = rows.shape[1]
        for number, start in enumerate(range(0, max(1, width), self.rows)):
            stop = min(start + self.rows, width)
            share = share_rows(start, stop)
            is_empty = current_ranks().size > 1 and share.start == share.stop
            if is_empty:
                share = slice(start, start + 1)
            pixels, labels = self.data.rows(rows[:, share].contiguous())
            of_share = None if real is None else real[:, share]
            if is_empty:
                of_share = torch.zeros(labels.shape, dtype=torch.bool, device=labels.device)
            mirrored = self._mirrored(rows[:, share]) if self.alternates else None
            together = None
            if current_ranks().size > 1:
                together = PartRows(share.start - start, stop - start, None if real is None else real[:, start:stop])
            yield Part(number, share.start, is_empty, pixels, labels, of_share, mirrored, together)

    def _mirrored(self, rows: Tensor) -> Tensor:
        """Return which rows (places, rows) are mirrored: at random in the first epoch, then in alternating epochs."""
        first = row_bits(self.keys, MIRRORED, torch.take(self.clock.origins, rows.long()))
        epochs = self.optimiser.steps.long() // self.clock.per_epoch
        return (first + epochs[:, None]) % 2 == 1

    def _draws(self, keys: Tensor, steps: Tensor, part: Part) -> CounterRng:
        """Return the random numbers for a step, or for a part of a step."""
        number, skipped = divmod(part.first, self.rows_of_draws)
        if not self.has_parts:
            return CounterRng(keys, steps, skipped)
        return CounterRng(step_keys(keys, steps), torch.full_like(keys, number), skipped)

    def depends_on_parts(self, row_table: Tensor) -> bool:
        """Return whether the losses of these rows, (1, rows), differ if they are computed in two parts."""
        half = row_table.shape[1] // 2
        whole = self._losses(row_table, 0)
        in_parts = torch.cat([self._losses(row_table[:, :half], 0), self._losses(row_table[:, half:], half)], 1)
        return not torch.allclose(in_parts, whole, rtol=ROUNDING, atol=ROUNDING)

    def _losses(self, row_table: Tensor, first: int) -> Tensor:
        """Return the losses (places, rows) of these rows of a minibatch, which starts at row -`first`."""
        pixels, labels = self.data.rows(row_table.contiguous())
        mirrored = self._mirrored(row_table) if self.alternates else None
        part = Part(0, first, False, pixels, labels, None)
        mode = Mode(training=True, draws=self._draws(self.keys, self.optimiser.steps, part), real=None)
        with torch.no_grad():
            return self.learning.losses(self._values, Batch(pixels, labels, mode, mirrored))

    # One model after another

    def _explicit_step(
        self, row_table: Tensor, real: Tensor | None, occupied: Sequence[int], passed: Tensor | None
    ) -> Tensor | None:
        """Take every model's step with explicit gradients. Returns None if there are none."""
        assert self.by_hand is not None
        counts = {position: row_table.shape[1] if real is None else int(real[position].sum()) for position in occupied}
        with torch.inference_mode():
            losses = torch.zeros(len(row_table), dtype=self.dtype)
            if self.sums is not None:
                self.sums.buffer.zero_()
            for part in self._parts(row_table, real):
                for position, row_count in counts.items():
                    count = min(part.pixels.shape[1], row_count - part.first)
                    if count <= 0:
                        continue
                    share = 1.0 if self.learning.total else 1 / row_count
                    if part.is_empty:
                        share = 0.0
                    shares = torch.full((count,), share, dtype=self.dtype)
                    rows = part.pixels[position], part.labels[position]
                    if real is not None:
                        rows = rows[0][:count], rows[1][:count]
                    draws = self._draws(*self._drawn[position], part)
                    result = self.by_hand.manual_gradient(self._single[position], *rows, shares, draws)
                    if result is None:
                        return None
                    loss, gradients = result
                    losses[position] = losses[position] + loss if part.number else loss
                    if self.sums is None:
                        self._finish(position, gradients, passed)
                    else:
                        for view, gradient in zip(self.sums.views.values(), gradients, strict=True):
                            view[position].add_(gradient.view_as(view[position]))
            if self.sums is not None:
                add_over_ranks([self.sums.buffer, losses])
                for position in (position for position, row_count in counts.items() if row_count):
                    self._finish(position, [view[position] for view in self.sums.views.values()], passed)
        return losses

    def _finish(self, position: int, gradients: Sequence[Tensor], passed: Tensor | None) -> None:
        self.optimiser.step_of(position, gradients)
        self._follow(position, passed)

    def _follow(self, position: int, passed: Tensor | None) -> None:
        if self.after is not None:
            assert passed is not None
            self.after.after_step(self._alone[position], passed[position : position + 1])

    # All models together

    def _autograd_step(self, row_table: Tensor, real: Tensor | None, passed: Tensor | None) -> Tensor:
        count: int | Tensor = row_table.shape[1] if real is None else real.sum(1).clamp(min=1)
        leaves = list(self.leaves.values())
        losses = None
        gradients: Sequence[Tensor] = []
        if self.sums is not None:
            self.sums.buffer.zero_()
        for part in self._parts(row_table, real):
            with torch.enable_grad():
                loss = self._loss(part, count)
                if current_ranks().size > 1:
                    is_last = (part.number + 1) * self.rows >= row_table.shape[1]
                    with self._gradient_sums.add(is_last):
                        torch.autograd.backward(loss.sum())
                else:
                    gradients = torch.autograd.grad(loss.sum(), leaves)
            losses = loss.detach() if losses is None else losses + loss.detach()
            if self.sums is not None and current_ranks().size == 1:
                torch._foreach_add_(list(self.sums.views.values()), list(gradients))
        assert losses is not None
        add_over_ranks([losses])
        active = None if real is None else real.any(1)
        with torch.no_grad():
            if self.sums is not None:
                gradients = list(self.sums.views.values())
            self.optimiser.step(gradients, active)
            self._follow_all(active, passed)
        return losses

    def _loss(self, part: Part, count: int | Tensor) -> Tensor:
        """Return the part's contribution (places,) to each model's loss for a minibatch of `count` rows."""
        real = part.real
        mode = Mode(
            training=True,
            draws=self._draws(self.keys, self.optimiser.steps, part),
            real=None if real is None else real.to(self.dtype),
            channels_last=self.channels_last,
            places=self.places,
            part=part.together,
        )
        for place in self.places.values():
            place.uses = 0
        with autocast(part.pixels.device.type, self.precision):
            losses = self.learning.losses(self.tensors, Batch(part.pixels, part.labels, mode, part.mirrored))
        loss = (losses if real is None else torch.where(real, losses, 0)).sum(1)
        return loss if self.learning.total else loss / count

    def _follow_all(self, active: Tensor | None, passed: Tensor | None) -> None:
        """Call the objective's `after_step` for the models that took the step; all by default."""
        if self.after is None:
            return
        assert passed is not None
        if not self.together:
            for position in range(len(passed)) if active is None else active.nonzero()[:, 0].tolist():
                self._follow(position, passed)
            return
        before = None if active is None else self.fixed.buffer.clone()
        self.after.after_step(self._values, passed)
        if active is not None and before is not None:  # restores models that did not take the step
            self.fixed.buffer.copy_(torch.where(active[:, None], self.fixed.buffer, before))
