"""The arguments and options that commands share, with their help, and what they say as a specification."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from orchestrator.cli import completion
from orchestrator.errors import SpecError
from orchestrator.store import DEFAULT_STORE, given_location

if TYPE_CHECKING:
    from orchestrator.spec.specification import Spec

R = TypeVar("R")

AuditOrFile = Annotated[
    str,
    typer.Argument(
        metavar="AUDIT|FILE",
        help="An audit's name, or a YAML file.",
        show_default=False,
        autocompletion=completion.audits_and_files,
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FIELD=VALUE]...",
        help="Fields of its config; scale=tiny shrinks all.",
        autocompletion=completion.fields,
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run, or the beginning of its name.",
        show_default=False,
        autocompletion=completion.runs,
    ),
]
OptionalRun = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="A run; the newest one if none is given.",
        autocompletion=completion.runs,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The config to start from; a preset of several cells is a sweep.",
        autocompletion=completion.presets,
    ),
]
Sweep = Annotated[list[str] | None, typer.Option(metavar="FIELD=A,B,C", help="Vary a field; several make a grid.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="PATH|URI", envvar="ENGRAM_STORE", help=f"The store. [default: {DEFAULT_STORE}]"),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",  # named here, since typer 0.27 takes a metavar of the same letters for the name
        metavar="ADDRESS",
        envvar="RAY_ADDRESS",
        help="local, auto, HOST:PORT of a Ray cluster, or none: in this process. [default: local]",
    ),
]
Mlflow = Annotated[
    str | None,
    typer.Option(
        metavar="URI|off",
        envvar="MLFLOW_TRACKING_URI",
        help="Where runs are tracked. [default: an sqlite file in the store]",
    ),
]
Experiment = Annotated[
    str | None,
    typer.Option(metavar="NAME", envvar="MLFLOW_EXPERIMENT_NAME", help="The MLflow experiment. [default: engram]"),
]
ShowImages = Annotated[
    bool | None,
    typer.Option(
        "--show-images",
        "--show-texts",
        help="Write a second page that shows your own data, images or texts.",
        show_default=False,
    ),
]
ProbesFolder = Annotated[
    str | None, typer.Option("--out", metavar="FOLDER", help="The folder to write.", show_default=False)
]
Commit = Annotated[
    bool,
    typer.Option("--commit", help="Write nothing; show the commitment to the configuration, given away first."),
]
Nonce = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What the other party named once it had the commitment.", show_default=False),
]
NonceBy = Annotated[str | None, typer.Option(metavar="WHO", help="Who named the nonce.", show_default=False)]
More = Annotated[
    int | None,
    typer.Option("--most", metavar="N", help="Of a run that ends once it is decided: go on up to so many pairs."),
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]


@dataclass(frozen=True)
class RunOptions:
    """How a run is computed, tracked and shown: each field is an option of `plan`, `run`, `resume` and `search`."""

    address: Address = None
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="auto|none|wait",
            help="Train on a cluster's GPUs: where it has or may get some, never, or wait for one. [default: auto]",
        ),
    ] = None
    gpus_per_job: Annotated[
        int | None,
        typer.Option(metavar="N", help="GPUs of a machine that each job takes: for models that one cannot hold."),
    ] = None
    together: Annotated[
        str | None, typer.Option(metavar="auto|N", help="Jobs that share a call, at most. [default: auto]")
    ] = None
    way: Annotated[
        str | None,
        typer.Option(metavar="auto|loop|stack|graph", help="How models are trained. [default: auto, the fastest here]"),
    ] = None
    tolerate: Annotated[int | None, typer.Option(metavar="N", help="Finish although this many jobs failed.")] = None
    fail_fast: Annotated[
        bool | None, typer.Option("--fail-fast", help="Stop at the first failed job.", show_default=False)
    ] = None
    stop_after: Annotated[str | None, typer.Option(metavar="3h50m", help="Stop after so long, in good order.")] = None
    max_gpu_hours: Annotated[
        float | None, typer.Option(metavar="N", help="Stop, in good order, once this start has used so many.")
    ] = None
    max_cost: Annotated[
        float | None, typer.Option(metavar="N", help="Stop once this start has cost so much, at --prices.")
    ] = None
    prices: Annotated[
        str | None, typer.Option(metavar="FILE.yaml", help="What an hour costs: gpu, cpu and currency.")
    ] = None
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="10m",
            help="End a job that takes longer, and send it again; not with --address none. "
            "[default: learnt in the run]",
        ),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="state|none",
            help="Keep the checkpoints of trainings that have ended, to train longer from. [default: none]",
        ),
    ] = None
    again: Annotated[bool, typer.Option("--again", help="Start a new run; stored results are reused.")] = False
    all_cells: Annotated[
        bool,
        typer.Option(
            "--all", help="Refuse where data of any cell of a preset are missing; without it such cells are left out."
        ),
    ] = False
    same_code: Annotated[
        bool,
        typer.Option(
            "--same-code",
            help="Your code has changed, but computes the same: use results of the code before. The page says so.",
        ),
    ] = False
    mlflow: Mlflow = None
    experiment: Experiment = None
    report: Annotated[
        bool | None,
        typer.Option(
            "--report/--no-report",
            envvar="ENGRAM_REPORT",
            help="Write a report at the end. [default: yes]",
            show_default=False,
        ),
    ] = None
    show_images: ShowImages = None
    dashboard: Annotated[
        bool | None,
        typer.Option(
            "--dashboard",
            help="Start Ray's dashboard with a cluster on this machine, and say where.",
            show_default=False,
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """The settings of execution, tracking and reports that were given."""
        from orchestrator.spec import specification

        given = {name: getattr(self, name) for name in specification.EXECUTION}
        return specification.execution_settings(given | {"again": self.again or None})

    def words(self) -> list[str]:
        """The options that were given, as a command line says them."""
        words: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or value == field.default:
                continue
            name = "all" if field.name == "all_cells" else field.name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{name}" if value else f"--no-{name}")
            else:
                words += [f"--{name}", str(value)]
        return words


NO_OPTIONS = RunOptions()


@dataclass(frozen=True)
class StoppingOptions:
    """When a run ends before its plan does: each field is an option of `plan` and `run`."""

    until: Annotated[
        str | None,
        typer.Option(
            metavar="decided",
            help="End once the ranks of drawn features accuse, however often one looks; all pairs are needed to clear.",
        ),
    ] = None
    alpha: Annotated[
        float | None,
        typer.Option(metavar="P", help="With --until decided: how often it accuses wrongly, at most. [default: 0.05]"),
    ] = None
    most: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --until decided: the pairs to train at most. [default: as configured]"),
    ] = None

    def apply(self, spec: Spec) -> Spec:
        """The specification with the fields by which its audit ends early."""
        from orchestrator.scheduling.rounds import stop_when_decided

        if self.until is None:
            for name in ("alpha", "most"):
                if getattr(self, name) is not None:
                    raise SpecError(f"--{name} is given without --until; it must go with --until decided")
            return spec
        if self.until != "decided":
            raise SpecError(f"until is {self.until!r}; it must be decided")
        return stop_when_decided(spec, self.alpha, self.most)


TO_THE_END = StoppingOptions()


@dataclass(frozen=True)
class GateOptions:
    """What a pipeline asks of the answer: each field is an option of `run`, `resume`, `report` and `results`."""

    fail_on: Annotated[
        str | None, typer.Option(metavar="ANSWER,...", help="Exit with code 4 if the answer is one of these.")
    ] = None
    junit: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the answers as JUnit XML, a test case for each cell of a sweep."),
    ] = None


NO_GATE = GateOptions()
BUDGET = ("max_gpu_hours", "max_cost", "prices")  # of a run; a search has --budget


def take_run_options(*left_out: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the fields of each parameter that is a dataclass, but for those left out, in its place.

    A command with the whole signature is what typer reads; the command itself gets one value.
    """

    def expand(command: Callable[..., R]) -> Callable[..., R]:
        parameters: list[inspect.Parameter] = []
        gathered: dict[str, tuple[type[Any], list[str]]] = {}
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            kind = parameter.annotation
            if not (isinstance(kind, type) and is_dataclass(kind)):
                parameters.append(parameter)
                continue
            hints = get_type_hints(kind, include_extras=True)
            taken = [field for field in fields(kind) if field.name not in left_out]
            gathered[parameter.name] = (kind, [field.name for field in taken])
            parameters += [
                inspect.Parameter(field.name, parameter.kind, default=field.default, annotation=hints[field.name])
                for field in taken
            ]

        @wraps(command)
        def run_command(**given: Any) -> R:
            options = {
                name: kind(**{field: given.pop(field) for field in taken}) for name, (kind, taken) in gathered.items()
            }
            return command(**options, **given)

        run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run_command

    return expand


def command_line_spec(
    what: str,
    fields: list[str] | None = None,
    preset: str | None = None,
    sweep: list[str] | None = None,
    store: str | None = None,
    options: RunOptions = NO_OPTIONS,
) -> Spec:
    """What a command line asks for."""
    from orchestrator.spec import specification
    from orchestrator.spec.resolve import read_spec

    values, swept = specification.settings(fields or ()), specification.sweeps(sweep or ())
    location = given_location(store)
    flags = specification.Spec(
        "",
        preset,
        values,
        swept,
        options.settings(),
        location,
        all_cells=options.all_cells,
        same_code=options.same_code,
    )
    return read_spec(what, flags)
