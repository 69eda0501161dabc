"""The commands of `engram debug`: why a result was reused, one job alone, this machine, and audits of your own."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.ask import new_app
from orchestrator.cli.options import Address, Json, StoreOption
from orchestrator.cli.store import command_store
from orchestrator.cli.terminal import cell, emit, paragraph, show, show_check, table
from orchestrator.errors import EngramError
from orchestrator.store import store_location

debug_app = typer.Typer(
    help="Solve problems, or create your own audit.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@debug_app.command("explain")
def explain(
    run_or_key: Annotated[str, typer.Argument(metavar="RUN|KEY", show_default=False)],
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Explain why a run or a result was or was not reused."""
    from orchestrator.cli import verdict
    from orchestrator.inspection import explain

    with command_store(store) as opened_store:
        name = explain.find_run_or_key(opened_store, run_or_key)
        if isinstance(name, str):
            answer = explain.key(opened_store, name)
        else:
            answer = explain.run(name, opened_store)
    if json:
        emit(answer)
    elif "tasks" in answer:
        table(answer["tasks"])
        for line in answer["code"]:
            paragraph(line)
    else:
        for line in verdict.lines(answer):
            show(line)


@debug_app.command("rerun")
def rerun(
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False)],
    pdb: Annotated[bool, typer.Option("--pdb", help="Enter the debugger at the error.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> int:
    """Compute one job in this process, optionally under a debugger.

    The result is compared with the stored one. Nothing is written.
    """
    import traceback

    from orchestrator.inspection import explain
    from orchestrator.inspection.explain import rerun as rerun_job

    with command_store(store) as opened_store:
        name = explain.resolve_key(opened_store, key)
        try:
            answer = rerun_job(opened_store, name)
        except EngramError:
            raise
        except Exception as error:
            traceback.print_exception(error)  # this command exists to show the traceback
            if pdb:
                import pdb as debugger

                debugger.post_mortem(error.__traceback__)
            return 1
    if json:
        emit(answer)
    else:
        comparison_texts = {None: "no stored result to compare with", True: "equal to the stored result, bit for bit"}
        differences = []
        for column in answer["differs"]:
            differences.append(", ".join(f"{name} {cell(value)}" for name, value in column.items()))
        unequal = f"different from the stored result: {'; '.join(differences)}"
        result = comparison_texts.get(answer["same"], unequal)
        show(f"{answer['task']} {name[:12]}: {answer['rows']} rows in {answer['seconds']:.3g} s, {result}")
    return 1 if answer["same"] is False else 0


@debug_app.command("doctor")
def doctor(store: StoreOption = None, address: Address = None, json: Json = False) -> int:
    """Check whether this machine can run audits.

    Checks versions, GPU, Ray and its ports, the store, MLflow and the data sets, and suggests a fix for each problem.
    """
    from orchestrator.doctor import examine

    checks = []
    for check in examine(store_location(store), address):
        checks.append(check)
        if not json:
            show_check(check.ok, f"{check.name:<21} {check.found}" + (f"; {check.advice}" if check.advice else ""))
    is_healthy = all(check.ok is not False for check in checks)
    if json:
        emit({"ok": is_healthy, "checks": [vars(check) for check in checks]})
    return 0 if is_healthy else 1


debug_app.add_typer(new_app, name="new")
