"""The command line: `engram`, also `python -m orchestrator`.

Results go to stdout, all else to stderr. Whatever is the user's to mend is one line and an exit code: 1 an error (of
the environment too), 2 bad usage or configuration, 3 finished with failed jobs, 130 interrupted. Only typer loads with
this module; what a command needs loads when it is called, so that `engram --help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from orchestrator.errors import EngramError, SpecError
from orchestrator.terminal import cell, emit, say, show, span, stdout, summary, table

if TYPE_CHECKING:
    from orchestrator.spec import Spec
    from orchestrator.store import Store

STORE = "./engram-store"
DEBUG = "--debug"

app = typer.Typer(
    name="engram",
    help="Audits whether neural networks memorise their training data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: quick, and the same in a file
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

What = Annotated[str, typer.Argument(metavar="AUDIT|FILE", help="An audit's name, or a YAML file.", show_default=False)]
Fields = Annotated[
    list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="Fields of its config; scale=tiny shrinks all.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run, or the beginning of its name.", show_default=False)]
SomeRun = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; the newest one if none is given.")]
Preset = Annotated[str | None, typer.Option(metavar="NAME", help="Where the config starts from.")]
Sweep = Annotated[list[str] | None, typer.Option(metavar="FIELD=A,B,C", help="Vary a field; several make a grid.")]
Where = Annotated[
    str | None, typer.Option("--store", metavar="PATH", envvar="ENGRAM_STORE", help=f"The store. [default: {STORE}]")
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
Tolerate = Annotated[int | None, typer.Option(metavar="N", help="Failed jobs that the tables may go without.")]
FailFast = Annotated[bool | None, typer.Option("--fail-fast", help="Stop at the first failed job.", show_default=False)]
StopAfter = Annotated[str | None, typer.Option(metavar="3h50m", help="Stop in time to be resumed later.")]
Again = Annotated[bool, typer.Option("--again", help="As a new run, with what is stored reused.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]


def main() -> NoReturn:
    """The console script: runs the command and exits with its code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM is Ctrl-C once
    try:
        arguments = [argument for argument in sys.argv[1:] if argument != DEBUG]  # wherever it stands
        code = app(arguments, prog_name="engram", standalone_mode=False)
        sys.stdout.flush()
    except EngramError as error:
        say(f"engram: {_one_line(error)}")
        code = error.exit_code
    except BrokenPipeError:
        # Whoever read it has seen enough; nor may the interpreter flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        code = _ended_by(error)
    sys.exit(code or 0)


@app.callback()
def common(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an unexpected error.")] = False,
) -> None:
    pass


@app.command("list")
def list_audits(json: Json = False) -> None:
    """The audits, the question each answers, and their presets."""
    from orchestrator import audits

    found = []
    for name in audits.names():
        try:
            found.append(audits.find(name))
        except EngramError as error:  # another one's package must not hide ours
            say(f"engram: {_one_line(error)}")
    rows = [{"name": each.name, "question": each.question, "presets": list(each.audit.presets)} for each in found]
    if json:
        emit({"audits": rows})
        return
    table([row | {"presets": ", ".join(row["presets"])} for row in rows])


@app.command()
def plan(
    what: What,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    store: Where = None,
    address: Address = None,
    together: Together = None,
    tolerate: Tolerate = None,
    fail_fast: FailFast = None,
    stop_after: StopAfter = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """What would run, what is stored, how long it takes.

    Starts nothing.
    """
    from orchestrator.preview import preview

    execution = _execution(address, together, tolerate, fail_fast, stop_after, again)
    seen = preview(_specified(what, fields, preset, sweep, store, execution))
    if json:
        emit(seen)
        return
    table(seen["tasks"])
    show("")
    workers = f"{seen['slots']} worker{'s' if seen['slots'] != 1 else ''}"
    time = seen["expected_seconds"]
    known = f"{span(time)} on {workers}" if time is not None else "unknown until something like it has run here"
    runs = f" in {len(seen['cells'])} cells" if len(seen["cells"]) > 1 else ""
    expected = f"; expected time: {known}" if seen["missing"] else ""
    show(f"{seen['planned']} jobs{runs}, {seen['stored']} stored, {seen['missing']} to run{expected}")


@app.command()
def run(
    what: What,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    store: Where = None,
    address: Address = None,
    together: Together = None,
    tolerate: Tolerate = None,
    fail_fast: FailFast = None,
    stop_after: StopAfter = None,
    again: Again = False,
    json: Json = False,
) -> int:
    """Run an audit to its end.

    What is stored is not computed again. Kill it at any moment: the same command goes on.
    """
    from orchestrator import spec, verdict
    from orchestrator.progress import watching
    from orchestrator.runs import start

    execution = _execution(address, together, tolerate, fail_fast, stop_after, again)
    asked = _specified(what, fields, preset, sweep, store, execution)
    cells, how = spec.cells(asked), spec.execution(asked)
    # Pinned before a store is made, so that nothing is left behind where data is missing.
    known: dict[str, str] = {}
    new = not _is_there(asked.store or STORE)
    if new:
        cells = spec.pinned(cells, known)
    with _opened(asked.store, create=True) as opened:
        opened.digests().update(known)
        cells = cells if new else spec.pinned(cells, opened.digests())
        with watching() as observe:
            report = start(cells, opened, how, observe)
        return verdict.told(report, asked.store, json)


@app.command()
def resume(
    run: SomeRun = None,
    store: Where = None,
    address: Address = None,
    together: Together = None,
    tolerate: Tolerate = None,
    fail_fast: FailFast = None,
    stop_after: StopAfter = None,
    json: Json = False,
) -> int:
    """Go on with a run or sweep where it was left.

    That is the newest unfinished one, if none is named.
    """
    from orchestrator import runs, spec, status, verdict
    from orchestrator.progress import watching

    how = spec.execution(spec.Spec("", execution=_execution(address, together, tolerate, fail_fast, stop_after, False)))
    with _opened(store) as opened:
        name = (status.find(opened, run) if run else status.newest(opened, unfinished=True)).run
        with watching() as observe:
            report = runs.resume(name, opened, how, observe)
        return verdict.told(report, store, json)


@app.command()
def runs(store: Where = None, json: Json = False) -> None:
    """The runs of the store: where each stands, and its jobs."""
    from orchestrator import status, verdict

    with _opened(store) as opened:
        found = status.overview(opened)
    if json:
        emit({"runs": [verdict.shape(each) | {"created": each.created} for each in found]})
    elif found:
        table([verdict.row(each) for each in found])
    else:
        say(f"there are no runs in {opened.location} yet")


@app.command("status")
def show_status(
    run: SomeRun = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it until the run has ended.")] = False,
    store: Where = None,
    json: Json = False,
) -> None:
    """Where a run stands."""
    import time

    from orchestrator import status, verdict

    with _opened(store) as opened:
        journal = status.find(opened, run) if run else status.newest(opened)
        seen = status.status(journal, opened)
        while watch and seen.state == "running":
            say(verdict.standing(seen))
            time.sleep(2)
            seen = status.status(journal, opened)
    if json:
        emit(verdict.shape(seen))
        return
    show(verdict.standing(seen))
    verdict.failures(seen.failures)


@app.command()
def results(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="One of its tables, such as summary.")] = "summary",
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write it as .parquet, .csv or .arrow.")] = None,
    store: Where = None,
    json: Json = False,
) -> None:
    """A table of a run, as far as it is there."""
    from orchestrator import results, status

    with _opened(store) as opened:
        found = results.read(status.find(opened, run), opened, name)
    if found.absent:
        say(f"{found.absent} of the {found.planned} results behind {name!r} are not there yet")
    if out is not None:
        results.write(found.table, out)
        say(f"{found.table.num_rows} rows in {out}")
        return
    rows = found.table.to_pylist()
    if json:
        emit(rows)
    elif name == "summary" and rows:
        summary(rows, found.varied)
    else:
        table(rows, found.table.schema.names)


@app.command()
def explain(
    what: Annotated[str, typer.Argument(metavar="RUN|KEY", show_default=False)], store: Where = None, json: Json = False
) -> None:
    """Why a run or a key was or was not reused."""
    from orchestrator import explain, status, verdict

    with _opened(store) as opened:
        try:
            journal = status.find(opened, what)
        except SpecError as error:
            if "is the beginning of" in str(error):
                raise
            said = explain.key(opened, explain.key_named(opened, what))
        else:
            said = explain.run(journal, opened)
    if json:
        emit(said)
    elif "tasks" in said:
        table(said["tasks"])
    else:
        for line in verdict.lines(said):
            show(line)


@app.command()
def rerun(
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False)],
    pdb: Annotated[bool, typer.Option("--pdb", help="Into the debugger where it raises.")] = False,
    store: Where = None,
    json: Json = False,
) -> int:
    """Compute one job here, under a debugger if need be.

    It runs in this process and is compared with what is stored. Nothing is written.
    """
    import traceback

    from orchestrator import explain
    from orchestrator.rerun import rerun as again

    with _opened(store) as opened:
        name = explain.key_named(opened, key)
        try:
            said = again(opened, name)
        except EngramError:
            raise
        except Exception as error:
            traceback.print_exception(error)  # to see it is what this command is for
            if pdb:
                import pdb as debugger

                debugger.post_mortem(error.__traceback__)
            return 1
    if json:
        emit(said)
    else:
        same = {None: "nothing is stored to compare it with", True: "equal to the stored one, bit for bit"}
        differs = "; ".join(", ".join(f"{k} {cell(v)}" for k, v in each.items()) for each in said["differs"])
        verdict = same.get(said["same"], f"different from the stored one: {differs}")
        show(f"{said['task']} {name[:12]}: {said['rows']} rows in {said['seconds']:.3g} s, {verdict}")
    return 1 if said["same"] is False else 0


@app.command()
def verify(store: Where = None, json: Json = False) -> int:
    """Check every stored table against its digest.

    Damaged ones are set aside, and computed again when their run is resumed.
    """
    with _opened(store) as opened:
        keys = sorted(opened.keys())
        damaged = list(opened.verify(keys))
    for _, problem in damaged:
        say(problem)
    if json:
        emit({"checked": len(keys), "damaged": [key for key, _ in damaged]})
    else:
        show(f"{len(keys)} results checked, {len(damaged)} damaged")
    return 1 if damaged else 0


@app.command()
def doctor(store: Where = None, address: Address = None, json: Json = False) -> int:
    """What is well on this machine, and what is not.

    Versions, GPU, Ray and its ports, the store, the data sets; and what to do about each.
    """
    from orchestrator.doctor import examine

    checks = []
    console = stdout()
    for check in examine(store or STORE, address):
        checks.append(check)
        if not json:
            mark, style = {True: ("ok", "green"), None: ("--", "yellow"), False: ("BAD", "bold red")}[check.ok]
            console.print(f"{mark:<4}", style=style, end="")
            console.print(f"{check.name:<19} {check.found}" + (f"; {check.advice}" if check.advice else ""))
    well = all(check.ok is not False for check in checks)
    if json:
        emit({"ok": well, "checks": [vars(check) for check in checks]})
    return 0 if well else 1


@contextlib.contextmanager
def _opened(location: str | None, create: bool = False) -> Iterator[Store]:
    """The store for a command. What nobody foresaw ends as one line, its traceback kept in the store."""
    from orchestrator.store import open_store

    place = location or STORE
    if not create and not _is_there(place):
        raise SpecError(
            f"there is no store at {place}; run something first, or give its place by --store or ENGRAM_STORE"
        )
    opened = open_store(place, create)
    try:
        yield opened
    except KeyboardInterrupt:
        say("engram: stopped at once; what is stored stays, and the same command goes on from there")
        raise
    except (EngramError, BrokenPipeError, typer.Exit):
        raise
    except Exception as error:
        if DEBUG in sys.argv:
            raise
        raise EngramError(_kept(error, opened)) from error


def _is_there(place: str) -> bool:
    """Whether there is something at a store's place; asked of local ones only."""
    return "://" in place or os.path.exists(os.path.expanduser(place))


def _kept(error: Exception, opened: Store) -> str:
    """Write a traceback down; the line that says so."""
    import time
    import traceback

    line = f"unexpected {type(error).__name__}: {_one_line(error)}"
    path = opened.folder("crashes") / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{time.time_ns() % 10**9:09d}.txt"
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{line} (a fault of engram's own; its traceback is in {path})"


def _ended_by(error: Exception) -> int:
    """Say what ended the command, and its exit code: bad usage by typer's own judgement, or something unforeseen."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's, wherever its version keeps them
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
        else:
            context = getattr(error, "ctx", None)
            about = context.command_path if context else "engram"
            say(f"engram: {_one_line(error.format_message())}; see {about} --help")
        return int(error.exit_code)
    if DEBUG in sys.argv:
        import traceback

        traceback.print_exception(error)
    else:
        say(f"engram: unexpected {type(error).__name__}: {_one_line(error)} (with {DEBUG} you see where)")
    return 1


def _one_line(error: object) -> str:
    return " ".join(str(error).split()).removesuffix(".")


def _execution(
    address: str | None,
    together: str | None,
    tolerate: int | None,
    fail_fast: bool | None,
    stop_after: str | None,
    again: bool,
) -> dict[str, Any]:
    """What of the execution was given."""
    from orchestrator import spec

    given: dict[str, Any] = {
        "address": address,
        "tolerate": tolerate,
        "fail_fast": fail_fast,
        "stop_after": spec.duration(stop_after) if stop_after is not None else None,
        "again": again or None,
    }
    if together is not None:
        given["together"] = spec.together(together)
    return {name: value for name, value in given.items() if value is not None or name == "together"}


def _specified(
    what: str,
    fields: list[str] | None,
    preset: str | None,
    sweep: list[str] | None,
    store: str | None,
    execution: dict[str, Any],
) -> Spec:
    from orchestrator import spec

    flags = spec.Spec("", preset, spec.settings(fields or ()), spec.sweeps(sweep or ()), execution, store)
    return spec.specified(what, flags)
