"""The number of calls per GPU and of jobs per call, from examples that can be counted by hand."""

from __future__ import annotations

import pytest

from orchestrator.executors.gpu_packing import (
    MAX_GPUS_REQUESTED,
    REFILLS,
    SHARERS,
    UNMEASURED_JOBS,
    GpuMeasurement,
    GpuPacking,
    gpu_fraction,
)

GB = 1e9


def measured(stack: int = 32, busy: float = 0.9, member: float = 0.01 * GB, device: float = 100 * GB) -> GpuMeasurement:
    return GpuMeasurement(stack, member, device, busy)


@pytest.mark.parametrize(
    ("busy", "sharers"), [(1.0, 1), (0.9, 1), (0.7, 1), (0.6, 2), (0.5, 2), (0.35, 3), (0.25, 4), (0.01, SHARERS)]
)
def test_sharers_fill_the_gpu(busy: float, sharers: int) -> None:
    assert sharers == GpuPacking().with_measurements([measured(busy=busy)], 1).sharers


def test_memory_limits_the_sharers() -> None:
    fact = measured(stack=40, busy=0.1, member=1.0 * GB, device=100 * GB)
    assert GpuPacking().with_measurements([fact], 1).sharers == 2
    assert GpuPacking().with_measurements([measured(stack=200, busy=0.1, member=1.0 * GB)], 1).sharers == 1


def test_largest_stack_and_mean_busy_time_count() -> None:
    """The last trainings of a call have fewer neighbours than the first."""
    learned = GpuPacking().with_measurements([measured(32, 0.6), measured(32, 0.6), measured(3, 0.3)], 1)
    assert learned.stack == 32
    assert learned.sharers == 2


def test_shared_call_never_raises_the_sharers() -> None:
    alone = GpuPacking().with_measurements([measured(busy=0.4)], 1)
    assert alone.sharers == 2
    assert alone.with_measurements([measured(busy=1.0)], 2).sharers == 2
    assert alone.with_measurements([measured(stack=80, member=1.0 * GB)], 2).sharers == 1  # but its use of memory does


def test_lost_call_lowers_the_sharers_permanently() -> None:
    before = GpuPacking().with_measurements([measured(busy=0.25)], 1)
    after = before.with_fewer_sharers(4)
    assert before.sharers == 4
    assert after.sharers == 3
    assert after == after.with_fewer_sharers(4)
    assert after.with_measurements([measured(busy=0.25)], 1).sharers == 3
    assert after.with_fewer_sharers(2).with_fewer_sharers(2).with_measurements([measured(busy=0.25)], 1).sharers == 1


def test_call_without_measurements_changes_nothing() -> None:
    assert GpuPacking() == GpuPacking().with_measurements([], 1)


@pytest.mark.parametrize(
    ("ready", "gpus", "sizes"),
    [(300, 1, [300]), (300, 2, [150, 150]), (301, 4, [76, 75, 75, 75]), (3, 4, [1, 1, 1]), (2000, 2, [512, 512])],
)
def test_unmeasured_jobs_are_divided_evenly(ready: int, gpus: int, sizes: list[int]) -> None:
    filling = GpuPacking()
    call_sizes = []
    while ready and len(call_sizes) < filling.calls_in_flight(gpus):
        call_sizes.append(filling.share(ready, gpus, len(call_sizes)))
        ready -= call_sizes[-1]
    assert sizes == call_sizes
    assert max(call_sizes) <= UNMEASURED_JOBS


def test_measured_call_refills_stacks_and_shrinks_towards_end() -> None:
    filling = GpuPacking(stack=32, sharers=2)
    assert filling.share(10_000, 2) == 32 * REFILLS
    assert filling.share(600, 2) == 75  # 4 slots, with two calls left for each
    assert filling.share(200, 2) == 32  # at least a whole stack while each slot gets one
    assert filling.share(100, 2) == 25


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("sharers", [1, 2, 3, 4])
def test_every_ready_job_is_sent(gpus: int, sharers: int) -> None:
    for stack in (None, 1, 7, 400):
        for sent_count in range(3 * gpus):
            for ready in (1, 2, 9, 500, 5000):
                assert 1 <= GpuPacking(stack, sharers).share(ready, gpus, sent_count) <= ready


def test_one_extra_call_per_gpu_is_in_flight() -> None:
    assert GpuPacking().calls_in_flight(2) == 2
    assert GpuPacking(stack=8, sharers=3).calls_in_flight(2) == 2 * 3 + 2
    assert GpuPacking(stack=8, sharer_limit=1).calls_in_flight(1) == 1  # no call waits in this process


def test_gpu_fraction_fits_the_number_of_sharers() -> None:
    for sharers in range(1, SHARERS + 1):
        assert sharers == int(1.0 / gpu_fraction(sharers))
        assert gpu_fraction(sharers) == round(gpu_fraction(sharers), 4)  # Ray's grain


@pytest.mark.parametrize(
    ("jobs", "seconds", "present_gpus", "useful"),
    [
        (1000, 600.0, 0, 16),  # 64 at a time on each
        (1000, 6.0, 0, 5),  # 3,000 s of two calls at a time, ten minutes for each GPU
        (1000, 0.1, 0, 1),
        (1000, 6.0, 8, 8),
        (10**6, 600.0, 1, MAX_GPUS_REQUESTED),
        (0, 6.0, 2, 2),
    ],
)
def test_useful_gpus_are_filled_for_ten_minutes(jobs: int, seconds: float, present_gpus: int, useful: int) -> None:
    assert useful == GpuPacking(stack=32, sharers=2).useful_gpus(jobs, seconds, present_gpus)
    assert present_gpus == GpuPacking().useful_gpus(jobs, seconds, present_gpus)  # unmeasured: keep the present number


@pytest.mark.parametrize(
    "lacking",
    [
        {"busy": None}, {"busy": 0.0}, {"busy": float("nan")}, {"stack": 0}, {"stack": "8"}, {"device_bytes": 0},
        {"bytes_per_member": float("inf")},
    ],
)  # fmt: skip
def test_incomplete_notes_are_no_measurement(lacking: dict[str, object]) -> None:
    notes = {"way": "graph", "stack": 8, "bytes_per_member": 10, "device_bytes": 1000, "busy": 1.02}
    assert GpuMeasurement(8, 10.0, 1000.0, 1.0) == GpuMeasurement.from_notes(notes)
    assert GpuMeasurement.from_notes(notes | lacking) is None
    assert GpuMeasurement.from_notes({}) is None
