"""Arguments and options shared by several commands, their help, and the specification built from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_type_hints

import typer

from orchestrator.cli import completion, short_help
from orchestrator.errors import SpecError
from orchestrator.spec.options import EXECUTION, SEARCH, Option, read_options
from orchestrator.store import DEFAULT_STORE, given_location

if TYPE_CHECKING:
    from orchestrator.spec.specification import Spec

R = TypeVar("R")


def _run_option(name: str) -> Any:
    """Return the typer option for the `engram run` option with this name."""
    return _typer_option(name, EXECUTION[name])


def _typer_option(name: str, option: Option) -> Any:
    return typer.Option(
        *_command_line_names(name, option),
        metavar=option.metavar,
        envvar=option.variable,
        help=option.help,
        show_default=False,
        rich_help_panel=short_help.RARE,
    )


def _command_line_names(name: str, option: Option) -> tuple[str, ...]:
    return option.names or (f"--{name.replace('_', '-')}",)


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
        help="Fields of the configuration to set. With scale=tiny, the audit takes only seconds, but finds "
        "hardly anything: it tests the installation.",
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
        help="A run. [default: the newest one]",
        autocompletion=completion.runs,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The preset to start from. A preset with several cells runs as a sweep.",
        autocompletion=completion.presets,
    ),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=A,B,C", help="Run the audit for each value of a field. Repeat the option to run a grid."
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="PATH|URI", envvar="ENGRAM_STORE", help=f"The store. [default: {DEFAULT_STORE}]"),
]
Address = Annotated[str | None, _run_option("address")]
Mlflow = Annotated[str | None, _run_option("mlflow")]
Experiment = Annotated[str | None, _run_option("experiment")]
ShowImages = Annotated[bool | None, _run_option("show_images")]
ProbesFolder = Annotated[
    str | None, typer.Option("--out", metavar="FOLDER", help="The folder to write.", show_default=False)
]
Commit = Annotated[
    bool,
    typer.Option("--commit", help="Only print the commitment to the configuration, which you send to the owner first."),
]
Nonce = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="The nonce that the owner chose after receiving the commitment.", show_default=False
    ),
]
NonceBy = Annotated[str | None, typer.Option(metavar="WHO", help="Who chose the nonce.", show_default=False)]
More = Annotated[
    int | None,
    typer.Option("--most", metavar="N", help="If the run stops once it is decided, continue with up to N pairs."),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Start nothing: show the jobs, the results already stored, the expected time and the power."
    ),
]
SubmitTo = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="URL",
        help="Submit the run to the Ray cluster with this job server, http://HOST:8265, and return. With --dry-run: "
        "hardware to price the plan on, such as 8xH100.",
        show_default=False,
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="Price the plan on this hardware instead of this machine, such as 8xH100, 4xA100, L4 or cpu, also without "
        "the data: GPU hours, wall time and, with --prices, the cost.",
        show_default=False,
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="With --on: print the run's output until it ends; exit with its code.",
        rich_help_panel=short_help.RARE,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


class GivenOptions:
    """Command-line options by name. Options that were not given are None."""

    declared: ClassVar[Mapping[str, Option]]

    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name)

    def settings(self) -> dict[str, Any]:
        """Return the values of the options that were given."""
        return read_options(self.declared, self._values)

    @classmethod
    def parameters(cls, command: str) -> dict[str, inspect.Parameter]:
        """Return the parameters through which typer reads the options of a command."""
        parameters = {}
        for name, option in cls.declared.items():
            if command not in option.not_of:
                # Values that a function parses are text on the command line.
                if option.kind in (int, float, bool):
                    kind = option.kind
                else:
                    kind = str
                annotation = Annotated[kind | None, _typer_option(name, option)]  # type: ignore[valid-type]
                parameters[name] = inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                )
        return parameters


class RunOptions(GivenOptions):
    """The options of `plan`, `run`, `resume`, `search` and `submit`. See `orchestrator.spec.options.Execution`."""

    declared = EXECUTION

    def replace(self, **changes: Any) -> RunOptions:
        """Return a copy with some values replaced."""
        return RunOptions(**{**self._values, **changes})

    def words(self) -> list[str]:
        """Return the given options as command-line words."""
        words: list[str] = []
        for name, option in self.declared.items():
            value = self[name]
            if value is None:
                continue
            first = _command_line_names(name, option)[0].partition("/")[0]
            if value is True:
                words.append(first)
            elif value is False:
                words.append(f"--no-{first.removeprefix('--')}")
            else:
                words += [first, str(value)]
        return words


class SearchOptions(GivenOptions):
    """The options specific to `search`. See `orchestrator.spec.options.SearchOptions`."""

    declared = SEARCH


NO_OPTIONS = RunOptions()


@dataclass(frozen=True)
class StoppingOptions:
    """Options for stopping a run early. Each field is an option of `plan` and `run`."""

    until: Annotated[
        str | None,
        typer.Option(
            metavar="decided",
            help="Stop as soon as pairs of trainings show memorisation. The error rate is valid for"
            " any number "
            "of looks. For the answer not detected, all pairs are needed.",
        ),
    ] = None
    alpha: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="The maximum rate of false findings with --until decided. [default: 0.05]",
            rich_help_panel=short_help.RARE,
        ),
    ] = None
    most: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The maximum number of pairs with --until decided. [default: as configured]",
            rich_help_panel=short_help.RARE,
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the values by option name. Options that were not given are None."""
        return {f"--{field.name}": getattr(self, field.name) for field in fields(self)}

    def apply(self, spec: Spec) -> Spec:
        """Return the specification with the fields that make its audit stop early."""
        from orchestrator.scheduling.rounds import stop_when_decided

        if self.until is None:
            for name in ("alpha", "most"):
                if getattr(self, name) is not None:
                    raise SpecError(f"--{name} requires --until decided")
            return spec
        if self.until != "decided":
            raise SpecError(f"until is {self.until!r}; it must be decided")
        return stop_when_decided(spec, self.alpha, self.most)


TO_THE_END = StoppingOptions()


@dataclass(frozen=True)
class GateOptions:
    """Options of the pipeline gate. Each field is an option of `run`, `resume`, `report` and `results`."""

    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="ANSWER,...",
            help="Exit with code 4 if the answer is in this list, such as memorised. engram show AUDIT lists the "
            "answers, and --junit FILE writes them for a CI server.",
        ),
    ] = None
    junit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the answers to a JUnit XML file, with one test case per cell of a sweep.",
            rich_help_panel=short_help.RARE,
        ),
    ] = None


NO_GATE = GateOptions()


def take_run_options(command_name: str = "") -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Replace each option group in a command's signature by its individual options, which typer then reads.

    A group is a dataclass whose fields are options, or a subclass of `GivenOptions`, which selects the options that
    apply to the named command. The command itself receives one value per group.
    """

    def expand(command: Callable[..., R]) -> Callable[..., R]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[type[Any], list[str]]] = {}
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            group = parameter.annotation
            options = _group_parameters(group, command_name)
            if options is None:
                parameters.append(parameter)
                continue
            groups[parameter.name] = (group, list(options))
            parameters += [option.replace(kind=parameter.kind) for option in options.values()]
        if command_name in short_help.COMMANDS:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter("help_all", kind, default=False, annotation=short_help.HelpAll))

        @wraps(command)
        def run_command(**arguments: Any) -> R:
            arguments.pop("help_all", None)  # has been answered
            values = {}
            for name, (group, options) in groups.items():
                values[name] = group(**{option: arguments.pop(option) for option in options})
            return command(**values, **arguments)

        run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run_command

    return expand


def _group_parameters(group: Any, command: str) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of an option group, or None for any other annotation."""
    if not isinstance(group, type):
        return None
    if issubclass(group, GivenOptions):
        return group.parameters(command)
    if not is_dataclass(group):
        return None
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    result = {}
    for field in fields(group):
        result[field.name] = inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
    return result


def command_line_spec(
    audit_or_file: str,
    fields: list[str] | None = None,
    preset: str | None = None,
    sweep: list[str] | None = None,
    store: str | None = None,
    options: RunOptions = NO_OPTIONS,
) -> Spec:
    """Return the specification described by a command line."""
    from orchestrator.spec import specification
    from orchestrator.spec.resolve import read_spec

    values = specification.settings(fields or ())
    swept = specification.sweeps(sweep or ())
    location = given_location(store)
    flags = specification.Spec(
        "",
        preset,
        values,
        swept,
        options.settings(),
        location,
    )
    return read_spec(audit_or_file, flags)
