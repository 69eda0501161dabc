"""The price of a plan: the expected time of its missing jobs on this machine, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.planning.plan import Plan
from orchestrator.pricing import reference as reference_timings
from orchestrator.pricing.estimates import Estimator
from orchestrator.pricing.hardware import DeviceRates, Hardware
from orchestrator.pricing.reference import NOTHING, Reference, Span, load_reference
from orchestrator.quantities import format_duration
from orchestrator.run_folder import other_runs
from tasks.contract.job import marks, may_spread
from tasks.contract.resources import NO_RESOURCES

OWN = 1.25  # error factor of the mean time of jobs that ran on this machine
MAX_NAMED = 3  # maximum number of task names in a line
GPU = 50.0  # maximum speed of a GPU relative to one core
SHARED_WORK = 0.8  # share of their time that several GPUs compute while they train one model; assumed, not measured
OTHER = 1.5  # error factor of a processor other than the one on which jobs were timed


@dataclass(frozen=True)
class Price:
    """Wall-clock seconds for a plan's missing jobs on this machine, or on named hardware.

    `here` covers all jobs with known times. `unknown` lists the tasks about whose time nothing is known, and `between`
    gives bounds on their time in seconds if all of them state their longest time. `ran_here` is true if all timings
    come from this store. `gpu_hours` and `cpu_hours` are the hours that GPUs and processors of named hardware work.
    `device_bytes` is the largest GPU memory of one model of each task, if the hardware is named or its rates are known.
    """

    here: Span
    unknown: tuple[str, ...] = ()
    between: tuple[float, float] | None = None
    ran_here: bool = False
    hardware: str = ""
    gpu_hours: Span = NOTHING
    cpu_hours: Span = NOTHING
    device_bytes: Mapping[str, float] = field(default_factory=dict)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The bounds of the time in seconds. An unknown bound is None."""
        if not self.unknown:
            return self.here.low, self.here.high
        if self.between is None:
            return self.here.low, None
        return self.here.low + self.between[0], self.here.high + self.between[1]


def price_plan(
    plan: Plan,
    missing_keys: Iterable[str],
    mean_seconds: Mapping[str, float],
    slots: int,
    address: str | None = None,
    gpus: int = 0,
    speed_folder: Callable[[], Path | None] = lambda: None,
    gpu: DeviceRates | None = None,
    is_light: bool = False,
) -> Price:
    """Return the price of the missing jobs on `slots` slots of this machine and on its `gpus`.

    `mean_seconds` gives the seconds per group, from runs in this store. Other groups use the reference timings or the
    operations of their jobs, scaled by the machine's speed. The speed is measured unless it is stored in the folder
    returned by `speed_folder`. `gpu` has the rates of this machine's GPUs, if they are known. If
    `is_light`, no step is traced.
    """
    key_list = list(missing_keys)
    reference: Reference | None = None
    factor = spread = 1.0
    spans: dict[str, Span] = {}
    unknown: dict[str, None] = {}
    limited: dict[str, tuple[float, float]] = {}  # the unknown tasks that state their longest time on any machine
    untimed_keys = [key for key in key_list if plan.groups[key] not in mean_seconds]
    if untimed_keys:
        reference = load_reference()
        estimator = Estimator(plan, reference, gpu if gpus else None, gpus, speed_folder, is_light)
        estimator.prepare(untimed_keys)
    for key in key_list:
        seconds = mean_seconds.get(plan.groups[key])
        if seconds is not None:
            spans[key] = Span.with_factor(seconds, OWN)
            continue
        estimate = estimator.estimate(key)
        if estimate is not None:
            slowest = 1 / GPU if gpus and gpu is None and marks(plan.jobs[key].function).gpus else 1.0
            spans[key] = estimate.span.times(1.0, slowest)
        elif longest := _longest(plan, key):
            task = plan.task(key)
            resources = plan.resources.get(key, NO_RESOURCES)
            taken = _units_taken(resources.cpus, slots)
            if gpus and resources.gpus:
                taken = max(taken, slots * _units_taken(resources.gpus, gpus) / gpus)
            low, high = limited.get(task, (0.0, 0.0))
            limited[task] = (low, high + taken * longest)
        else:
            unknown[plan.task(key)] = None
    uses_reference = any(key in spans for key in untimed_keys)
    if uses_reference and reference is not None:
        speed = reference_timings.machine_speed(speed_folder())
        if speed is not None:
            factor, spread = speed.against(reference.speed)
        else:
            factor = 1.0
            spread = 2.0
        for key in untimed_keys:
            is_on_known_gpu = gpus and gpu is not None and marks(plan.jobs[key].function).gpus
            if key in spans and not is_on_known_gpu:
                spans[key] = spans[key].times(factor, 1 / spread, spread)
    ends = []
    for name in ENDS:
        seconds_by_key = {key: getattr(span, name) for key, span in spans.items()}
        ends.append(_wall_clock(plan, seconds_by_key, slots, gpus))
    total = Span(*ends)
    names = tuple(dict.fromkeys((*unknown, *limited)))
    if key_list and (spans or not names):
        total = total + _startup_span(mean_seconds, address, reference, factor)
    bounds = None
    if limited and not unknown:
        low, high = _sum(limited.values())
        bounds = low / slots, high / slots
    device_bytes = _device_bytes(plan, untimed_keys, estimator) if untimed_keys else {}
    return Price(total, names, bounds, not uses_reference and not names, device_bytes=device_bytes)


def price_on(
    plan: Plan,
    missing_keys: Iterable[str],
    mean_seconds: Mapping[str, float],
    hardware: Hardware,
    speed_folder: Callable[[], Path | None] = lambda: None,
    gpus_per_job: int = 1,
) -> Price:
    """Return the price of the missing jobs on named hardware.

    Jobs that use a GPU are estimated from their operations and the GPU's rates, since timings of this store come from
    other machines. Jobs on processors use `mean_seconds` or the reference timings. Each job that uses a GPU has
    `gpus_per_job` GPUs, on which it trains one model together if its task supports this.
    """
    key_list = list(missing_keys)
    gpus = hardware.gpus
    gpu = hardware.device if gpus else None
    estimator = Estimator(plan, load_reference(), gpu, gpus, speed_folder)
    on_gpus = {key for key in key_list if gpus and marks(plan.jobs[key].function).gpus}
    timed = {key: mean_seconds[plan.groups[key]] for key in key_list if plan.groups[key] in mean_seconds}
    estimator.prepare([key for key in key_list if key in on_gpus or key not in timed])
    spans: dict[str, Span] = {}
    together: dict[str, float] = {}
    unknown: dict[str, None] = {}
    for key in key_list:
        if key in timed and key not in on_gpus:
            spans[key] = Span.with_factor(timed[key], OWN * OTHER)
        elif (estimate := estimator.estimate(key)) is None:
            unknown[plan.task(key)] = None
        else:
            spread = 1.0 if key in on_gpus or estimate.is_counted else OTHER
            spans[key] = estimate.span.widen(spread)
            together[key] = estimate.together
            job = plan.jobs[key]
            if key in on_gpus and gpus_per_job > 1 and may_spread(job.function, job.config):
                spans[key] = spans[key].times(1 / (SHARED_WORK * gpus_per_job))
    ends = []
    gpu_seconds = cpu_seconds = NOTHING
    for name in ENDS:
        seconds_by_key = {key: getattr(span, name) for key, span in spans.items()}
        ends.append(_wall_clock(plan, seconds_by_key, hardware.processors, gpus, together, gpus_per_job))
    for key, span in spans.items():
        if key in on_gpus:
            taken = plan.resources.get(key, NO_RESOURCES).gpus or gpus_per_job
            gpu_seconds = gpu_seconds + span.times(_units_taken(taken, gpus))
        else:
            cpu_seconds = cpu_seconds + span
    total = Span(*ends)
    return Price(
        total + START if spans else total,
        tuple(unknown),
        hardware=str(hardware),
        gpu_hours=gpu_seconds.times(1 / 3600),
        cpu_hours=cpu_seconds.times(1 / 3600),
        device_bytes=_device_bytes(plan, key_list, estimator),
    )


def _device_bytes(plan: Plan, keys: Iterable[str], estimator: Estimator) -> dict[str, float]:
    """Return the largest GPU memory of one model of each task, for tasks of which it is known."""
    largest: dict[str, float] = {}
    for key in keys:
        needed = estimator.device_bytes(key)
        if needed is not None:
            task = plan.task(key)
            largest[task] = max(largest.get(task, 0.0), needed)
    return largest


def prices_by_group(plan: Plan, missing_keys: Iterable[str]) -> dict[str, float]:
    """Return the mean seconds of the missing jobs in each group, using the reference timings on the reference machine.

    Groups that contain a job without comparable timings are omitted.
    """
    reference = load_reference()
    spans: dict[str, list[Span | None]] = {}
    for key in missing_keys:
        spans.setdefault(plan.groups[key], []).append(_job_span(plan, key, reference))
    prices: dict[str, float] = {}
    for group, group_spans in spans.items():
        if all(group_spans):
            prices[group] = sum(span.expected for span in group_spans if span) / len(group_spans)
    return prices


def predict_seconds(plan: Plan, missing_keys: Iterable[str], mean_seconds: Mapping[str, float], slots: int) -> float:
    """Return the wall-clock seconds of the missing jobs on `slots` slots, without measuring this machine.

    Groups that are not in `mean_seconds` use the reference timings on the reference machine, and the upper bound of
    jobs without a comparable timing. Returns infinity if a job has no bound.
    """
    reference = load_reference()
    seconds: dict[str, float] = {}
    for key in missing_keys:
        known_seconds = mean_seconds.get(plan.groups[key])
        if known_seconds is not None:
            seconds[key] = known_seconds
        elif (span := _job_span(plan, key, reference)) is not None:
            seconds[key] = span.expected
        elif (bounds := _bounds(plan, key, reference)) is not None:
            seconds[key] = bounds[1]
        else:
            return math.inf
    return _wall_clock(plan, seconds, slots)


def highest_price(plan: Plan, group: str) -> float | None:
    """Return the maximum seconds for a job in this group, using the reference timings on the reference machine.

    Returns None if a job has no comparable timing.
    """
    reference = load_reference()
    highest = 0.0
    for key in plan.jobs:
        if plan.groups[key] != group:
            continue
        span = _job_span(plan, key, reference)
        if span is not None:
            highest = max(highest, span.high)
            continue
        bounds = _bounds(plan, key, reference)
        if bounds is None:
            return None
        highest = max(highest, bounds[1])
    return highest


START = Span(15.0, 5.0, 45.0)  # seconds to start Ray, workers and CUDA on a machine
ENDS = ("expected", "low", "high")
ALONE: Mapping[str, float] = {}


def _job_span(plan: Plan, key: str, reference: Reference) -> Span | None:
    """Return the seconds for a job from the reference timings, or None without a comparable timing."""
    work = plan.work(key)
    if work is None:
        return reference.estimate_task(plan.task(key), len(plan.inputs[key]))
    amounts_span = reference.estimate_work(work.amounts)
    if amounts_span is None:  # a task whose units were never timed, but that was timed as a whole
        return reference.estimate_task(plan.task(key), len(plan.inputs[key]))
    return amounts_span.times(1.0, work.least, work.most)


def _longest(plan: Plan, key: str) -> float:
    """Return the longest time in seconds that a job states, or 0."""
    return plan.resources.get(key, NO_RESOURCES).time


def _units_taken(stated: int, units: int) -> float:
    """Return how many of a machine's processors or GPUs a job takes, with those that are too few for another one."""
    return units / max(1, units // max(1, stated))


def _bounds(plan: Plan, key: str, reference: Reference) -> tuple[float, float] | None:
    """Bound a job's seconds by the time that it states, or else by similar jobs. Returns None if nothing is known."""
    bounds = _bounds_of_similar(plan, key, reference)
    longest = _longest(plan, key)
    if longest:
        low = 0.0 if bounds is None else min(bounds[0], longest)
        return (low, longest)
    return bounds


def _bounds_of_similar(plan: Plan, key: str, reference: Reference) -> tuple[float, float] | None:
    """Bound a job's seconds by any training of its size or any task of its audit. Returns None if nothing is known."""
    mark = marks(plan.jobs[key].function)
    if mark.work is None:
        return reference.bounds_of_family(mark.name, len(plan.inputs[key]))
    work = mark.work(plan.jobs[key].config)
    unit_bounds = []
    for unit, count in work.amounts.items():
        unit_bounds.append(reference.bounds(unit, count))
    low = sum(bound[0] for bound in unit_bounds if bound)
    high = sum(bound[1] for bound in unit_bounds if bound)
    if all(unit_bounds):
        return (low * work.least, high * work.most)
    return None


def _sum(bounds: Collection[tuple[float, float]]) -> tuple[float, float]:
    return sum(low for low, _ in bounds), sum(high for _, high in bounds)


def _startup_span(
    mean_seconds: Mapping[str, float], address: str | None, reference: Reference | None, factor: float
) -> Span:
    """Return the seconds needed to start and stop the executor."""
    group = other_runs.startup_group(address)
    if group in mean_seconds:
        return Span.with_factor(mean_seconds[group], OWN)
    if reference is not None:
        return Span.with_factor(reference.executor_seconds.get(group, 0.0) * factor, 2.0)
    return NOTHING


def _wall_clock(
    plan: Plan,
    seconds: Mapping[str, float],
    slots: int,
    gpus: int = 0,
    together: Mapping[str, float] = ALONE,
    gpus_per_job: int = 1,
) -> float:
    """Return the wall-clock seconds of these jobs on `slots` slots.

    This is the maximum of three values: the total work divided by the slots, the work of GPU jobs divided by `gpus` (if
    any), and the longest path of dependent jobs. A job that is trained `together` with others ends with them.
    """
    work = on_gpus = 0.0
    path: dict[str, float] = {}
    for key, duration in seconds.items():  # each key follows its dependencies
        resources = plan.resources.get(key, NO_RESOURCES)
        if gpus and (resources.gpus or marks(plan.jobs[key].function).gpus):
            on_gpus += duration * _units_taken(resources.gpus or gpus_per_job, gpus)
            if resources.cpus:
                work += duration * _units_taken(resources.cpus, slots)
        else:
            work += duration * _units_taken(resources.cpus, slots)
        before = max((path.get(below, 0.0) for below in plan.dependencies(key)), default=0.0)
        path[key] = before + duration * together.get(key, 1.0)
    if path:
        return max(work / slots, on_gpus / max(1, gpus), *path.values())
    return 0.0


def describe_price(price: Price, slots: int) -> str:
    """Describe the price, such as `42 min here, 30 to 60, on 2 workers`, and list the tasks without a known time."""
    workers = f"on {slots} worker{'s' if slots != 1 else ''}"
    span = price.here
    hidden_count = len(price.unknown) - MAX_NAMED
    names = ", ".join(price.unknown[:MAX_NAMED]) + (f" and {hidden_count} more" if hidden_count > 0 else "")
    reason = f"nothing is known about the time of {names}"
    if price.hardware:
        estimate = f"{_format_bounds(span, f'on {price.hardware}')}"
        return f"{estimate}, without {names}: {reason}" if price.unknown else estimate
    if not price.unknown:
        if price.ran_here:
            estimate = f"{format_duration(span.expected)} here"
        else:
            estimate = _format_bounds(span)
        return f"{estimate}, {workers}"
    low, high = price.bounds
    if low is not None and high is not None:
        return f"from {format_duration(low)} to {format_duration(high)} {workers}: {reason}"
    if span.low >= 1:
        return f"at least {format_duration(span.low)} {workers}: {reason}"
    return f"unknown: {reason}"


def describe_hours(hours: Span) -> str:
    """Describe hours of GPUs or processors, or a cost, such as `42 (21 to 84)` or `under 0.01`, without their unit."""
    if hours.high < 0.01:
        return "under 0.01"
    digits = 0 if hours.low >= 10 else 1 if hours.low >= 1 else 2
    return f"{hours.expected:,.{digits}f} ({hours.low:,.{digits}f} to {hours.high:,.{digits}f})"


def _format_bounds(span: Span, place: str = "here") -> str:
    """Format a span as `42 min here, 30 to 60`, with the bounds in the unit of the expected time."""
    for unit, seconds in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if span.expected >= 2 * seconds or unit == "s":
            low = span.low / seconds
            middle = span.expected / seconds
            high = span.high / seconds
            digits = 0 if low >= 3 or unit == "s" else 1
            return f"{middle:.{digits}f} {unit} {place}, {low:.{digits}f} to {max(high, 1.0):.{digits}f}"
    raise AssertionError(unit)
