"""The commands that plan and run audits and write their probes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from json import dumps
from typing import TYPE_CHECKING

from orchestrator.cli.jobs import Submission, submit_run
from orchestrator.cli.options import (
    NO_GATE,
    NO_OPTIONS,
    TO_THE_END,
    AuditOrFile,
    Commit,
    DryRun,
    Fields,
    GateOptions,
    Hardware,
    Json,
    More,
    Nonce,
    NonceBy,
    OptionalRun,
    Preset,
    ProbesFolder,
    RunOptions,
    StoppingOptions,
    StoreOption,
    SubmitTo,
    Sweep,
    Wait,
    command_line_spec,
    take_run_options,
)
from orchestrator.cli.store import command_store, output_folder, report_interrupt
from orchestrator.cli.terminal import emit, paragraph, say, show, table
from orchestrator.errors import EngramError, SpecError
from orchestrator.spec.options import EXECUTION
from orchestrator.store import store_location

if TYPE_CHECKING:
    from orchestrator.run_folder.progress import Event
    from orchestrator.runs.report import Report
    from orchestrator.spec.specification import Spec
    from orchestrator.spec.yaml_file import Prices

FINISHING = "finishing"  # step between the answer and the next one
MAX_LISTED = 6  # maximum number of image set names to list
PROBES = {"images": "image", "records": "record", "questions": "question"}  # key of the result -> noun


@take_run_options("plan")
def plan(
    audit_or_file: AuditOrFile,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    stopping: StoppingOptions = TO_THE_END,
    on: Hardware = None,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    json: Json = False,
) -> None:
    """Show which jobs a run would execute, which results are already stored, and how long it would take.

    This command does not start the run.
    """
    options, prices = _take_prices(options, on)
    spec = stopping.apply(command_line_spec(audit_or_file, fields, preset, sweep, store, options))
    _show_plan(spec, json, on, prices)


def _take_prices(options: RunOptions, on: str | None) -> tuple[RunOptions, Prices | None]:
    """Return the options, and the prices of named hardware, which need no limit of the cost."""
    if on is None or options["max_cost"] is not None or options["prices"] is None:
        return options, None
    from orchestrator.spec.yaml_file import read_prices

    return options.replace(prices=None), read_prices(options["prices"])


def _show_plan(spec: Spec, json: bool, on: str | None = None, prices: Prices | None = None) -> None:
    """Print the jobs, the expected time, the power and the warnings of a specification. Starts nothing."""
    from orchestrator.inspection.class_numbers import describe_classes
    from orchestrator.inspection.preview import preview

    totals = preview(spec, on, prices)
    if json:
        emit(totals)
        return
    table(totals["tasks"])
    show("")
    runs = ""
    if len(totals["cells"]) > 1:
        runs = f" in {len(totals['cells'])} cells"
    expected = ""
    if totals["missing"]:
        expected = f"; expected time: {totals['time']}"
    paragraph(f"{totals['planned']} jobs{runs}, {totals['stored']} stored, {totals['missing']} to run{expected}")
    if on is not None and totals["missing"]:
        paragraph(totals["hardware"]["line"])
    memory = totals["device_memory"]
    lines = [part["line"] for part in (*memory, *totals["resources"], *totals["left_out"], *totals["code_changes"])]
    power = [statement["line"] for statement in totals["power"]]
    for line in (*lines, *describe_classes(totals["classes"]), *power, *totals["warnings"]):
        paragraph(line)


@take_run_options("run")
def run(
    audit_or_file: AuditOrFile,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    dry_run: DryRun = False,
    stopping: StoppingOptions = TO_THE_END,
    submit_to: SubmitTo = None,
    wait: Wait = False,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Run an audit to completion.

    Engram reuses stored results. If the run is interrupted for any reason, repeat the command to continue where it
    stopped. If the data for a cell of a preset are missing, Engram lists the cell and skips it. To run it later, add
    the data and repeat the command. To see only the jobs, the expected time and the power, use --dry-run.

    With --dry-run --on 8xH100, the plan is priced on that hardware, also without the data: see engram plan.

    With --on, the driver runs on the cluster, so you can switch off your own machine. Engram uploads the Python files
    of your networks. Data and the store must be accessible from every node. You can use engram runs on any machine that
    can access the store.
    """
    if wait and submit_to is None:
        raise SpecError("--wait is given without --on; add --on http://HOST:8265")
    if dry_run:
        hardware = submit_to if submit_to is not None and "://" not in submit_to else None
        options, prices = _take_prices(options, hardware)
        spec = stopping.apply(command_line_spec(audit_or_file, fields, preset, sweep, store, options))
        _check_answers(gate, spec)
        _show_plan(spec, json, hardware, prices)
        return 0
    if submit_to is not None:
        submission = Submission(
            audit_or_file, fields or [], preset, sweep or [], _cluster_options(options), stopping, gate.fail_on
        )
        if gate.junit is not None:
            raise SpecError("--junit is given with --on; write the file once the run has ended: engram report --junit")
        return submit_run(submission, submit_to, store, wait, json)
    return run_to_completion(
        lambda: stopping.apply(command_line_spec(audit_or_file, fields, preset, sweep, store, options)), gate, json
    )


def _check_answers(gate: GateOptions, spec: Spec) -> None:
    """Raise SpecError for an answer in --fail-on that the audit cannot give."""
    from orchestrator.cli.gate import open_gate

    open_gate(replace(gate, junit=None), spec.audit)


def _cluster_options(options: RunOptions) -> RunOptions:
    """Return the options for a run on a cluster, without those that its command sets.

    Raises SpecError for an option that a submitted run cannot have.
    """
    for name in EXECUTION:
        variable = EXECUTION[name].variable
        is_given = options[name] is not None and options[name] != os.environ.get(variable or "")
        if "submit" in EXECUTION[name].not_of and is_given:
            raise SpecError(f"--{name} is given with --on; a submitted run uses the cluster that --on names")
    return options.replace(**{name: None for name, option in EXECUTION.items() if "submit" in option.not_of})


class RunDisplay:
    """The progress of a run on stderr, interrupted by its answer on stdout once all results are stored.

    If stdout cannot be written, the run is still reported and delivered, and `check` raises the error.
    """

    def __init__(
        self, display: ExitStack, store: str | None, json: bool, next_step: Callable[[], str] | None = None
    ) -> None:
        from orchestrator.cli.progress import watching

        self.store = store
        self._display = display
        self._json = json
        self._next_step = next_step
        self._error: Exception | None = None
        self._observe = display.enter_context(watching())

    def observe(self, event: Event) -> None:
        self._observe(event)

    def print_answer(self, report: Report) -> None:
        """End the progress of the jobs, print the answer, and show the progress of the remaining steps."""
        from orchestrator.cli import verdict
        from orchestrator.cli.progress import watching
        from orchestrator.store import list_once

        self._display.close()
        try:
            with list_once():
                verdict.display_answer(report, self.store, self._json, self._next_step)
        except (OSError, EngramError) as error:
            self._error = error
        self._observe = self._display.enter_context(watching())
        self._observe({"event": "step", "step": FINISHING})

    def check(self) -> None:
        """Raise the error of `print_answer`, if any."""
        if self._error is not None:
            raise self._error


def run_to_completion(
    read: Callable[[], Spec], gate: GateOptions, json: bool, next_step: Callable[[], str] | None = None
) -> int:
    """Run a specification with a driver in this process and return the exit code.

    `next_step` returns a line below the answer. It is called after the answer is printed, and not with `json`.
    """
    from orchestrator.cli import verdict
    from orchestrator.cli.gate import open_gate, pass_gate
    from orchestrator.deferred_pandas import defer_pandas
    from orchestrator.planning.extras import check_cells
    from orchestrator.run_folder.journal import Journal
    from orchestrator.runs.lifecycle import prepare_cells, start
    from orchestrator.spec import specification
    from orchestrator.spec.resolve import LeftOut, describe_left_out, pin_available, resolve_cells
    from orchestrator.store import is_there, list_once

    with ExitStack() as stack:
        display = RunDisplay(stack, None, json, next_step)
        defer_pandas()
        observe = display.observe
        with report_interrupt():
            spec = read()
            display.store = spec.store
            cells = resolve_cells(spec)
            execution = specification.execution(spec)
            answer_gate = open_gate(gate, cells[0].audit)
            observe({"event": "step", "step": "reading data"})
            # Pin before creating a store, so that missing data does not leave an empty store behind.
            digests: dict[str, str] = {}
            left_out: tuple[LeftOut, ...] = ()
            is_new_store = not is_there(store_location(spec.store))
            if is_new_store:
                cells, left_out = pin_available(cells, digests)
                check_cells(cells, execution.address)
        with command_store(spec.store, create=True) as opened_store:
            opened_store.digests().update(digests)
            if not is_new_store:
                cells, left_out = pin_available(cells, opened_store.digests())
            cells, lines = prepare_cells(spec, cells, opened_store)
            notes = [*describe_left_out(cells, left_out), *lines]
            for line in notes:
                observe({"event": "told", "line": line})
            report = start(cells, opened_store, execution, observe, left_out=left_out, take_answer=display.print_answer)
            stack.close()
            display.check()
            with list_once():
                code = verdict.display_end(report, json, notes)
                return pass_gate(answer_gate, Journal(opened_store.folder("runs", report.run)), opened_store, code)


@take_run_options("resume")
def resume(
    run: OptionalRun = None,
    pair_limit: More = None,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Resume a run, sweep or search where it stopped.

    Without a name, Engram resumes the newest unfinished run. If this run is a trial of a search, it resumes the search,
    like engram search --resume. If a run stops as soon as it is decided, use --most to continue it with more pairs, as
    a new run that shares the first pairs.
    """
    from orchestrator.cli import search, verdict
    from orchestrator.cli.gate import open_gate, pass_gate
    from orchestrator.inspection import status
    from orchestrator.inspection.search_results import is_search
    from orchestrator.run_folder.journal import Journal
    from orchestrator.runs import lifecycle
    from orchestrator.runs.deciding import with_more_pairs
    from orchestrator.spec import specification
    from orchestrator.store import list_once

    execution = specification.execution(specification.Spec("", execution=options.settings()))
    with command_store(store) as opened_store:
        if run:
            journal = status.find(opened_store, run)
        else:
            journal = status.newest(opened_store, unfinished=True)
        if is_search(journal.about()):
            if pair_limit is not None:
                raise SpecError(
                    f"--most is not available for {journal.run}, because the trials of a search always train all pairs"
                )
            _check_search_options(journal.run, options, gate)
            return search.resume_search(journal.run, opened_store, execution, store, json)
        name = journal.run
        answer_gate = open_gate(gate, journal.about()["audit"])
        with ExitStack() as stack:
            display = RunDisplay(stack, store, json)
            display.observe({"event": "step", "step": "reading the run"})
            take_answer = display.print_answer
            if pair_limit is None:
                report = lifecycle.resume(name, opened_store, execution, display.observe, take_answer)
            else:
                cells = [with_more_pairs(journal, pair_limit)]
                report = lifecycle.start(cells, opened_store, execution, display.observe, take_answer=take_answer)
        display.check()
        with list_once():
            code = verdict.display_end(report, json)
            return pass_gate(answer_gate, Journal(opened_store.folder("runs", report.run)), opened_store, code)


def _check_search_options(search: str, options: RunOptions, gate: GateOptions) -> None:
    """Raise SpecError for an option that searches do not accept."""
    values = {name: options[name] for name, option in EXECUTION.items() if "search" in option.not_of}
    for name, value in {**values, **vars(gate)}.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise SpecError(
                f"{option} is not available for searches, and {search} is a search; see engram search --help"
            )


def probes(
    audit_or_file: AuditOrFile,
    out: ProbesFolder = None,
    fields: Fields = None,
    preset: Preset = None,
    commit: Commit = False,
    nonce: Nonce = None,
    nonce_by: NonceBy = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Write images, records or questions for the owner of a third-party model to evaluate.

    This command does not train any models. README.txt in the folder explains to the owner how to return the outputs of
    the model. FOLDER-key.csv identifies each image or question, so keep it private until you have received the outputs.
    For forgetting, FOLDER-split.csv lists the images of D_Q and the held-out images. For text, it lists the secrets to
    insert into the training data.

    To let the owner verify the draw and the analysis, first send the commitment that --commit prints. Then ask the
    owner for an unpredictable nonce of at least 16 characters, and write the folder with --nonce. Engram rejects any
    run whose configuration differs from the committed one.
    """
    from orchestrator.inspection.probes import commit_draw, hand_out
    from orchestrator.quantities import format_count

    spec = command_line_spec(audit_or_file, fields, preset, store=store)
    if nonce is None and nonce_by is not None:
        raise SpecError("--nonce-by requires --nonce")
    if commit:
        commitment = commit_draw(spec)
        if json:
            emit(asdict(commitment))
        else:
            show(commitment.commitment)
            say(f"it covers the secret and this configuration: {dumps(commitment.configuration, sort_keys=True)}")
        return
    if out is None:
        raise SpecError("--out is missing; pass the folder to write, or use --commit, which does not write a folder")
    folder = output_folder("--out", out)
    handout = hand_out(spec, folder, nonce, nonce_by)
    if json:
        emit(handout)
        return
    names = list(handout["sets"])
    if len(names) <= MAX_LISTED:
        shown_names = names
    else:
        shown_names = [*names[: MAX_LISTED - 1], "...", names[-1]]
    sets = format_count(len(names), "set")
    kind, noun = next(entry for entry in PROBES.items() if entry[0] in handout)
    show(f"{format_count(handout[kind], noun)} in {handout['folder']}, in {sets}: {', '.join(shown_names)}")
    if "key" in handout:
        show(f"key that identifies each {noun} (keep it private): {handout['key']}")
    if "commitment" in handout:
        show(f"SHA-256 of the key, which README.txt gives to the owner: {handout['commitment']}")
    if "settings" in handout:
        show(f"run the audit with: {' '.join(map(shlex.quote, handout['settings']))}")
    if "split" in handout:
        show(f"split of the data (keep it private): {handout['split']}")
    if "warning" in handout:
        show(handout["warning"])
