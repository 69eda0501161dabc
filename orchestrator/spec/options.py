"""Options of a run and of a search, each declared once.

Each field of `Execution` or `SearchOptions` declares its type, default, help text and reader. These declarations become
the command-line options (`cli/options.py`), the keyword arguments of `engram.run` and `engram.search`
(`python_calls.py`), and the keys under `execution` and `search` in a YAML file (`spec_file.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, Literal, get_args

from orchestrator.errors import SpecError
from tasks.contract.quantities import Duration

if TYPE_CHECKING:
    import os

    from orchestrator.spec.yaml_file import Prices
    from tasks.worker.compute_context import StrategyName

KeepName = Literal["none", "state"]
KEEPS: tuple[str, ...] = get_args(KeepName)
GpusName = Literal["auto", "none", "wait"]
GPUS: tuple[str, ...] = get_args(GpusName)
SamplerName = Literal["random", "grid", "optuna"]
SAMPLERS: tuple[str, ...] = get_args(SamplerName)


def _parse_together(value: int | Literal["auto"]) -> int | None:
    """Parse the number of jobs per call. Returns None for `auto`."""
    from orchestrator.spec.fields import coerce

    if value == "auto":
        return None
    try:
        number: int = coerce(value, int, "together")
    except SpecError:
        raise SpecError(f"together is {value!r}; it must be auto, or 1 or more") from None
    return number


def parse_duration(value: str | float) -> float:
    """Return the number of seconds in `3h50m`, `90s`, `1d` or a plain number."""
    try:
        seconds = float(Duration.parse(value))
    except ValueError as error:
        raise SpecError(str(error)) from None
    if seconds <= 0:
        raise SpecError(f"a duration of {value!r} is zero; write it like 3h50m, 90s or 1d")
    return seconds


def _parse_prices(value: str | os.PathLike[str]) -> Prices:
    """Read prices from the YAML file at this path."""
    from orchestrator.spec.yaml_file import read_prices

    return read_prices(value)


@dataclass(frozen=True)
class Option:
    """An option: its help text, the type or reader of its value, and the commands that accept it."""

    help: str
    kind: Any
    metavar: str | None = None
    names: tuple[str, ...] = ()  # command-line names, if different from the field name with dashes
    variable: str | None = None  # environment variable used if the option is not given
    not_of: tuple[str, ...] = ()  # commands that do not accept the option
    is_in_file: bool = True

    def read(self, value: Any, name: str) -> Any:
        """Convert a value to the option's type. Raises SpecError if this is impossible."""
        if inspect.isfunction(self.kind):
            return self.kind(value)
        from orchestrator.spec.fields import coerce  # deferred because `import engram` does not need it

        return coerce(value, self.kind, name)

    @property
    def python_type(self) -> str:
        """The annotation of the keyword argument, including None."""
        if inspect.isfunction(self.kind):
            [parameter] = inspect.signature(self.kind).parameters.values()
            accepted = parameter.annotation
        else:
            if self.kind == tuple[int, ...]:
                accepted = "Sequence[int]"
            else:
                accepted = self.kind.__name__
        return f"{accepted} | None"


def _option(default: Any, help: str, kind: Any, **details: Any) -> Any:
    """Return a dataclass field that declares an option with this default. `details` are other fields of `Option`."""
    return dataclass_field(default=default, metadata={Option: Option(help, kind, **details)})


def _declared_options(group: type[Any]) -> dict[str, Option]:
    """Return the options declared by a dataclass, by field name."""
    return {field.name: field.metadata[Option] for field in fields(group)}


@dataclass(frozen=True)
class Execution:
    """Execution, tracking and display of a run. These settings never affect keys."""

    address: str | None = _option(
        None,
        "Where to run jobs: pool (processes on this machine), local (Ray on this machine), auto or HOST:PORT (a Ray "
        "cluster), or none (this process). [default: pool if the run is expected to take less than a minute and no GPU "
        "is used, otherwise local]",
        str,
        metavar="ADDRESS",
        variable="RAY_ADDRESS",
        not_of=("submit",),
    )
    gpus: GpusName = _option(
        "auto",
        "Whether to use the GPUs of a cluster: if it has or can start some (auto), never (none), or after waiting for "
        "one (wait). [default: auto]",
        str,
        metavar="auto|none|wait",
    )
    gpus_per_job: int = _option(
        1,
        "The number of GPUs per job, which train each model together. All must be in one machine.",
        int,
        metavar="N",
    )
    processes_per_job: int = _option(
        1,
        "The number of processes per job that uses no GPU, each on its own processor. They train each model together, "
        "on one machine.",
        int,
        metavar="N",
    )
    together: int | None = _option(  # also the maximum number of models trained in one step
        None,
        "The maximum number of jobs per call. [default: auto]",
        _parse_together,
        metavar="auto|N",
    )
    way: StrategyName = _option(  # auto: chosen once per run, device and network
        "auto",
        "The training strategy. [default: auto, which uses the fastest on this machine]",
        str,
        metavar="auto|loop|stack|graph",
    )
    tolerate: int = _option(0, "Finish the run even if up to N jobs have failed.", int, metavar="N")
    fail_fast: bool = _option(False, "Stop the run as soon as a job fails.", bool, not_of=("search",))
    stop_after: float | None = _option(
        None,
        "Stop the run cleanly after this time.",
        parse_duration,
        metavar="3h50m",
        not_of=("search",),
    )
    max_gpu_hours: float | None = _option(
        None,
        "Stop the run cleanly once it has used N GPU hours since this start.",
        float,
        metavar="N",
        not_of=("search",),  # searches use --budget instead
    )
    max_cost: float | None = _option(
        None,
        "Stop the run cleanly once it has cost N since this start, based on --prices.",
        float,
        metavar="N",
        not_of=("search",),
    )
    prices: Prices | None = _option(
        None,
        "A YAML file with prices per hour: gpu, cpu and currency.",
        _parse_prices,
        metavar="FILE.yaml",
        not_of=("search",),
    )
    timeout: float | None = _option(
        None,
        "Stop and retry jobs that take longer. Not available with --address none. [default: learnt during the run]",
        parse_duration,
        metavar="10m",
    )
    keep: KeepName = _option(  # states that an unfinished run needs are always kept
        "none",
        "Keep the checkpoints of trained models, so that you can train them further. [default: none]",
        str,
        metavar="state|none",
        not_of=("search",),
    )
    again: bool = _option(
        False,
        "Start a new run that reuses stored results.",
        bool,
        not_of=("resume", "search"),
        is_in_file=False,
    )
    all_cells: bool = _option(
        False,
        "Do not start if the data for a cell of a preset are missing. By default, such cells are skipped.",
        bool,
        names=("--all",),
        not_of=("resume", "search"),
        is_in_file=False,
    )
    same_code: bool = _option(
        False,
        "Reuse results from earlier versions of your code, if your changes do not affect them. The report mentions "
        "this.",
        bool,
        not_of=("search",),
        is_in_file=False,
    )
    download: bool = _option(
        False,
        "Download data sets hf:NAME@REVISION from the Hugging Face hub if they are not in the cache on this machine.",
        bool,
        not_of=("resume", "search", "audit"),
        is_in_file=False,
    )
    mlflow: str | None = _option(
        None,
        "The MLflow tracking store. [default: an SQLite file in the store]",
        str,
        metavar="URI|off",
        variable="MLFLOW_TRACKING_URI",
        not_of=("plan",),
    )
    experiment: str | None = _option(
        None,
        "The MLflow experiment. [default: engram]",
        str,
        metavar="NAME",
        variable="MLFLOW_EXPERIMENT_NAME",
        not_of=("plan",),
    )
    mlflow_jobs: bool = _option(
        False,
        "Track each training that logs metrics as a nested MLflow run, with its metrics by step.",
        bool,
        not_of=("plan",),
    )
    report: bool = _option(
        True,
        "Whether to write a report when the run ends. [default: yes]",
        bool,
        names=("--report/--no-report",),
        variable="ENGRAM_REPORT",
        not_of=("plan",),
    )
    show_images: bool = _option(
        False,
        "Write a second page that also shows your own images or texts.",
        bool,
        names=("--show-images", "--show-texts"),
        not_of=("plan", "search"),
    )
    dashboard: bool = _option(
        False,
        "Start the Ray dashboard along with the local cluster, and print its address.",
        bool,
        not_of=("plan", "search", "submit"),
    )


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search."""

    trials: int | None = _option(None, "The number of trials. [default: 24; for grid, all points]", int, metavar="N")
    budget: float | None = _option(None, "Do not start any more trials after this time.", parse_duration, metavar="2h")
    sampler: SamplerName = _option(
        "random", "The sampler that proposes trials. [default: random]", str, metavar="random|grid|optuna"
    )
    sampler_seed: int = _option(0, "Seed of the sampler. [default: 0]", int, metavar="N")
    rungs: tuple[int, ...] = _option(
        (),
        "Epochs after which only the trials with the best utility continue. [default: none, all trials continue]",
        tuple[int, ...],
        metavar="E,F,G",
    )
    keep_one_in: int = _option(3, "At each rung, continue one in N trials. [default: 3]", int, metavar="N")
    give_up: float | None = _option(
        None,
        "The acceptable loss of utility, in the unit of the utility measure. [default: depends on the audit]",
        float,
        metavar="X",
    )
    concurrent: int = _option(
        1,
        "The number of trials to run in parallel. If above 1, results with rungs or optuna depend on timing.",
        int,
        metavar="N",
    )


EXECUTION: Mapping[str, Option] = _declared_options(Execution)
SEARCH: Mapping[str, Option] = _declared_options(SearchOptions)


def read_options(options: Mapping[str, Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the given options and return their values. Options that are None are omitted."""
    result = {}
    for name, value in values.items():
        if value is not None:
            result[name] = options[name].read(value, name)
    return result
