"""A preview of a specification or preset: its jobs, the stored results, the data it needs, and its run time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, StoreError
from orchestrator.executors import environment
from orchestrator.inspection.class_numbers import requested_classes
from orchestrator.planning.extras import check_extras, required_extras
from orchestrator.planning.identity import run_id
from orchestrator.planning.idle_fields import describe_idle_fields, find_idle_fields
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.planning.undivided import describe_undivided
from orchestrator.pricing.hardware import DeviceRates, Hardware, parse_hardware, rates_of_model
from orchestrator.pricing.place import choose_address, device_memory
from orchestrator.pricing.price import Price, describe_hours, describe_price, price_on, price_plan
from orchestrator.quantities import format_count, format_resources, format_size
from orchestrator.run_folder import code_changes, other_runs
from orchestrator.run_folder.code_changes import CodeChange
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.looks import expected_look, read_past_runs
from orchestrator.spec import audits
from orchestrator.spec.audits import RegisteredAudit
from orchestrator.spec.config_parts import differing_paths, plain, walk
from orchestrator.spec.field_descriptions import value_text
from orchestrator.spec.fields import text
from orchestrator.spec.options import Execution, GpusName
from orchestrator.spec.resolve import (
    Cell,
    describe_data,
    left_out_as_json,
    pin_available,
    pin_cells,
    pin_one,
    resolve_cells,
)
from orchestrator.spec.specification import Spec, execution
from orchestrator.spec.yaml_file import Prices
from orchestrator.store import Store, is_there, open_store, store_location
from tasks.contract.extras import Extra
from tasks.contract.job import marks
from tasks.contract.pinnable import Pinnable
from tasks.datasets.dataset import Dataset
from tasks.datasets.places import use_outlines


def preview(spec: Spec, on: str | None = None, prices: Prices | None = None) -> dict[str, Any]:
    """Preview a specification, on this machine or `on` named hardware such as `8xH100`, with its cost at `prices`.

    Named hardware may be elsewhere, so that data and models that are missing here count with their published sizes. The
    result is then that of `preview_here`, with `hardware`: its name, its GPU and processor hours, their cost, and both
    in a line.
    """
    if on is None:
        return preview_here(spec)
    with use_outlines(everything=True):
        return preview_here(spec, parse_hardware(on, environment.count_processors()), prices)


def preview_here(spec: Spec, hardware: Hardware | None = None, prices: Prices | None = None) -> dict[str, Any]:
    """Count the jobs per task (planned, stored, missing), estimate the time of the missing ones, and list the cells.

    `expected_seconds` is None if part of the plan is unlike anything ever timed, in which case `unknown` lists its
    tasks. The time is between `seconds_low` and `seconds_high`, if these are known. All numbers refer to `cells`.
    `resources` lists the jobs that need particular resources, and `device_memory` the GPU memory of one model of each
    task, if the GPU is known or named.
    `left_out` lists the preset cells whose data are missing. `classes` explains the class numbers in the settings.
    `code_changes` lists user files that changed since an earlier run and the cost of each change. `warnings` contains
    one line for each setting without effect, each peculiarity of the data, and each cell that cannot answer *not
    detected*. `power` states the power of the audit, cell by cell. Does not create a store.
    """
    location = store_location(spec.store)
    cells = resolve_cells(spec)
    execution_options = execution(spec)
    store = None
    if is_there(location):
        store = open_store(location, create=False)
    cached_digests: MutableMapping[str, str] = {} if store is None else store.digests()
    if hardware is not None:
        cached_digests = {**cached_digests}  # placeholders must not enter the cache
    cells, left_out = pin_available(cells, cached_digests)
    if store is None:
        changes = []
    else:
        changes = code_changes.find_changes(cells, store)
    if spec.same_code:
        cells = [code_changes.accept(cell, changes) for cell in cells]
    plans = [plan_of(cell) for cell in cells]
    combined_plan = Plan.union(plans)
    keys = set() if store is None else store.keys()
    stored_keys = set(combined_plan.jobs) & keys
    missing_keys = combined_plan.missing(stored_keys)
    slots = slots_at(execution_options.address)
    if hardware is None:
        check_extras(combined_plan, lambda: stored_keys, execution_options.address)
    price = _price_of(combined_plan, missing_keys, store, execution_options, hardware)
    device = rates_of_model(environment.gpu_model()) if hardware is None else hardware.device
    idle_fields = find_idle_fields(spec, cached_digests)
    names = [run_id(cell.audit, list(plan.jobs), cell.config) for cell, plan in zip(cells, plans, strict=True)]
    looks = _expected_looks(store, names, cells, plans)

    def describe_seconds(plan: Plan, keys: Sequence[str]) -> str:
        description = describe_price(_price_of(plan, keys, store, execution_options), slots)
        return description.partition(":")[0]

    counts = combined_plan.count()
    stored_counts = combined_plan.count(stored_keys)
    missing_counts = combined_plan.count(missing_keys)
    return {
        "audit": spec.audit,
        "preset": spec.preset,
        "planned": len(combined_plan.jobs),
        "stored": len(stored_keys),
        "missing": len(missing_keys),
        **_price_json(price, slots),
        "slots": slots,
        **({} if hardware is None else {"hardware": _hardware_json(price, prices)}),
        "tasks": [
            {"task": task, "planned": count, "stored": stored_counts[task], "missing": missing_counts[task]}
            for task, count in counts.items()
        ],
        "resources": _describe_resources(combined_plan),
        "device_memory": describe_device_memory(price.device_bytes, device, execution_options.gpus_per_job),
        "cells": [
            {"run": name, "setting": dict(cell.setting), "planned": len(plan.jobs), "look": look}
            for name, cell, plan, look in zip(names, cells, plans, looks, strict=True)
        ],
        "left_out": left_out_as_json(cells, left_out),
        "classes": requested_classes(cell.config for cell in cells),
        "idle_fields": idle_fields,
        "code_changes": [
            {**asdict(change), **_cost(change, cells, plans, keys, describe_seconds)} for change in changes
        ],
        "power": _describe_power(cells),
        "warnings": [
            *([describe_idle_fields(idle_fields, spec)] if idle_fields else []),
            *(describe_data(cells, cached_digests, device_memory()) if hardware is None else ()),
            *describe_undivided(combined_plan, missing_keys, execution_options),
            *_warn_of_power(cells),
            *_describe_looks(names, looks),
        ],
    }


def _describe_resources(plan: Plan) -> list[dict[str, Any]]:
    """Count the jobs that need particular resources, by task and resources, as numbers and as text."""
    counts = Counter((plan.task(key), resources) for key, resources in plan.resources.items())
    descriptions = []
    for (task, resources), jobs in counts.items():
        needed = {
            "gpus": resources.gpus,
            "cpus": resources.cpus,
            "memory_bytes": int(resources.memory),
            "seconds": float(resources.time),
        }
        line = f"{task}: {format_count(jobs, 'job')}, each with {format_resources(resources)}"
        descriptions.append({"task": task, "jobs": jobs, **needed, "line": line})
    return descriptions


def describe_device_memory(
    device_bytes: Mapping[str, float], device: DeviceRates | None, gpus_per_job: int
) -> list[dict[str, Any]]:
    """Return the estimated GPU memory of one model of each task, as numbers and as text, with a remedy for too much."""
    descriptions = []
    for task, needed in sorted(device_bytes.items(), key=lambda item: -item[1]):
        line = f"{task}: about {format_size(needed)} of GPU memory for one model"
        if device is not None and needed > device.memory * gpus_per_job:
            gpus = f"one {device.name} has" if gpus_per_job == 1 else f"{gpus_per_job} {device.name} have"
            line += (
                f", more than the {format_size(device.memory * gpus_per_job)} that {gpus}: lower the batch, set "
                "precision=bfloat16, raise accumulate (encoders and language models), or train each model on several "
                "GPUs with --gpus-per-job"
            )
        descriptions.append({"task": task, "bytes": needed, "line": line})
    return descriptions


def _describe_power(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the distinct statements about the power of the cells' audits, as numbers and as text."""
    statements: dict[str, dict[str, Any]] = {}
    for cell in cells:
        for power in audits.find(cell.audit).audit.describe_power(cell.config):
            statements.setdefault(power.line, {**asdict(power), "line": power.line})
    return list(statements.values())


def _warn_of_power(cells: Sequence[Cell]) -> list[str]:
    """Return the distinct warnings about cells that cannot answer *not detected*, each with a remedy."""
    lines: dict[str, None] = {}
    for cell in cells:
        lines |= dict.fromkeys(audits.find(cell.audit).audit.warn_of_power(cell.config))
    return list(lines)


def _expected_looks(
    store: Store | None, names: Sequence[str], cells: Sequence[Cell], plans: Sequence[Plan]
) -> list[int]:
    """Return how many times each run's question will have been examined. Without a store, this is 1."""
    if store is None:
        return [1] * len(names)
    runs = store.folder("runs")
    past_runs = cache(read_past_runs)
    looks = []
    for name, cell, plan in zip(names, cells, plans, strict=True):
        looks.append(expected_look(cell, plan, Journal(runs / name), past_runs(cell.audit, runs)))
    return looks


def _describe_looks(names: Sequence[str], looks: Sequence[int]) -> Iterator[str]:
    """Yield one line for each run that is a second or later look at its question."""
    for name, look in zip(names, looks, strict=True):
        if look > 1:
            yield (
                f"{name} is look {look} at its question: {look - 1} answered runs of this store share its trainings, "
                "or its data and model. Errors add up over looks, so each look may use half the error of the previous "
                "one to answer not detected"
            )


def _cost(
    change: CodeChange,
    cells: Sequence[Cell],
    plans: Sequence[Plan],
    keys: Set[str],
    describe_seconds: Callable[[Plan, Sequence[str]], str],
) -> dict[str, Any]:
    """Return the cost of a code change: how many stored jobs would be computed again, and how long this takes."""
    earlier_plans: list[Plan] = []
    lost_keys: list[str] = []
    for cell, plan in zip(cells, plans, strict=True):
        earlier_plan = plan_of(code_changes.accept(replace(cell, stand_ins={}, accepted=()), [change]))
        earlier_plans.append(earlier_plan)
        # Both plans have the same jobs in the same order, under different keys.
        pairs = zip(earlier_plan.jobs, plan.jobs, strict=False)
        lost_keys += [old for old, new in pairs if old in keys and new not in keys]
    if any(entry["code"] == change.code for cell in cells for entry in cell.accepted):
        effect = "accepted as equivalent: its results are reused"
    elif lost_keys:
        jobs = sum(len(plan.jobs) for plan in plans)
        seconds = describe_seconds(Plan.union(earlier_plans), lost_keys)  # for the earlier code, which has timings
        effect = (
            f"{len(lost_keys)} of {jobs} jobs would be computed again ({seconds}); --same-code reuses the stored "
            "results"
        )
    else:
        effect = "no stored result of the earlier code belongs to this plan"
    return {"recomputed": len(lost_keys), "line": f"{change.describe()}; {effect}"}


def _price_of(
    plan: Plan,
    missing_keys: Collection[str],
    store: Store | None,
    execution_options: Execution,
    hardware: Hardware | None = None,
    is_light: bool = False,
) -> Price:
    """Estimate the time of a plan's missing jobs on this machine or named hardware.

    Uses timings in the store if there are any. If `is_light`, no step is traced.
    """
    if store is None:
        timings = {}
    else:
        timings = other_runs.mean_seconds(store.folder("runs"))

    def speed_folder() -> Path | None:
        """Return the folder that stores machine speeds, or None if the store is not writable."""
        try:
            if store is None:
                return None
            return store.folder("speed")
        except StoreError:
            return None

    if hardware is not None:
        return price_on(plan, missing_keys, timings, hardware, speed_folder, execution_options.gpus_per_job)
    address = choose_address(execution_options, plan, missing_keys, timings)
    gpus = gpus_at(address, execution_options.gpus)
    gpu = rates_of_model(environment.gpu_model()) if gpus else None
    return price_plan(plan, missing_keys, timings, slots_at(address), address, gpus, speed_folder, gpu, is_light)


def _price_json(price: Price, slots: int) -> dict[str, Any]:
    """Return a price as numbers and as text."""
    low, high = price.bounds
    return {
        "expected_seconds": None if price.unknown else price.here.expected,
        "seconds_low": low,
        "seconds_high": high,
        "unknown": list(price.unknown),
        "time": describe_price(price, slots),
    }


def _hardware_json(price: Price, prices: Prices | None) -> dict[str, Any]:
    """Return the hours and the cost of a price on named hardware, as numbers and as a line."""
    hours = {"gpu_hours": price.gpu_hours, "cpu_hours": price.cpu_hours}
    result: dict[str, Any] = {"name": price.hardware}
    for name, span in hours.items():
        result |= {name: span.expected, f"{name}_low": span.low, f"{name}_high": span.high}
    line = f"{describe_hours(price.gpu_hours)} GPU hours, {describe_hours(price.cpu_hours)} processor hours"
    if prices is not None:
        cost = price.gpu_hours.times(prices.gpu) + price.cpu_hours.times(prices.cpu)
        result |= {"cost": cost.expected, "cost_low": cost.low, "cost_high": cost.high, "currency": prices.currency}
        line += f"; cost: {describe_hours(cost)} {prices.currency}".rstrip()
    return {**result, "line": f"{price.hardware}: {line}"}


def gpus_at(address: str | None, gpu_setting: GpusName = "auto") -> int:
    """Return the number of GPUs on this machine that calls can use. Returns 0 if `gpu_setting` is `none`."""
    if gpu_setting == "none" or address == "pool":
        return 0
    if address == "none":
        return min(1, environment.count_gpus())
    return environment.count_gpus()


def slots_at(address: str | None) -> int:
    """Return the number of simultaneous calls: 1 in this process, otherwise one per processor of this machine.

    A remote cluster is not queried, because a preview opens no connections.
    """
    if address == "none":
        return 1
    return environment.count_processors()


@dataclass(frozen=True)
class DescribedPreset:
    """A preset of an audit.

    `settings` lists the fields, in command-line syntax, in which its cells differ from the defaults. `data` maps each
    data set, and every other missing item, to its availability. `extras` maps each additional package to whether it is
    installed. `links` counts the parts that trainings are divided into, each of which continues the previous one.
    `jobs`, `trainings`, `links` and `price` are None if data are missing and planning needs to know more about them
    than the published size.
    """

    name: str
    repeats: str
    cells: int
    settings: Mapping[str, tuple[str, ...]]
    data: Mapping[str, bool]
    extras: Mapping[str, bool]
    jobs: int | None = None
    trainings: int | None = None
    links: int | None = None
    price: Mapping[str, Any] | None = None


def described_presets(
    entry: RegisteredAudit, store: Store | None, names: tuple[str, ...] = ()
) -> Iterator[DescribedPreset]:
    """Yield the audit's presets, or only those in `names`.

    If a store is given, times are estimated from its timings.
    """
    cached_digests: MutableMapping[str, str] = {} if store is None else store.digests()
    for name in names or tuple(entry.audit.presets):
        yield _describe_preset(entry, name, store, cached_digests)


def _describe_preset(
    entry: RegisteredAudit, name: str, store: Store | None, cached_digests: MutableMapping[str, str]
) -> DescribedPreset:
    audit = entry.audit
    cells = audit.cells(name)
    data: dict[str, bool] = {}
    for cell in cells:
        data.update(_required_data(cell, cached_digests))
    repeats = audit.wording.repeats.get(name, "")
    settings = _settings(audit, cells)
    preset = DescribedPreset(name, repeats, len(cells), settings, data, _packages(required_extras(cells)))
    has_all_data = all(data.values())
    with nullcontext() if has_all_data else use_outlines():
        try:
            # Placeholders for missing data must not enter the cache.
            pinned_cells = pin_cells(
                [Cell(entry.name, cell, name) for cell in cells], cached_digests if has_all_data else {**cached_digests}
            )
            combined_plan = Plan.union([plan_of(cell) for cell in pinned_cells])
        except EngramError:  # `engram run --dry-run` reports the error
            return preset
        if store is None:
            stored_keys = set()
        else:
            stored_keys = store.keys()
        price = _price_json(
            _price_of(combined_plan, combined_plan.missing(stored_keys), store, Execution(), is_light=True),
            slots_at(None),
        )
    links = sum(marks(job.function).trains for job in combined_plan.jobs.values())
    trainings = sum(
        marks(job.function).trains for key, job in combined_plan.jobs.items() if key not in combined_plan.after
    )
    extras = _packages(required_extras(job.config for job in combined_plan.jobs.values()))
    return replace(preset, extras=extras, jobs=len(combined_plan.jobs), trainings=trainings, links=links, price=price)


def _packages(extras: Iterable[Extra]) -> dict[str, bool]:
    """Map each package to whether it is installed."""
    return {extra.package: extra.is_installed for extra in dict.fromkeys(extras)}


def _required_data(config: Any, cached_digests: MutableMapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield every data set in the configuration with its availability, and every other missing item."""
    for _, part in walk(config):
        if not isinstance(part, Dataset | Pinnable):
            continue
        try:
            pin_one(part, cached_digests)
            is_available = True
        except EngramError:
            is_available = False
        if isinstance(part, Dataset) or not is_available:
            yield str(part), is_available


def _settings(audit: Any, cells: tuple[Any, ...]) -> dict[str, tuple[str, ...]]:
    """Map each field in which any cell differs from the defaults, by dotted path, to its values in the cells."""
    try:
        default = audit.config()
    except (TypeError, ValueError):
        return {}
    forms = plain(default)
    paths = dict.fromkeys(path for cell in cells for path in differing_paths([forms, plain(cell)]))
    return {path: tuple(dict.fromkeys(_values_at(cells, path))) for path in paths}


def _values_at(cells: Iterable[Any], path: str) -> Iterator[str]:
    """Yield the values of a field as text, for the cells that have it."""
    for cell in cells:
        value = cell
        for name in path.split("."):
            if not hasattr(value, name):
                break
            value = getattr(value, name)
        else:
            yield value_text(value) or text(plain(value))
