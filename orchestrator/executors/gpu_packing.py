"""GPU packing: chooses the number of calls per GPU and of jobs per call from measurements of the first calls.

A call that runs alone measures the fraction of time for which it keeps the GPU busy. As many calls then share the GPU
as keep it busy and fit into its memory. A call contains several times as many jobs as one step, so that another
training can take the place of one that has ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

SHARERS = 4  # maximum number of calls per GPU; the process of each takes half a gigabyte of GPU memory
REFILLS = 4  # jobs in a call per place in a step
UNMEASURED_JOBS = 512  # maximum number of jobs per call before the first measurement
GRAIN = 10_000  # resolution of GPU fractions in Ray
# With an autoscaler: jobs per call before the first measurement, because a call cannot be split later.
FIRST_GROWING = 16
# A machine takes minutes to start and costs money while it idles at the end. It is requested only for at least this
# many seconds of work.
WORTH_SECONDS = 600.0
MAX_GPUS_REQUESTED = 512  # maximum number of GPUs requested at a time


@dataclass(frozen=True)
class GpuMeasurement:
    """A task's measurements of the GPU that computed a job."""

    stack: int  # jobs per step
    bytes_per_member: float
    device_bytes: float
    busy: float  # fraction of the time, in (0, 1]

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any]) -> GpuMeasurement | None:
        """Read the measurement from a task's notes. Returns None if it is incomplete or invalid."""
        numbers = []
        for name in ("stack", "bytes_per_member", "device_bytes", "busy"):
            numbers.append(notes.get(name))
        if not all(isinstance(number, int | float) and 0 < number < float("inf") for number in numbers):
            return None
        stack, bytes_per_member, device_bytes, busy = numbers
        return cls(int(stack), float(bytes_per_member), float(device_bytes), min(1.0, float(busy)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class GpuPacking:
    """The packing of one group of calls: `sharers` calls per GPU, up to `sharer_limit`.

    `stack`, the number of jobs per step, is None until it is measured.
    """

    stack: int | None = None
    sharers: int = 1
    sharer_limit: int = SHARERS

    def slots(self, gpus: int) -> int:
        """Return how many calls of this group can run at once on these GPUs."""
        return gpus * self.sharers

    def calls_in_flight(self, gpus: int) -> int:
        """Return how many calls to keep in flight on these GPUs.

        Once measured, this is one more per GPU than can run.
        """
        return self.slots(gpus) + (0 if self.stack is None or self.sharer_limit == 1 else gpus)

    def useful_gpus(self, jobs: int, seconds: float, existing_gpus: int) -> int:
        """Return how many GPUs are worthwhile for these jobs of `seconds` each. At least the existing ones."""
        if self.stack is None:
            return existing_gpus
        places = jobs / (self.stack * self.sharers)
        worth = jobs * seconds / self.sharers / WORTH_SECONDS
        return max(existing_gpus, min(math.ceil(places), math.ceil(worth), MAX_GPUS_REQUESTED))

    def share(self, ready: int, gpus: int, sent_calls: int = 0) -> int:
        """Return how many of the ready jobs to send in one call.

        `sent_calls` calls of the group are already in flight.
        """
        slots = self.slots(gpus)
        even = -(-ready // max(1, slots - sent_calls))
        if self.stack is None:
            return min(even, UNMEASURED_JOBS)
        # Towards the end, there are two calls per slot, so that no slot waits for a large last call. But a step with
        # half a stack takes nearly as long as one with a full stack.
        return max(min(even, self.stack), min(REFILLS * self.stack, ready // (2 * slots)))

    def with_measurements(self, measured: Sequence[GpuMeasurement], sharers: int) -> GpuPacking:
        """Update the packing with measurements from a call that shared its GPU with `sharers` - 1 others.

        The number of sharers is learned only from calls that ran alone, because the busy fraction of one call cannot be
        measured while others use the same GPU.
        """
        if not measured:
            return self
        stack = max(job.stack for job in measured)
        required_bytes = stack * max(job.bytes_per_member for job in measured)
        fitting = int(min(job.device_bytes for job in measured) // required_bytes)
        busy = sum(job.busy for job in measured) / len(measured)
        if sharers == 1:
            target = round(1 / busy)
        else:
            target = self.sharers
        return replace(self, stack=stack, sharers=max(1, min(target, fitting, self.sharer_limit)))

    def with_fewer_sharers(self, sharers: int) -> GpuPacking:
        """Reduce the packing by one sharer after losing a call that shared its GPU, perhaps for lack of memory."""
        limit = max(1, min(self.sharer_limit, sharers - 1))
        return replace(self, sharer_limit=limit, sharers=min(self.sharers, limit))


class GpuPackings:
    """The packing of every group of calls on every GPU type, with at most `sharer_limit` calls per GPU."""

    def __init__(self, sharer_limit: int) -> None:
        self._sharer_limit = sharer_limit
        # By group (or by task, for groups without a measurement) and GPU type.
        self._measured: dict[tuple[str, str], GpuPacking] = {}

    def packing(self, group: str, gpu_type: str) -> GpuPacking:
        """Return the packing of a group. Until it is measured, use the sharers of the last group of the same task."""
        if (group, gpu_type) in self._measured:
            return self._measured[group, gpu_type]
        task = self._measured.get((_task(group), gpu_type), GpuPacking())
        return GpuPacking(sharers=min(task.sharers, self._sharer_limit), sharer_limit=self._sharer_limit)

    def learn(self, group: str, gpu_type: str, sharers: int, measured: Sequence[GpuMeasurement], too_big: bool) -> None:
        """Update the packing after a call that shared its GPU with `sharers` - 1 others and may have been `too_big`."""
        packing = self.packing(group, gpu_type).with_measurements(measured, sharers)
        if sharers > 1 and too_big:
            packing = packing.with_fewer_sharers(sharers)
        self._measured[group, gpu_type] = self._measured[_task(group), gpu_type] = packing


def _task(group: str) -> str:
    return group.partition("/")[0]


def gpu_fraction(sharers: int) -> float:
    """Return the GPU fraction per call for which exactly `sharers` calls fit on one GPU."""
    return GRAIN // sharers / GRAIN
