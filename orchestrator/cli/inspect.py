"""The commands that show runs and results."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.options import (
    NO_GATE,
    Experiment,
    GateOptions,
    Json,
    Mlflow,
    OptionalRun,
    Run,
    StoreOption,
    take_run_options,
)
from orchestrator.cli.store import command_store, output_file, store_option
from orchestrator.cli.terminal import emit, filled_columns, say, show, summary, table
from orchestrator.errors import SpecError
from orchestrator.quantities import format_count


def runs(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run, whose state is shown. [default: list all runs]",
            autocompletion=completion.runs_and_actions,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include the trials of searches.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """List the runs of the store, or show the state of one run.

    Lists each run with its effect, answer, state and jobs. Each search appears as one line. To list its trials as well,
    use --all or --json. To follow a run, use engram runs status --watch. See also engram runs logs and engram runs
    cancel.
    """
    if run is None:
        _list_runs(everything, store, json)
        return
    if everything:
        raise SpecError(f"--all is given with the run {run}; it applies to the list of all runs: leave out one")
    show_status(run, store=store, json=json)


def _list_runs(everything: bool, store: str | None, json: bool) -> None:
    from orchestrator.cli import verdict
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
        if json:
            answer_shapes = {run.run: verdict.answer_shape(run, opened_store) for run in statuses}
        else:
            short_answers = {run: results.short_answer(journals[run], opened_store) for run in finished}
            effects = {run: answers.effect(journals[run], opened_store) for run in finished}
    for run in statuses:
        if run.state == "unreadable":
            say(f"engram: {run.note}")
    if json:
        run_descriptions = []
        for run in statuses:
            run_descriptions.append(verdict.shape(run) | {"created": run.created, **answer_shapes[run.run]})
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
        answer_shape = verdict.answer_shape(current, opened_store) if json else {}
    if json:
        trial_of = {}
        if searches:
            trial_of = {"trial_of": [search.as_json() for search in searches]}
        details = {"ray": dict(current.ray), "left_out": list(current.left_out), "accepted": list(current.accepted)}
        emit(
            verdict.shape(current) | answer_shape | trial_of | {name: value for name, value in details.items() if value}
        )
        return
    for line in (verdict.status_line(current), *current.left_out, *current.accepted, *verdict.ray_lines(current)):
        show(line)
    for search in searches:
        command = f"engram runs status {search.search}{store_option(store)}"
        show(f"{search.words} of {search.search}; for the search: {command}")
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
    """Start the MLflow UI and a live page of the newest run, until you press Ctrl-C, and write the page of all runs.

    The first link opens MLflow's list of runs, the second link the newest run, and the third link Engram's page of all
    runs, a file in the store that also links to a page for each model and data set. The pages are accessible only from
    this machine. If MLflow runs on a separate server, Engram only prints its link and that of the file. With --mlflow
    off, it serves no MLflow pages.
    """
    import threading

    from orchestrator.errors import EngramError
    from orchestrator.inspection import pages
    from orchestrator.tracking import ui
    from orchestrator.tracking.tracking_store import target

    def announce(link: str | None, live: str | None) -> None:
        addresses = {"url": link, "live": live, "index": None if index is None else index.absolute().as_uri()}
        links = {name: address for name, address in addresses.items() if address}
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
        if tracking_target is not None and not tracking_target.remote:
            ui.check(opened_store, tracking_target)
        index = pages.draw_index(opened_store)
        if tracking_target is not None and tracking_target.remote:
            announce(ui.link(tracking_target.public_uri, tracking_target.experiment), None)
            return 0
        try:
            if tracking_target is None:
                with pages.serve_live(opened_store, port, lambda folder: ui.run_link(folder, None)) as live:
                    announce(None, live)
                    threading.Event().wait()
            else:
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
