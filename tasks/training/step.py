"""A training step for the models of a stack: losses, gradients, optimiser step and the objective's `after_step`.

On a CPU, a step with explicit gradients processes one model after another, and a step with autograd processes all
models together. On a GPU, where the step may be recorded, it processes all models together and does not depend on
values that only the host has.

With the precision bfloat16, every step uses autograd, and only the losses are computed under autocast. The loss that
selects the best epoch and all outputs of trained models have the precision of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.models.counter_rng import CounterRng, step_keys
from tasks.models.layers import GradientPlace, Mode
from tasks.numerics.precision import autocast
from tasks.training.device_data import DeviceData
from tasks.training.members import Spec
from tasks.training.objective import AfterStep, Batch, ByHand
from tasks.training.optimisers import Optimiser, ParameterBuffer


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of every place that are computed together: a whole minibatch, or a part of one."""

    number: int  # within the minibatch
    pixels: Tensor  # (places, rows, features)
    labels: Tensor  # (places, rows)
    real: Tensor | None  # (places, rows) bool; None without padding


class Step:
    """Takes training steps in all places. The learned weights are in `learned` and all other tensors in `fixed`."""

    def __init__(
        self,
        spec: Spec,
        data: DeviceData,
        learned: ParameterBuffer,
        fixed: ParameterBuffer,
        optimiser: Optimiser,
        keys: Tensor,
    ) -> None:
        self.learning = spec.learning
        self.precision = spec.recipe.precision
        self.data = data
        self.fixed = fixed
        self.optimiser = optimiser
        self.keys = keys
        self.rows = spec.recipe.batch // spec.recipe.accumulate  # rows per part
        self.sums = learned.like() if spec.recipe.accumulate > 1 else None  # sums of the parts' gradients
        self.after = self.learning if isinstance(self.learning, AfterStep) else None
        self.places: dict[str, GradientPlace] = {}
        if optimiser.gradients is not None and self.sums is None:
            self.places = {name: GradientPlace(view) for name, view in optimiser.gradients.views.items()}
        # The weights as autograd leaves, without a record of earlier steps.
        self.leaves = {name: view.detach().requires_grad_() for name, view in learned.views.items()}
        self.tensors = {
            name: self.leaves[name] if name in self.leaves else fixed.views[name] for name in self.learning.weights
        }
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
        for number, part_rows in enumerate([rows] if self.sums is None else torch.split(rows, self.rows, 1)):
            pixels, labels = self.data.rows(part_rows.contiguous())
            within = slice(number * self.rows, number * self.rows + part_rows.shape[1])
            yield Part(number, pixels, labels, None if real is None else real[:, within])

    def _draws(self, keys: Tensor, steps: Tensor, part: Part) -> CounterRng:
        """Return the random numbers for a step, or for a part of a step."""
        if self.sums is None:
            return CounterRng(keys, steps)
        return CounterRng(step_keys(keys, steps), torch.full_like(keys, part.number))

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
                    count = min(part.pixels.shape[1], row_count - part.number * self.rows)
                    if count <= 0:
                        continue
                    share = 1.0 if self.learning.total else 1 / row_count
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
        if self.sums is not None:
            self.sums.buffer.zero_()
        for part in self._parts(row_table, real):
            with torch.enable_grad():
                loss = self._loss(part, count)
                gradients: Sequence[Tensor] = torch.autograd.grad(loss.sum(), leaves)
            losses = loss.detach() if losses is None else losses + loss.detach()
            if self.sums is not None:
                torch._foreach_add_(list(self.sums.views.values()), list(gradients))
        assert losses is not None
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
            places=self.places,
        )
        for place in self.places.values():
            place.uses = 0
        with autocast(part.pixels.device.type, self.precision):
            losses = self.learning.losses(self.tensors, Batch(part.pixels, part.labels, mode))
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
