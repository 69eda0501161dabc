"""The commands that inspect audits, runs, results and the machine."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import (
    NO_GATE,
    Address,
    Experiment,
    GateOptions,
    Json,
    Mlflow,
    OptionalRun,
    Run,
    StoreOption,
    take_run_options,
)
from orchestrator.cli.store import command_store, one_line, output_file, store_option
from orchestrator.cli.terminal import cell, emit, filled_columns, paragraph, say, show, stdout, summary, table
from orchestrator.errors import EngramError
from orchestrator.quantities import format_count, printable
from orchestrator.store import store_location


def list_audits(json: Json = False) -> None:
    """List all audits, including the questions they answer and the available presets.

    A preset with several cells runs as a sweep.
    """
    from orchestrator.planning.extras import extras_by_preset
    from orchestrator.spec import audits
    from tasks.contract.extras import install_command, missing

    loaded = []
    for name in audits.names():
        try:
            loaded.append(audits.find(name))
        except EngramError as error:  # an error in a third-party package must not hide the built-in audits
            say(f"engram: {one_line(error)}")
    cells: dict[str, dict[str, int]] = {}
    for entry in loaded:
        cells[entry.name] = {preset: len(entry.audit.cells(preset)) for preset in entry.audit.presets}
    rows = [{"name": entry.name, "question": entry.question} for entry in loaded]
    extras = {entry.name: extras_by_preset(entry) for entry in loaded}
    if json:
        audit_descriptions = []
        for row in rows:
            packages = {}
            for preset, required in extras[row["name"]].items():
                packages[preset] = [extra.package for extra in required]
            audit_descriptions.append(
                row | {"presets": list(cells[row["name"]]), "cells": cells[row["name"]], "extras": packages}
            )
        emit({"audits": audit_descriptions})
        return

    def preset_label(audit: str, preset: str, count: int) -> str:
        notes = [f"{count} cells"] if count > 1 else []
        notes += [f"needs {extra.package}" for extra in missing(extras[audit][preset])]
        if notes:
            return f"{preset} ({', '.join(notes)})"
        return preset

    def presets(audit: str) -> str:
        return ", ".join(preset_label(audit, preset, count) for preset, count in cells[audit].items())

    table([row | {"presets": presets(row["name"])} for row in rows])
    absent = missing(
        extra for audit_extras in extras.values() for required in audit_extras.values() for extra in required
    )
    if absent:
        say(f"not installed: {', '.join(extra.package for extra in absent)}; {install_command(absent)}")


def runs(
    everything: Annotated[bool, typer.Option("--all", help="Also list the trials of searches.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """List the runs in a store with their effects, answers, states and jobs.

    Each search appears as one line. To list its trials as well, use --all or --json.
    """
    from orchestrator.cli import verdict
    from orchestrator.headlines import headline_shape
    from orchestrator.inspection import answers, results, status

    with command_store(store) as opened_store:
        statuses = status.overview(opened_store)
        journals = status.journals(opened_store)
        if everything or json:
            hidden = set()
        else:
            hidden = status.trials(statuses, opened_store)
        statuses = [run for run in statuses if run.run not in hidden]
        finished = [run.run for run in statuses if run.finished]
        short_answers = {run: results.short_answer(journals[run], opened_store) for run in finished}
        if json:
            shapes = {run: headline_shape(answers.run_headline(journals[run], opened_store)) for run in finished}
        else:
            effects = {run: answers.effect(journals[run], opened_store) for run in finished}
    for run in statuses:
        if run.state == "unreadable":
            say(f"engram: {run.note}")
    if json:
        run_descriptions = []
        for run in statuses:
            result = {"answer": short_answers.get(run.run) or None, "effect": shapes.get(run.run)}
            run_descriptions.append(verdict.shape(run) | {"created": run.created, **result})
        emit({"runs": run_descriptions})
    elif statuses:
        rows = []
        for run in statuses:
            rows.append(verdict.row(run, effects.get(run.run, ""), short_answers.get(run.run, "")))
        table(rows, filled_columns(rows))
        if hidden:
            say(f"not listed: {format_count(len(hidden), 'trial')} of searches; engram runs --all lists all runs")
    else:
        say(f"{opened_store.location} has no runs yet")


def show_status(
    run: OptionalRun = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep updating until the run ends.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Show the state of a run. For a trial, also shows the search. For a search, also shows the recommendation."""
    from orchestrator.cli import verdict
    from orchestrator.cli.progress import watching
    from orchestrator.inspection import search_results, status

    with command_store(store) as opened_store:
        if run:
            newest = None
        else:
            newest = status.newest_status(opened_store)
        journal = status.find(opened_store, run or (newest.run if newest else ""))
        if watch:
            with watching() as observe:
                for event in status.follow(journal, opened_store):
                    observe(event)
        # An unreadable run is read again so that the reason is raised as an error.
        if watch or newest is None or newest.state == "unreadable":
            status_without_watch = None
        else:
            status_without_watch = newest
        current = status_without_watch or status.status(journal, opened_store)
        searches = search_results.parent_searches(journal)
    if json:
        trial_of = {}
        if searches:
            trial_of = {"trial_of": [search.as_json() for search in searches]}
        details = {"ray": dict(current.ray), "left_out": list(current.left_out), "accepted": list(current.accepted)}
        emit(verdict.shape(current) | trial_of | {name: value for name, value in details.items() if value})
        return
    for line in (verdict.status_line(current), *current.left_out, *current.accepted, *verdict.ray_lines(current)):
        show(line)
    for search in searches:
        show(f"{search.words} of {search.search}; for the search: engram status {search.search}{store_option(store)}")
    if current.search is not None and current.search.answer is not None:
        verdict.display_recommendation(current.search.answer)
    verdict.failures(current.failures)


@take_run_options()
def results(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A table of the run, such as summary.")] = "summary",
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the table to a .parquet, .csv or .arrow file.")
    ] = None,
    store: StoreOption = None,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Show or export a table of a run, based on the results available so far.

    For a search, the tables are trials and front.
    """
    from orchestrator.cli import verdict
    from orchestrator.cli.gate import open_gate, pass_gate
    from orchestrator.inspection import results, search_results, status

    if out is None:
        path = None
    else:
        path = output_file("--out", out, list(results.WRITERS))
    with command_store(store) as opened_store:
        journal = status.find(opened_store, run)
        answer_gate = open_gate(gate, journal.about()["audit"])
        result = results.export(journal, opened_store, name)
        code = pass_gate(answer_gate, journal, opened_store)
    if result.absent:
        say(f"{result.absent} of the {result.planned_count} results behind {name!r} are not available yet")
    if path is not None:
        results.write(result.table, path)
        say(f"{result.table.num_rows} rows in {out}")
        return code
    rows = result.table.to_pylist()
    if json:
        emit(rows)
    elif name == "summary" and rows:
        summary(rows, result.varied)
    elif search_results.SEARCH in result.table.schema.names:
        verdict.display_trials(rows)
    else:
        table(rows, [name for name in result.table.schema.names if name not in result.redundant_columns])
    return code


def explain(
    run_or_key: Annotated[str, typer.Argument(metavar="RUN|KEY", show_default=False)],
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Explain why a run or a result was reused or not."""
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


def rerun(
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False)],
    pdb: Annotated[bool, typer.Option("--pdb", help="Start the debugger if the job raises an error.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> int:
    """Run a single job in this process, optionally under a debugger.

    Compares the result with the stored one and does not write any files.
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


def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the listed files. By default, they are only listed.")
    ] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """List files in the store that no run needs. To remove them, use --delete.

    This includes results that no run in the store plans (for example because you removed the folder of a run),
    checkpoints and tracebacks of such jobs, damaged files that were set aside, and results that differed from a stored
    one. You can use this command while runs are in progress.
    """
    from orchestrator.inspection.garbage import find_garbage
    from orchestrator.quantities import format_size

    with command_store(store) as opened_store:
        garbage = find_garbage(opened_store)
        if delete:
            for file in garbage:
                opened_store.remove(file.name)
    kinds: dict[str, list[int]] = {}
    for file in garbage:
        kinds.setdefault(file.kind, []).append(file.size)
    if json:
        totals = [{"kind": kind, "files": len(sizes), "bytes": sum(sizes)} for kind, sizes in kinds.items()]
        emit({"deleted": delete, "files": [file.name for file in garbage], "kinds": totals})
        return
    for kind, sizes in kinds.items():
        show(f"{len(sizes):>8,} {kind}, {format_size(sum(sizes))}")
    outcome = "not needed by any run; to remove them, use engram gc --delete"
    if delete:
        outcome = "removed"
    show(f"{format_count(len(garbage), 'file')} {outcome}" if garbage else "every file is needed by a run")


def doctor(store: StoreOption = None, address: Address = None, json: Json = False) -> int:
    """Check whether this machine can run audits.

    Checks versions, the GPU, Ray and its ports, the store, MLflow and the data sets, and suggests how to fix each
    problem.
    """
    from orchestrator.doctor import examine

    checks = []
    console = stdout()
    for check in examine(store_location(store), address):
        checks.append(check)
        if not json:
            mark, style = {True: ("ok", "green"), None: ("--", "yellow"), False: ("BAD", "bold red")}[check.ok]
            console.print(f"{mark:<4}", style=style, end="")
            console.print(printable(f"{check.name:<21} {check.found}" + (f"; {check.advice}" if check.advice else "")))
    is_healthy = all(check.ok is not False for check in checks)
    if json:
        emit({"ok": is_healthy, "checks": [vars(check) for check in checks]})
    return 0 if is_healthy else 1


def ui(
    port: Annotated[
        int,
        typer.Option(
            metavar="N", help="The port to use. If it is in use, the next free port is used.", min=1, max=65535
        ),
    ] = 5000,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    store: StoreOption = None,
    mlflow: Mlflow = None,
    experiment: Experiment = None,
    json: Json = False,
) -> int:
    """Start the MLflow UI and a live page of the newest run, until you press Ctrl-C.

    The first link opens the list of runs, and the second link opens the newest run. Both pages are accessible only from
    this machine. If MLflow runs on a separate server, Engram only prints its link. With --mlflow off, it only serves
    the live page.
    """
    import threading

    from orchestrator.errors import EngramError
    from orchestrator.inspection import pages
    from orchestrator.tracking import ui
    from orchestrator.tracking.tracking_store import target

    def announce(link: str | None, live: str | None) -> None:
        links = {name: address for name, address in (("url", link), ("live", live)) if address}
        if json:
            emit(links)
        else:
            for address in links.values():
                show(address)
            if live:
                say(f"{live} follows the newest run; press Ctrl-C to stop")
        if browser:
            for address in links.values():
                typer.launch(address)

    with command_store(store) as opened_store:
        tracking_target = target(opened_store, mlflow, experiment)
        if tracking_target is not None and tracking_target.remote:
            announce(ui.link(tracking_target.public_uri, tracking_target.experiment), None)
            return 0
        try:
            if tracking_target is None:
                with pages.serve_live(opened_store, port, lambda folder: ui.run_link(folder, None)) as live:
                    announce(None, live)
                    threading.Event().wait()
            else:
                ui.check(opened_store, tracking_target)
                with ui.serving(opened_store, tracking_target, port) as (server, free):
                    if free != port:
                        say(f"port {port} is in use; using port {free}")
                    url = f"http://{ui.HOST}:{free}"
                    with pages.serve_live(opened_store, free + 1, lambda folder: ui.run_link(folder, url)) as live:
                        announce(ui.link(url, tracking_target.experiment), live)
                        server.wait()
        except KeyboardInterrupt:
            return 0
        raise EngramError(f"MLflow's server has ended unexpectedly; its output is in {ui.log(opened_store)}")
