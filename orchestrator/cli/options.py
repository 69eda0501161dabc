"""The arguments and options that commands share. Their help is what a user reads first."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.store import DEFAULT_STORE

What = Annotated[str, typer.Argument(metavar="AUDIT|FILE", help="An audit's name, or a YAML file.", show_default=False)]
Fields = Annotated[
    list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="Fields of its config; scale=tiny shrinks all.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run, or the beginning of its name.", show_default=False)]
SomeRun = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; the newest one if none is given.")]
Preset = Annotated[
    str | None, typer.Option(metavar="NAME", help="Where the config starts from; one of several cells is a sweep.")
]
Sweep = Annotated[list[str] | None, typer.Option(metavar="FIELD=A,B,C", help="Vary a field; several make a grid.")]
Where = Annotated[
    str | None,
    typer.Option("--store", metavar="PATH|URI", envvar="ENGRAM_STORE", help=f"The store. [default: {DEFAULT_STORE}]"),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        envvar="RAY_ADDRESS",
        help="local, auto, HOST:PORT of a Ray cluster, or none: in this process. [default: local]",
    ),
]
Together = Annotated[str | None, typer.Option(metavar="auto|N", help="Jobs that share a call. [default: auto]")]
Way = Annotated[
    str | None,
    typer.Option(metavar="auto|loop|stack|graph", help="How models are trained. [default: auto, the fastest here]"),
]
Tolerate = Annotated[int | None, typer.Option(metavar="N", help="Failed jobs that the tables may go without.")]
FailFast = Annotated[bool | None, typer.Option("--fail-fast", help="Stop at the first failed job.", show_default=False)]
StopAfter = Annotated[str | None, typer.Option(metavar="3h50m", help="Stop in time to be resumed later.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="10m",
        help="End a job that takes longer, and send it again; not with --address none. [default: learnt in the run]",
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="state|none",
        help="What stays of trainings that have ended: their state, to train longer from. [default: none]",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="As a new run, with what is stored reused.")]
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
DrawReport = Annotated[
    bool | None,
    typer.Option(
        "--report/--no-report",
        envvar="ENGRAM_REPORT",
        help="Draw a page at the end. [default: yes]",
        show_default=False,
    ),
]
ShowImages = Annotated[
    bool | None,
    typer.Option("--show-images", help="Show your own data in a page beside the report.", show_default=False),
]
ProbesFolder = Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where the probes go.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
