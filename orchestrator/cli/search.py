"""The command that searches training settings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import completion
from orchestrator.cli.options import (
    NO_OPTIONS,
    Fields,
    Json,
    Preset,
    RunOptions,
    SearchOptions,
    StoreOption,
    command_line_spec,
    take_run_options,
)
from orchestrator.cli.store import command_store, report_interrupt, store_option
from orchestrator.cli.terminal import emit, say, show
from orchestrator.errors import SpecError
from orchestrator.store import store_location

if TYPE_CHECKING:
    from orchestrator.scheduling.driver import Observer
    from orchestrator.searches.definition import Search
    from orchestrator.spec.options import Execution
    from orchestrator.spec.specification import Spec
    from orchestrator.store import Store

SomeSearch = Annotated[
    str | None,
    typer.Argument(
        metavar="[AUDIT|FILE|SEARCH]",
        help="An audit's name, or a YAML file; with --resume a search. [default: the newest search]",
        show_default=False,
        autocompletion=completion.audits_and_files,
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=A,B,C", help="Vary a field over a list of values, a range low..high, or log(low..high)."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a search with its original settings.")]
LISTED = 12  # number of trials shown


NO_SEARCH_OPTIONS = SearchOptions()


@take_run_options("search")
def search(
    audit_or_file: SomeSearch = None,
    fields: Fields = None,
    over: Over = None,
    preset: Preset = None,
    search_options: SearchOptions = NO_SEARCH_OPTIONS,
    resume: Resume = False,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    json: Json = False,
) -> int:
    """Find the training settings that memorise least while keeping the accuracy you need.

    Each trial runs the audit with different training settings. Engram then audits the trial that memorises least again
    with fresh seeds, and this audit determines the answer. If the search is interrupted for any reason, repeat the
    command or use --resume to continue.
    """
    from orchestrator.cli.progress import watching
    from orchestrator.searches import searching

    settings = search_options.settings()
    with ExitStack() as display:
        observe = display.enter_context(watching())
        with report_interrupt():
            observe({"event": "step", "step": "reading the search"})
            if resume:
                start_options = {"a field": fields, "--over": over, "--preset": preset}
                spec, definition, execution = _reopen_search(audit_or_file, start_options, store, settings, options)
            else:
                spec, definition, execution = _new_search(audit_or_file, fields, over, preset, store, settings, options)
            searching.check(execution)
        with command_store(spec.store, create=not resume) as opened_store:
            return _run_search(definition, opened_store, execution, spec.store, display, observe, json)


def resume_search(name: str, opened_store: Store, execution: Execution, store: str | None, json: bool) -> int:
    """Continue the named search with its original settings, print its answer and return the exit code."""
    from orchestrator.cli.progress import watching
    from orchestrator.run_folder.journal import Journal, check_key_format
    from orchestrator.searches import definition

    journal = Journal(opened_store.folder("runs", name))
    check_key_format(journal)
    about = journal.about()
    resumed = definition.reopen_search(about["audit"], about["search"], {})
    with ExitStack() as display:
        return _run_search(resumed, opened_store, execution, store, display, display.enter_context(watching()), json)


def _run_search(
    search: Search,
    opened_store: Store,
    execution: Execution,
    store: str | None,
    display: ExitStack,
    observe: Observer,
    json: bool,
) -> int:
    """Run the search, draw and publish its page, print its answer and Pareto front, and return the exit code."""
    from orchestrator.cli import verdict
    from orchestrator.cli.verdict import display_recommendation, display_trials
    from orchestrator.inspection import search_results, status
    from orchestrator.run_folder.journal import Journal
    from orchestrator.searches import searching, trials

    outcome = searching.run(search, opened_store, execution, observe)
    page, mlflow_page = searching.publish_results(outcome, opened_store, execution, observe)
    display.close()
    resume_command = f"engram search --resume {outcome.name}{store_option(store)}"
    state = "finished"
    if outcome.stop_reason:
        state = "interrupted"
    is_undrawn = execution.report and page is None
    code = outcome.exit_code or int(is_undrawn)
    for trial in outcome.failed:
        say(f"failed: trial {trial.number}: {trial.note}")
    if outcome.stop_reason:
        say(f"not finished: {outcome.stop_reason}; continue with: {resume_command}")
    if json:
        ended = status.status(Journal(opened_store.folder("runs", outcome.name)), opened_store)
        emit(verdict.shape(ended) | verdict.answer_shape(ended, opened_store))
        return code
    display_recommendation(outcome.answer)
    show("")
    objectives = search.objectives
    rows = trials.table(outcome.trials, objectives).to_pylist()
    best = [row for row in rows if row["front"]]
    # The trials on the front, ordered by memorisation, then the fresh audits.
    best.sort(key=lambda row: -objectives.memorization.sign * row["memorization"])
    fresh_rows = [row for row in rows if row["part"] == search_results.FRESH and row["memorization"] is not None]
    display_trials([*best[:LISTED], *fresh_rows], (objectives.memorization.name, objectives.utility.name))
    show("")
    show(f"next: engram report {outcome.name} --open{store_option(store)}")
    show(f"      engram results {outcome.name} trials{store_option(store)}, for all {len(outcome.trials)}")
    if page:
        page_or_folder = f"report {page}"
    else:
        page_or_folder = str(opened_store.folder("runs", outcome.name))
    show(
        f"{outcome.name} {state}: {len(outcome.trials)} trials; {page_or_folder}"
        f"{f'; MLflow {mlflow_page}' if mlflow_page else ''}"
    )
    return code


def _new_search(
    audit_or_file: str | None,
    fields: list[str] | None,
    domain_texts: list[str] | None,
    preset: str | None,
    store: str | None,
    settings: dict[str, Any],
    options: RunOptions,
) -> tuple[Spec, Search, Execution]:
    """Return the search described by the command line and the file."""
    from orchestrator.searches import definition as searches
    from orchestrator.searches.definition import parse_domains
    from orchestrator.spec import resolve, specification
    from orchestrator.store import is_there

    if audit_or_file is None:
        raise SpecError("the audit is missing; pass an audit, a file or --resume")
    spec = command_line_spec(audit_or_file, fields, preset, store=store, options=options)
    new_search = searches.search_from_spec(spec, parse_domains(domain_texts or ()), settings)
    if not is_there(store_location(spec.store)):  # so that missing data does not leave an empty store behind
        resolve.pin_cells([new_search.start], {})
    return spec, new_search, specification.execution(spec)


def _reopen_search(
    search_name: str | None,
    start_options: Mapping[str, Any],
    store: str | None,
    settings: Mapping[str, Any],
    options: RunOptions,
) -> tuple[Spec, Search, Execution]:
    """Return the named search, or the newest one. Raises SpecError for an option that would change the search."""
    from orchestrator.run_folder.journal import check_key_format
    from orchestrator.searches import definition as searches
    from orchestrator.searches.searching import find_search
    from orchestrator.spec import specification

    fixed = ("sampler", "sampler_seed", "rungs", "keep_one_in")
    for name, value in {
        **start_options,
        **{f"--{name.replace('_', '-')}": settings.get(name) for name in fixed},
    }.items():
        if value is not None:
            raise SpecError(f"{name} is given with --resume; it would change the search: leave out --resume")
    with command_store(store) as opened_store:
        journal = find_search(opened_store, search_name)
        check_key_format(journal)
        about = journal.about()
    reopened = searches.reopen_search(about["audit"], about["search"], settings)
    spec = specification.Spec(about["audit"], execution=options.settings(), store=store)
    return spec, reopened, specification.execution(spec)
