"""Decides whether, when and where jobs run. Knows no audit by name.

import orchestrator
run = orchestrator.run("unique_feature", preset="smoke", canaries=4)
run.verdict.sentence
run.summary.to_pandas()
orchestrator.open(run.run).figure("estimates")
best = orchestrator.search("unique_feature", preset="quickstart", over={"dropout": [True, False]}).verdict.setting

Every error that the command line would tell in one line is an `orchestrator.EngramError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import own_packages
from orchestrator.errors import EngramError, SpecError, short_traceback

if TYPE_CHECKING:
    from orchestrator.runs.report import Report
    from orchestrator.spec.specification import Spec

# Not `open`: `import *` is not to hide Python's.
__all__ = ["EngramError", "SpecError", "audits", "plan", "run", "search"]
STORE = "the place of a store, as a path or URI"


@short_traceback
def run(
    audit: str | os.PathLike[str],
    *,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    address: str | None = None,
    gpus: str | None = None,
    gpus_per_job: int | None = None,
    together: int | None = None,
    way: str | None = None,
    tolerate: int | None = None,
    fail_fast: bool | None = None,
    stop_after: str | float | None = None,
    max_gpu_hours: float | None = None,
    max_cost: float | None = None,
    prices: str | os.PathLike[str] | None = None,
    timeout: str | float | None = None,
    keep: str | None = None,
    again: bool | None = None,
    all_cells: bool = False,
    same_code: bool = False,
    mlflow: str | None = None,
    experiment: str | None = None,
    report: bool | None = None,
    show_images: bool | None = None,
    dashboard: bool | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    **fields: Any,
) -> Report:
    """Run an audit (or a YAML file) to its end; its answer is `verdict`, its numbers are the table `summary`.

    Stored results are not computed again. Fields of the config are given by name, nested ones as
    `**{"training.rate": 1e-3}`. The other arguments are those of `engram run`; one that is None is as the file says,
    and without a file as `engram run` has it: no failed job is tolerated, a report is drawn, images of one's own are
    not shown. A sweep, also one from a preset of several cells, has its runs in `cells`; cells of the preset
    whose data are missing are in `left_out`, and refused with `all_cells`. With `same_code`, changes of your own code
    are accepted and stored results of the code before are used. Raises EngramError; SpecError, which is one, for what
    cannot be asked for.
    """
    from orchestrator.runs.lifecycle import prepare_cells, start
    from orchestrator.spec import resolve, specification
    from orchestrator.store import open_store, store_location

    given = {
        "address": address or os.environ.get("RAY_ADDRESS"),
        "gpus": gpus,
        "gpus_per_job": gpus_per_job,
        "together": together,
        "way": way,
        "tolerate": tolerate,
        "fail_fast": fail_fast,
        "stop_after": stop_after,
        "max_gpu_hours": max_gpu_hours,
        "max_cost": max_cost,
        "prices": None if prices is None else os.fspath(prices),
        "timeout": timeout,
        "keep": keep,
        "again": again,
        "mlflow": mlflow or os.environ.get("MLFLOW_TRACKING_URI"),
        "experiment": experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME"),
        "report": report,
        "show_images": show_images,
        "dashboard": dashboard,
    }
    asked = _specification(
        audit, preset, store, fields, specification.sweep_values(sweep), given, observe, all_cells, same_code
    )
    cells = resolve.resolve_cells(asked)
    opened = open_store(store_location(asked.store))
    here, left_out = resolve.pin_available(cells, opened.digests())
    here, lines = prepare_cells(asked, here, opened)
    for line in lines:
        if observe is not None:
            observe({"event": "told", "line": line})
    return start(here, opened, specification.execution(asked), observe, left_out=left_out)


@short_traceback
def search(
    audit: str | os.PathLike[str],
    *,
    over: Mapping[str, str | Sequence[Any]] | None = None,
    preset: str | None = None,
    trials: int | None = None,
    budget: str | float | None = None,
    sampler: str | None = None,
    sampler_seed: int | None = None,
    rungs: Sequence[int] | None = None,
    keep_one_in: int | None = None,
    give_up: float | None = None,
    concurrent: int | None = None,
    store: str | os.PathLike[str] | None = None,
    address: str | None = None,
    gpus: str | None = None,
    gpus_per_job: int | None = None,
    together: int | None = None,
    way: str | None = None,
    tolerate: int | None = None,
    timeout: str | float | None = None,
    mlflow: str | None = None,
    experiment: str | None = None,
    report: bool | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    **fields: Any,
) -> Report:
    """Search the training that memorises least for the utility that is needed; `verdict` is what is recommended.

    over: what may vary, by field: values, or text as the command line takes it, `"log(1e-4..1e-2)"`. The other
    arguments are those of `engram search`, and fields of the config are given as to `run`. None leaves a setting to the
    YAML file, or to its default. The same call continues a search that was stopped; more `trials` go on with it. Its
    tables are `trials` and `front`, its trials' runs are in `cells`. Raises EngramError; SpecError, which is one, for
    what cannot be asked for.
    """
    from dataclasses import replace

    from orchestrator.inspection import status
    from orchestrator.runs.report import open_report
    from orchestrator.searches import definition, searching
    from orchestrator.spec import specification
    from orchestrator.store import open_store, store_location

    settings = specification.search_settings(
        {
            "trials": trials,
            "budget": budget,
            "sampler": sampler,
            "sampler_seed": sampler_seed,
            "rungs": rungs,
            "keep_one_in": keep_one_in,
            "give_up": give_up,
            "concurrent": concurrent,
        }
    )
    given = {
        "address": address or os.environ.get("RAY_ADDRESS"),
        "gpus": gpus,
        "gpus_per_job": gpus_per_job,
        "together": together,
        "way": way,
        "tolerate": tolerate,
        "timeout": timeout,
        "mlflow": mlflow or os.environ.get("MLFLOW_TRACKING_URI"),
        "experiment": experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME"),
        "report": report,
    }
    spec = _specification(audit, preset, store, fields, {}, given, observe)
    found = definition.search_from_spec(spec, specification.search_domains(over), settings)
    how = specification.execution(spec)
    searching.check(how)
    opened = open_store(store_location(spec.store))
    ended = searching.run(found, opened, how, observe)
    searching.publish_results(ended, opened, how, observe)
    return replace(open_report(status.find(opened, ended.name), opened), note=ended.left)


@short_traceback
def open(run: str | os.PathLike[str], store: str | os.PathLike[str] | None = None) -> Report:
    """A run or sweep of the past, by its name or the beginning of it, or by the path of its folder or page.

    `store` is where it lies, by default ENGRAM_STORE or ./engram-store; a path says so itself. One that is still
    running is as far as it has come now. Raises SpecError where there is none.
    """
    from orchestrator.inspection import status
    from orchestrator.runs.report import open_report
    from orchestrator.spec import specification
    from orchestrator.store import is_there, open_store, store_location

    name = specification.name_or_path(run, "run", "the name of a run, or the path of its folder or page")
    location = None if store is None else specification.name_or_path(store, "store", STORE)
    if os.sep in name or os.path.exists(name):  # which, unlike Path's, is False for what can be no path
        place = Path(os.path.expanduser(name)).absolute()
        folder = place.parent if place.is_file() else place
        if location is None and folder.parent.name != "runs":
            raise SpecError(f"{name} is no folder or page of a run; those lie in runs/ of a store, which may be given")
        name, location = folder.name, location or str(folder.parent.parent)
    location = store_location(location)
    if not is_there(location):
        raise SpecError(f"there is no store at {location}; run something first, or give its place as store")
    opened = open_store(location, create=False)
    return open_report(status.find(opened, name), opened)


@short_traceback
def plan(
    audit: str | os.PathLike[str],
    *,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    address: str | None = None,
    all_cells: bool = False,
    same_code: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    """What a run would compute, what of it is stored, and the price of the rest in seconds; starts nothing.

    The arguments are those of `run`, the answer is that of `engram plan --json`. Raises EngramError; SpecError, which
    is one, for what cannot be asked for.
    """
    from orchestrator.inspection.preview import preview
    from orchestrator.spec import specification

    given = {"address": address or os.environ.get("RAY_ADDRESS")}
    return preview(
        _specification(
            audit, preset, store, fields, specification.sweep_values(sweep), given, None, all_cells, same_code
        )
    )


@short_traceback
def audits() -> dict[str, tuple[str, ...]]:
    """The audits that are installed, each with the names of its presets."""
    from orchestrator.spec.audits import find, names

    return {name: tuple(find(name).audit.presets) for name in names()}


def _specification(
    audit: str | os.PathLike[str],
    preset: str | None,
    store: str | os.PathLike[str] | None,
    fields: Mapping[str, Any],
    sweep: Mapping[str, Sequence[Any]],
    execution: Mapping[str, Any],
    observe: object,
    all_cells: object = False,
    same_code: object = False,
) -> Spec:
    """What `run` and `search` are asked for, as a specification. Raises SpecError where an argument is none."""
    from orchestrator.spec import resolve, specification
    from orchestrator.store import given_location

    source = specification.name_or_path(audit, "audit", "the name of an audit, or the path of a YAML file")
    start_from = None if preset is None else specification.name_or_path(preset, "preset", "the name of a preset")
    location = given_location(None if store is None else specification.name_or_path(store, "store", STORE))
    if not isinstance(all_cells, bool):
        raise SpecError(f"all_cells is {all_cells!r}; it must be true or false")
    if not isinstance(same_code, bool):
        raise SpecError(f"same_code is {same_code!r}; it must be true or false")
    flags = specification.Spec(
        source,
        start_from,
        fields,
        sweep,
        specification.execution_settings(execution),
        location,
        all_cells=all_cells,
        same_code=same_code,
    )
    if observe is not None and not callable(observe):
        raise SpecError(f"observe is {observe!r}; it must be a function of one event")
    return resolve.read_spec(source, flags)


own_packages.load("tasks")  # even if a `tasks.py` in the user's working directory comes first on the path
