"""Estimated seconds of jobs that never ran here: from timed units of work, or from operations and a device's rates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.planning.plan import Plan
from orchestrator.pricing.counting import count_steps
from orchestrator.pricing.hardware import CPU, DeviceRates, load_rates
from orchestrator.pricing.reference import NOTHING, Reference, Span
from tasks.contract.job import Work, marks
from tasks.contract.operations import CountedStep, InputStep, Operations, Step, scale

WIDEST = 3.0  # maximum error factor of a time that follows from operations
STACKED = 64  # models that a GPU trains together; with more, an H200 gains less than a tenth


@dataclass(frozen=True)
class Estimate:
    """The seconds of one job, and how many jobs of its group a GPU computes together in this time for each of them.

    `is_counted` is true if the seconds follow from operations.
    """

    span: Span
    together: float = 1.0
    is_counted: bool = False


@dataclass
class Estimator:
    """Estimates the jobs of one plan.

    Units that were timed on the reference machine are estimated from their timings, unless the job runs on a `gpu`. All
    others are estimated from their operations. `speed_folder` returns the folder that stores the counts. If
    `is_light`, nothing is traced, so that only stated operations and timings on images of any size count.
    """

    plan: Plan
    reference: Reference
    gpu: DeviceRates | None = None
    gpus: int = 0
    speed_folder: Callable[[], Path | None] = lambda: None
    is_light: bool = False
    _counts: dict[Step, CountedStep | None] = field(default_factory=dict)
    _group_sizes: Counter[str] = field(default_factory=Counter)

    def prepare(self, keys: Collection[str]) -> None:
        """Count the steps of these jobs in one go, as far as they have no timings."""
        self._group_sizes = Counter(self.plan.groups[key] for key in keys)
        if self.is_light:
            return
        steps: dict[Step, None] = {}
        for key in keys:
            work = self.plan.work(key)
            if work is None:
                continue
            for unit in work.amounts:
                operations = self._stated(key, work, unit)
                if operations is None or isinstance(operations, Mapping):
                    continue
                if self._device(key) is not None or self.reference.estimate_timed(unit, 1.0) is None:
                    steps[operations] = None
        missing = [step for step in steps if step not in self._counts]
        if missing:
            self._counts.update(count_steps(missing, self.speed_folder()))

    def estimate(self, key: str) -> Estimate | None:
        """Return the estimated seconds of a job, or None if nothing is known about it."""
        work = self.plan.work(key)
        if work is None:
            mark = marks(self.plan.jobs[key].function)
            span = self.reference.estimate_task(mark.name, len(self.plan.inputs[key]))
            return None if span is None else Estimate(span)
        device = self._device(key)
        together = self._together(key, work)
        total = NOTHING
        is_counted = False
        for unit, count in work.amounts.items():
            span = None if device is not None else self.reference.estimate_timed(unit, count)
            if span is None:
                span = self._counted_span(key, work, unit, together)
                is_counted = is_counted or span is not None
            if span is None and device is None:
                span = self.reference.estimate_unit(unit, count)
            if span is None:
                return None
            total = total + span
        return Estimate(_with_stopping(total, work, is_counted), together, is_counted)

    def device_bytes(self, key: str) -> float | None:
        """Return the memory of a device that a job on the GPU needs. None if it is not known, or for other jobs."""
        work = None if self._device(key) is None else self.plan.work(key)
        if work is None:
            return None
        needed = work.device_bytes
        for unit in work.amounts:
            step = self._stated(key, work, unit)
            if step is not None and not isinstance(step, Mapping) and (counted := self._counts.get(step)):
                needed = max(needed, counted.device_bytes)
        return needed or None

    def _counted_span(self, key: str, work: Work, unit: str, together: float) -> Span | None:
        """Return the seconds of a unit's amount from its operations, or None if they are not known."""
        operations = self._operations(key, work, unit)
        if operations is None:
            return None
        rates = self._device(key) or load_rates()[CPU]
        return Span.with_factor(work.amounts[unit] * rates.seconds(operations, together), rates.factor)

    def _device(self, key: str) -> DeviceRates | None:
        """Return the GPU's rates if the job uses a GPU, and otherwise None."""
        return self.gpu if marks(self.plan.jobs[key].function).gpus else None

    def _together(self, key: str, work: Work) -> float:
        """Return the number of jobs of this group that a GPU trains together."""
        is_stacked = any(
            not isinstance(step, Mapping | InputStep) and step.is_stacked for step in work.operations.values()
        )
        if not is_stacked or self._device(key) is None or marks(self.plan.jobs[key].function).many is None:
            return 1.0
        size = self._group_sizes[self.plan.groups[key]] / max(1, self.gpus)
        return float(min(STACKED, max(1, math.ceil(size))))

    def _stated(self, key: str, work: Work, unit: str) -> Operations | Step | None:
        """Return the operations or the step that a unit states, which may be that of the job's first input."""
        stated = work.operations.get(unit)
        if not isinstance(stated, InputStep):
            return stated
        inputs = self.plan.inputs[key]
        read = self.plan.work(inputs[0]) if inputs and inputs[0] in self.plan.jobs else None
        if read is None:
            return None
        steps = [step for trained, step in read.operations.items() if trained in read.trained]
        return steps[0] if steps and not isinstance(steps[0], InputStep) else None

    def _operations(self, key: str, work: Work, unit: str) -> Operations | None:
        """Return the operations of one unit, or None if they are not known."""
        operations = self._stated(key, work, unit)
        if operations is not None and not isinstance(operations, Mapping):
            counted = self._counts.get(operations)
            operations = None if counted is None else counted.operations
        stated = work.operations.get(unit)
        if operations is not None and isinstance(stated, InputStep):
            return scale(operations, stated.factor)
        return operations


def _with_stopping(span: Span, work: Work, is_counted: bool) -> Span:
    """Widen a span by the possible lengths of a training that stops automatically.

    The error of the rate and that of the length are independent, so their logarithms add in quadrature.
    """
    low = _combine(span.expected / max(span.low, 1e-12), 1 / work.least)
    high = _combine(span.high / max(span.expected, 1e-12), work.most)
    if is_counted:
        low, high = min(low, WIDEST), min(high, WIDEST)
    return Span(span.expected, span.expected / low, span.expected * high)


def _combine(first: float, second: float) -> float:
    return math.exp(math.hypot(math.log(max(first, 1.0)), math.log(max(second, 1.0))))
