"""What the options of a command say, as a specification and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.spec.specification import Spec


def execution_settings(
    address: str | None,
    gpus: str | None,
    together: str | None,
    way: str | None,
    tolerate: int | None,
    fail_fast: bool | None,
    stop_after: str | None,
    timeout: str | None,
    keep: str | None,
    again: bool,
) -> dict[str, Any]:
    """The execution settings that were given."""
    from orchestrator.spec import specification

    given: dict[str, Any] = {
        "address": address,
        "gpus": gpus,
        "way": way,
        "tolerate": tolerate,
        "fail_fast": fail_fast,
        "stop_after": specification.duration(stop_after) if stop_after is not None else None,
        "timeout": specification.duration(timeout) if timeout is not None else None,
        "keep": keep,
        "again": again or None,
    }
    if together is not None:
        given["together"] = specification.together(together)
    return {name: value for name, value in given.items() if value is not None or name == "together"}


def display_settings(
    mlflow: str | None, experiment: str | None, report: bool | None, show_images: bool | None
) -> dict[str, Any]:
    """The settings of tracking and reports that were given."""
    given = {"mlflow": mlflow, "experiment": experiment, "report": report, "show_images": show_images}
    return {name: value for name, value in given.items() if value is not None}


def command_line_spec(
    what: str,
    fields: list[str] | None,
    preset: str | None,
    sweep: list[str] | None,
    store: str | None,
    execution: dict[str, Any],
    all_cells: bool = False,
) -> Spec:
    """What a command line asks for."""
    from orchestrator.spec import specification
    from orchestrator.spec.resolve import read_spec

    flags = specification.Spec(
        "",
        preset,
        specification.settings(fields or ()),
        specification.sweeps(sweep or ()),
        execution,
        store,
        all_cells=all_cells,
    )
    return read_spec(what, flags)
