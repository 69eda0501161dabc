"""The Python API: `engram.run`, `search`, `open`, `plan`, `audit`, `membership`, `audits` and `runs`.

`run`, `search` and `plan` accept the options declared in `orchestrator.spec.options` as keyword arguments. Any other
keyword is a field of the audit's configuration. Their signatures list all options for `help` and notebooks. Type
checkers and editors read the same signatures from `orchestrator/__init__.pyi`, which `make docs` generates.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.audit_settings import AuditSettings, settings_of
from orchestrator.errors import SpecError, short_traceback
from orchestrator.spec.options import EXECUTION, SEARCH, Option, read_options

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.runs.report import Report
    from orchestrator.spec.specification import Spec
    from tasks.programs.function import TrainingJob

Function = TypeVar("Function", bound=Callable[..., Any])

STORE = "the path or URI of a store"
SEARCH_RUN_OPTIONS = {name: option for name, option in EXECUTION.items() if "search" not in option.not_of}
PLAN_OPTIONS = {name: EXECUTION[name] for name in ("address", "all_cells", "same_code", "download")}


def _name_options(*groups: Mapping[str, Option]) -> Callable[[Function], Function]:
    """Add these options to the signature of a function that accepts them, and audit fields, as `**keywords`."""

    def sign(function: Function) -> Function:
        *parameters, keywords = inspect.signature(function).parameters.values()
        for group in groups:
            for name, option in group.items():
                parameters.append(
                    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option.python_type)
                )
        parameters.append(keywords.replace(name="fields"))
        result = inspect.signature(function).return_annotation
        function.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
        return function

    return sign


def _take(options: Mapping[str, Option], keywords: dict[str, Any]) -> dict[str, Any]:
    """Move the values of these options out of the keywords. A missing string is read from its environment variable."""
    values = {}
    for name, option in options.items():
        value = keywords.pop(name, None)
        if option.variable is not None and option.kind is str:
            value = value or os.environ.get(option.variable)
        values[name] = value
    return values


@short_traceback
@_name_options(EXECUTION)
def run(
    audit: str | os.PathLike[str] | AuditSettings | Any,
    *,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    **keywords: Any,
) -> Report:
    """Run an audit, or a YAML file, to completion.

    `audit` is the name of an audit, the path of a YAML file, settings such as `engram.UniqueFeature(canaries=4)`, or a
    configuration, such as that of an earlier report.

    In the returned report, `verdict` holds the answer and the table `summary` its numbers. Stored results are reused.
    Configuration fields are passed as keywords, nested ones as `**{"training.rate": 1e-3}`. The remaining keywords are
    the options of `engram run`. An option that is None keeps its value from the YAML file or, without a file, its
    default: no failed job is tolerated, a report is drawn, and the user's own images are not shown.

    `cells` contains the runs of a sweep, or of a preset with several cells. `left_out` contains cells whose data are
    missing; with `all_cells`, the run is refused instead. With `same_code`, changes to the user's code are accepted and
    results from the earlier code are reused.

    Raises EngramError, or its subclass SpecError for invalid arguments.
    """
    from orchestrator.spec import specification

    execution = _take(EXECUTION, keywords)
    spec = _specification(audit, preset, store, keywords, specification.sweep_values(sweep), execution, observe)
    return _run_spec(spec, observe)


def _run_spec(spec: Spec, observe: Callable[[Mapping[str, Any]], None] | None) -> Report:
    """Run a specification to completion. `observe` also receives the lines that the command prints before the run."""
    from orchestrator.runs.lifecycle import prepare_cells, start
    from orchestrator.spec import resolve, specification
    from orchestrator.store import open_store, store_location

    cells = resolve.resolve_cells(spec)
    opened_store = open_store(store_location(spec.store))
    available_cells, left_out = resolve.pin_available(cells, opened_store.digests())
    available_cells, lines = prepare_cells(spec, available_cells, opened_store)
    for line in lines:
        if observe is not None:
            observe({"event": "told", "line": line})
    return start(available_cells, opened_store, specification.execution(spec), observe, left_out=left_out)


@short_traceback
@_name_options(EXECUTION)
def audit(
    model: Any,
    members: Any,
    nonmembers: Any,
    *,
    references: int | None = None,
    network: str | None = None,
    size: str | None = None,
    label: str | None = None,
    batch: int = 256,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    **keywords: Any,
) -> Report:
    """Test whether a model treats its training data differently from other data, with a blind control on the two sets.

    `model` is a torch module, which is put into evaluation mode, a scikit-learn estimator with `predict_proba`, a
    function of a batch of images, or the path of a model file (`docs/external_models.md`). Except for estimators, it
    returns logits (batch, classes): as a tensor or array, as `.logits`, or as the only output of this shape.

    `members` and `nonmembers` are (images, labels) as arrays, tensors or lists; a data set or data loader of such
    pairs; a pandas data frame with a column `label`; or the folder or name of a data set, such as `folder:mine#64x64`.
    Images are passed to the model unchanged or, if it does not accept them, scaled from [0, 255] to [0, 1] or with
    channels first; the report's `note` describes this. Copies within a set count once.

    If all three are paths or names, `model` may be a table of outputs (.csv, .parquet), `size` is the size of the
    images, such as `224x224` (default: that of the images, or the one that the model takes), and `label` is the column
    of the classes in two tables of features.

    `references` compares the model's loss with this number of reference models of the `network`, each trained on a
    random half of both sets together. The attack is then stronger, and each record gets an exact p-value. For objects
    in memory, the store then keeps the records as well.

    The answer is *distinguishable*, *undecided* or *not assessable*. The remaining keywords are the options of `engram
    run` and fields of `membership`, such as `epochs`. Without `references`, the audit runs in this process.

    Raises ValueError if objects in memory cannot be read or evaluated, and otherwise EngramError, or its subclass
    SpecError for invalid arguments.
    """
    from orchestrator import model_audit
    from orchestrator.store import open_store, store_location

    options = read_options(EXECUTION, _take(EXECUTION, keywords))
    location = None if store is None else os.fspath(store)
    paths = [os.fspath(value) for value in (model, members, nonmembers) if isinstance(value, str | os.PathLike)]
    if references is None:
        options.setdefault("address", "none")
    if len(paths) == 3:
        model_path, member_path, other_path = paths
        files = model_audit.ModelAndFolders(model_path, member_path, other_path, size, label)
        spec = model_audit.file_spec(files, {"seed": seed, **keywords}, references, network)
        return _run_spec(dataclasses.replace(spec, execution=options, store=location), observe)
    fields: dict[str, Any] = {}
    ignored: dict[str, Any] = {"size": size, "label": label}
    if references is None:
        ignored |= {"network": network, **keywords}
    else:
        fields = {"seed": seed, **model_audit.reference_fields(references, network, "a model in memory"), **keywords}
    for name, value in ignored.items():
        if value is not None:
            raise SpecError(f"{name} is {value!r}, but objects in memory are audited as they are; pass paths to use it")
    opened_store = open_store(store_location(location))
    has_references = references is not None
    with model_audit.record(
        model, members, nonmembers, opened_store, batch=batch, seed=seed, has_references=has_references
    ) as recording:
        spec = dataclasses.replace(model_audit.recording_spec(recording, fields), execution=options, store=location)
        return dataclasses.replace(_run_spec(spec, observe), note="; ".join(recording.notes))


@short_traceback
@_name_options(EXECUTION)
def membership(
    train: Callable[[TrainingJob], Any] | str,
    *,
    records: int | None = None,
    models: int = 16,
    returns: str = "loss",
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    **keywords: Any,
) -> Report:
    """Test which records your own training memorises: train `models` models, each on a random half of the records.

    `train` is a function of one `engram.TrainingJob`, or its name as `package.module:train`. It trains one model on the
    rows `job.rows`, and returns one number per row of `job.ask`, which `returns` declares: a loss, log_likelihood,
    log_odds or probabilities. It may also return a torch module or another model, which Engram evaluates on the data
    set `data`. Closures are pickled with cloudpickle, and their results are reused only if the bytes are equal.

    `records` is the number of records, which stay with your function. The remaining keywords are the options of `engram
    run` and fields of `membership`, such as `data` or `seed`.

    Raises EngramError, or its subclass SpecError for invalid arguments.
    """
    from orchestrator.store import open_store, store_location
    from orchestrator.training_function import name_function

    execution = _take(EXECUTION, keywords)
    location = None if store is None else os.fspath(store)
    fields = {"models": models, "training.returns": returns, **keywords}
    if records is not None:
        fields["records"] = int(records)
    fields["training"] = name_function(train, open_store(store_location(location)))
    return _run_spec(_specification("membership", preset, store, fields, {}, execution, observe), observe)


@short_traceback
@_name_options(SEARCH, SEARCH_RUN_OPTIONS)
def search(
    audit: str | os.PathLike[str] | AuditSettings | Any,
    *,
    over: Mapping[str, str | Sequence[Any]] | None = None,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    observe: Callable[[Mapping[str, Any]], None] | None = None,
    **keywords: Any,
) -> Report:
    """Search for the training configuration that memorises least at the required utility.

    over: the fields to vary, each with a list of values or a range in command-line syntax, such as `"log(1e-4..1e-2)"`.
    The other keywords are the options of `engram search` and configuration fields, as in `run`. An option that is None
    keeps its value from the YAML file, or its default.

    The report's `verdict` is the recommendation, its tables are `trials` and `front`, and `cells` contains the runs of
    the trials. Repeating the call continues a search that was stopped; with more `trials`, a finished search continues
    as well.

    Raises EngramError, or its subclass SpecError for invalid arguments.
    """
    from orchestrator.inspection import status
    from orchestrator.runs.report import open_report
    from orchestrator.searches import definition, searching
    from orchestrator.spec import specification
    from orchestrator.store import open_store, store_location

    settings = read_options(SEARCH, _take(SEARCH, keywords))
    execution = _take(SEARCH_RUN_OPTIONS, keywords)
    spec = _specification(audit, preset, store, keywords, {}, execution, observe)
    searched = definition.search_from_spec(spec, specification.search_domains(over), settings)
    search_execution = specification.execution(spec)
    searching.check(search_execution)
    opened_store = open_store(store_location(spec.store))
    outcome = searching.run(searched, opened_store, search_execution, observe)
    searching.publish_results(outcome, opened_store, search_execution, observe)
    return dataclasses.replace(
        open_report(status.find(opened_store, outcome.name), opened_store), note=outcome.stop_reason
    )


@short_traceback
def open(run: str | os.PathLike[str], store: str | os.PathLike[str] | None = None) -> Report:
    """Open the report of an earlier run or sweep, given its name, a prefix of the name, or the path of its folder or
    page.

    `store` is the location of its store. The default is the store that contains the path; otherwise ENGRAM_STORE or
    ./engram-store. For an unfinished run, the report contains the results available so far. Raises SpecError if there
    is no such run.
    """
    from orchestrator.inspection import status
    from orchestrator.runs.report import open_report
    from orchestrator.spec import specification
    from orchestrator.store import is_there, open_store, store_location

    name = specification.name_or_path(run, "run", "the name of a run, or the path of its folder or page")
    if store is None:
        location = None
    else:
        location = specification.name_or_path(store, "store", STORE)
    if os.sep in name or os.path.exists(name):  # unlike Path.exists, returns False for text that cannot be a path
        path = Path(os.path.expanduser(name)).absolute()
        folder = path.parent if path.is_file() else path
        if location is None and folder.parent.name != "runs":
            raise SpecError(
                f"{name} is not a folder or page of a run; it must be in runs/ of a store, or give the store"
            )
        name = folder.name
        location = location or str(folder.parent.parent)
    location = store_location(location)
    if not is_there(location):
        raise SpecError(f"there is no store at {location}; run an audit first, or give the location as store")
    opened_store = open_store(location, create=False)
    return open_report(status.find(opened_store, name), opened_store)


@short_traceback
@_name_options(PLAN_OPTIONS)
def plan(
    audit: str | os.PathLike[str] | AuditSettings | Any,
    *,
    preset: str | None = None,
    store: str | os.PathLike[str] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    **keywords: Any,
) -> dict[str, Any]:
    """List the jobs of a run, the results already stored and the expected time for the rest. Nothing is started.

    Takes the same arguments as `run` and returns the output of `engram run --dry-run --json`.

    Raises EngramError, or its subclass SpecError for invalid arguments.
    """
    from orchestrator.inspection.preview import preview
    from orchestrator.spec import specification

    execution = _take(PLAN_OPTIONS, keywords)
    return preview(_specification(audit, preset, store, keywords, specification.sweep_values(sweep), execution, None))


@short_traceback
def runs(store: str | os.PathLike[str] | None = None) -> pa.Table:
    """Return all runs, sweeps and searches of a store as a table, oldest first, each with its answer and effect.

    `store` is the location of the store. The default is ENGRAM_STORE, or ./engram-store. The metadata of the fields
    contain the meanings of the columns. Raises SpecError if there is no store.
    """
    from orchestrator.inspection.run_list import list_runs
    from orchestrator.spec import specification
    from orchestrator.store import is_there, open_store, store_location

    location = store_location(None if store is None else specification.name_or_path(store, "store", STORE))
    if not is_there(location):
        raise SpecError(f"there is no store at {location}; run an audit first, or give the location as store")
    return list_runs(open_store(location, create=False))


@short_traceback
def audits() -> dict[str, tuple[str, ...]]:
    """Return the installed audits, each with the names of its presets."""
    from orchestrator.spec.audits import find, names

    return {name: tuple(find(name).audit.presets) for name in names()}


def _take_settings(
    audit: Any, preset: str | None, fields: Mapping[str, Any]
) -> tuple[Any, str | None, Mapping[str, Any]]:
    """Return the name, preset and fields of settings or of a configuration, together with those given beside it."""
    settings = audit
    if dataclasses.is_dataclass(audit) and not isinstance(audit, type):
        settings = settings_of(audit)
    if not isinstance(settings, AuditSettings):
        return audit, preset, fields
    if preset is not None and preset != settings.preset:
        raise SpecError(f"preset is {preset!r}, but {settings!r} has its own; give it only there")
    repeated = sorted(settings.fields.keys() & fields.keys())
    if repeated:
        raise SpecError(f"{repeated[0]} is set in {settings!r} and beside it; give it only once")
    return settings.audit, settings.preset, {**settings.fields, **fields}


def _specification(
    audit: str | os.PathLike[str] | AuditSettings | Any,
    preset: str | None,
    store: str | os.PathLike[str] | None,
    fields: Mapping[str, Any],
    sweep: Mapping[str, Sequence[Any]],
    execution: Mapping[str, Any],
    observe: object,
) -> Spec:
    """Build the specification from the arguments of `run`, `search` or `plan`. Raises SpecError if they are invalid."""
    from orchestrator.spec import resolve, specification
    from orchestrator.store import given_location

    audit, preset, fields = _take_settings(audit, preset, fields)
    source = specification.name_or_path(audit, "audit", "the name of an audit, or the path of a YAML file")
    if preset is None:
        start_from = None
    else:
        start_from = specification.name_or_path(preset, "preset", "the name of a preset")
    location = given_location(None if store is None else specification.name_or_path(store, "store", STORE))
    flags = specification.Spec(source, start_from, fields, sweep, read_options(EXECUTION, execution), location)
    if observe is not None and not callable(observe):
        raise SpecError(f"observe is {observe!r}; it must be a function of one event")
    return resolve.read_spec(source, flags)
