"""The commands that plan and run audits and write their probes."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import asdict
from json import dumps

from orchestrator.cli.options import (
    NO_GATE,
    NO_OPTIONS,
    TO_THE_END,
    AuditOrFile,
    Commit,
    Fields,
    GateOptions,
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
    Sweep,
    command_line_spec,
    take_run_options,
)
from orchestrator.cli.store import command_store, output_folder, report_interrupt
from orchestrator.cli.terminal import emit, paragraph, say, show, table
from orchestrator.errors import SpecError
from orchestrator.spec.options import EXECUTION
from orchestrator.store import store_location

FEW = 6  # sets of images that are listed by name
PROBES = {"images": "picture", "records": "record", "questions": "question"}  # their kinds, and what one is called


@take_run_options("plan")
def plan(
    what: AuditOrFile,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    stopping: StoppingOptions = TO_THE_END,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    json: Json = False,
) -> None:
    """Show what would run, what is stored, and for how long.

    Starts nothing.
    """
    from orchestrator.inspection.class_numbers import describe_classes
    from orchestrator.inspection.preview import preview

    seen = preview(stopping.apply(command_line_spec(what, fields, preset, sweep, store, options)))
    if json:
        emit(seen)
        return
    table(seen["tasks"])
    show("")
    runs = f" in {len(seen['cells'])} cells" if len(seen["cells"]) > 1 else ""
    expected = f"; expected time: {seen['time']}" if seen["missing"] else ""
    paragraph(f"{seen['planned']} jobs{runs}, {seen['stored']} stored, {seen['missing']} to run{expected}")
    lines = [cell["line"] for cell in (*seen["left_out"], *seen["code_changes"])]
    power = [statement["line"] for statement in seen["power"]]
    for line in (*lines, *describe_classes(seen["classes"]), *power, *seen["warnings"]):
        paragraph(line)


@take_run_options("run")
def run(
    what: AuditOrFile,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    stopping: StoppingOptions = TO_THE_END,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Run an audit to its end.

    Stored results are not computed again. Kill it at any moment: the same command continues where it stopped.
    Cells of a preset whose data are missing are left out and named; the same command runs them once the data are there.
    """
    from orchestrator.cli import verdict
    from orchestrator.cli.gate import open_gate, pass_gate
    from orchestrator.cli.progress import watching
    from orchestrator.planning.extras import check_cells
    from orchestrator.run_folder.journal import Journal
    from orchestrator.runs.lifecycle import prepare_cells, start
    from orchestrator.spec import specification
    from orchestrator.spec.resolve import LeftOut, describe_left_out, pin_available, resolve_cells
    from orchestrator.store import is_there, list_once

    with ExitStack() as shown:
        observe = shown.enter_context(watching())
        with report_interrupt():
            asked = stopping.apply(command_line_spec(what, fields, preset, sweep, store, options))
            cells, how = resolve_cells(asked), specification.execution(asked)
            asked_of = open_gate(gate, cells[0].audit)
            observe({"event": "step", "step": "reading data"})
            # Pinned before a store is created, so that no empty store is left behind if data is missing.
            known: dict[str, str] = {}
            left_out: tuple[LeftOut, ...] = ()
            new = not is_there(store_location(asked.store))
            if new:
                cells, left_out = pin_available(cells, known)
                check_cells(cells, how.address)
        with command_store(asked.store, create=True) as opened:
            opened.digests().update(known)
            if not new:
                cells, left_out = pin_available(cells, opened.digests())
            cells, lines = prepare_cells(asked, cells, opened)
            told = [*describe_left_out(cells, left_out), *lines]
            for line in told:
                observe({"event": "told", "line": line})
            ended = start(cells, opened, how, observe, left_out=left_out)
            shown.close()
            with list_once():
                code = verdict.display(ended, asked.store, json, told)
                return pass_gate(asked_of, Journal(opened.folder("runs", ended.run)), opened, code)


@take_run_options("resume")
def resume(
    run: OptionalRun = None,
    most: More = None,
    store: StoreOption = None,
    options: RunOptions = NO_OPTIONS,
    gate: GateOptions = NO_GATE,
    json: Json = False,
) -> int:
    """Continue a run, sweep or search where it stopped.

    The newest unfinished one, if none is named; of a search's trials, the search. A search goes on as by engram search
    --resume. With --most a run that ends once it is decided goes on with more pairs, as a run of its own that has the
    same first ones.
    """
    from orchestrator.cli import search, verdict
    from orchestrator.cli.gate import open_gate, pass_gate
    from orchestrator.cli.progress import watching
    from orchestrator.inspection import status
    from orchestrator.inspection.search_results import is_search
    from orchestrator.run_folder.journal import Journal
    from orchestrator.runs import lifecycle
    from orchestrator.runs.deciding import with_more_pairs
    from orchestrator.spec import specification
    from orchestrator.store import list_once

    how = specification.execution(specification.Spec("", execution=options.settings()))
    with command_store(store) as opened:
        journal = status.find(opened, run) if run else status.newest(opened, unfinished=True)
        if is_search(journal.about()):
            if most is not None:
                raise SpecError(
                    f"--most is given, and {journal.run} is a search, whose trials train all of their pairs"
                )
            _check_search_options(journal.run, options, gate)
            return search.resume_search(journal.run, opened, how, store, json)
        name = journal.run
        asked_of = open_gate(gate, journal.about()["audit"])
        with watching() as observe:
            observe({"event": "step", "step": "reading the run"})
            if most is None:
                ended = lifecycle.resume(name, opened, how, observe)
            else:
                ended = lifecycle.start([with_more_pairs(journal, most)], opened, how, observe)
        with list_once():
            code = verdict.display(ended, store, json)
            return pass_gate(asked_of, Journal(opened.folder("runs", ended.run)), opened, code)


def _check_search_options(search: str, options: RunOptions, gate: GateOptions) -> None:
    """Raise SpecError for an option that the runs of a search do not take."""
    given = {name: options[name] for name, option in EXECUTION.items() if "search" in option.not_of}
    for name, value in {**given, **vars(gate)}.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise SpecError(f"{option} is given, and {search} is a search: see engram search --help")


def probes(
    what: AuditOrFile,
    out: ProbesFolder = None,
    fields: Fields = None,
    preset: Preset = None,
    commit: Commit = False,
    nonce: Nonce = None,
    nonce_by: NonceBy = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Write the images, records or questions that somebody else's model is to be asked about.

    Nothing is trained. README.txt in the folder says how the model's outputs are returned. Beside it FOLDER-key.csv
    says what each picture or question is: keep it until you have them. Of forgetting, FOLDER-split.csv says which
    pictures are D_Q and which are held back; of text, which secrets are to be put into the training data beforehand.

    If the owner should not have to trust you with the draw and the analysis: give away what --commit shows, let the
    owner name a nonce of 16 characters or more that nobody could foresee, and write the folder with --nonce. A run with
    another configuration than the committed one is then refused.
    """
    from orchestrator.inspection.probes import commit_draw, hand_out
    from orchestrator.quantities import format_count

    asked = command_line_spec(what, fields, preset, store=store)
    if nonce is None and nonce_by is not None:
        raise SpecError("--nonce-by is given without --nonce; it must be who named the nonce")
    if commit:
        made = commit_draw(asked)
        if json:
            emit(asdict(made))
        else:
            show(made.commitment)
            say(f"it holds the secret and this configuration: {dumps(made.configuration, sort_keys=True)}")
        return
    if out is None:
        raise SpecError("--out is missing; it must be the folder to write, or --commit given, which writes none")
    folder = output_folder("--out", out)
    written = hand_out(asked, folder, nonce, nonce_by)
    if json:
        emit(written)
        return
    names = list(written["sets"])
    few = names if len(names) <= FEW else [*names[: FEW - 1], "...", names[-1]]
    sets = format_count(len(names), "set")
    kind, noun = next(each for each in PROBES.items() if each[0] in written)
    show(f"{format_count(written[kind], noun)} in {written['folder']}, in {sets}: {', '.join(few)}")
    if "key" in written:
        show(f"what each {noun} is (for yourself alone): {written['key']}")
    if "commitment" in written:
        show(f"its SHA-256, which README.txt tells the owner: {written['commitment']}")
    if "settings" in written:
        show(f"run the audit with: {' '.join(map(shlex.quote, written['settings']))}")
    if "split" in written:
        show(f"what to know beforehand (for yourself alone): {written['split']}")
    if "warning" in written:
        show(written["warning"])
