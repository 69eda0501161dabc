"""The command that selects an audit by asking questions, writes its YAML file and offers to run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import Json, StoreOption
from orchestrator.cli.store import one_line, output_file, path_of, store_option
from orchestrator.cli.terminal import emit, say, show
from orchestrator.errors import EngramError, SpecError, StoreError

if TYPE_CHECKING:
    from orchestrator.guide import Guide
    from orchestrator.scaffold import NewFiles
    from tasks.contract.situation import Asked

TRIES = 5  # attempts per question
ROUNDS = 4  # attempts to get a consistent set of answers
Answers = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FIELD=VALUE]...", help="Answers to give in advance."),
]
Have = Annotated[str | None, typer.Option(metavar="data|model|outputs", help="What you have.")]
Fear = Annotated[
    str | None, typer.Option(metavar="image|set|answer|secret|unknown", help="What you think the model may memorise.")
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="The YAML file to write.")]
Run = Annotated[
    bool | None, typer.Option("--run/--no-run", help="Run the audit immediately. [default: ask]", show_default=False)
]
new_app = typer.Typer(
    help="Create your own audit or training program.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def ask(
    answers: Answers = None,
    have: Have = None,
    fear: Fear = None,
    out: Out = "audit.yaml",
    run: Run = None,
    store: StoreOption = None,
    json: Json = False,
) -> int:
    """Find the right audit by answering a few questions.

    Writes a YAML file with comments, estimates how long the audit takes, and offers to run it. Without a terminal, pass
    all answers as --have, --fear and FIELD=VALUE, in any order.
    """
    from orchestrator.guide import fears_with, find_guide, with_full_names
    from orchestrator.spec.specification import settings
    from orchestrator.store import store_location
    from tasks.contract.situation import HAVE

    store_location(store)  # refused before the first question
    file = _free(out)
    known_answers = settings(answers or ())
    if have is None:
        have = _choice("have", "What do you have?", {str(name): words for name, words in HAVE.items()})
    if fear is None and have in HAVE:
        fear = _choice("fear", "What may be memorised?", fears_with(have))  # type: ignore[arg-type]
    guide = find_guide(have, fear or "")
    if guide.situation.hint and _is_interactive():
        say(guide.situation.hint)
    known_answers = with_full_names(guide, known_answers)
    _check_names(known_answers, guide)
    collected = _collect(guide, known_answers)
    summary = _write_priced(guide, collected, file, out, store)
    if json and not run:
        emit(summary)
        return 0
    if not json:
        show(f"{guide.audit}, written to {out}: {summary['time'] or 'start by sending the probes to the owner'}")
        if summary["stand_in"]:
            say(f"the answer will be {summary['stand_in']}; name your own to audit it instead")
    if summary["time"] is None:
        show(f"next: {summary['next']}")
        return 0
    return _run(file, summary["next"], store, run, json)


def _collect(guide: Guide, answers: Mapping[str, str]) -> dict[str, str]:
    """Collect the answers to all questions, by field. Each answer, typed or given in advance, is checked on its own."""
    from orchestrator.guide import check_answer

    if not _is_interactive():
        _check_answered(
            [
                field_question.field
                for field_question in guide.situation.asks
                if not field_question.optional and field_question.field not in answers
            ]
        )
    collected = {}
    for field_question in guide.situation.asks:
        if field_question.field in answers or not _is_interactive():
            answer = answers.get(field_question.field, field_question.default)
            check_answer(guide, field_question, answer)
            collected[field_question.field] = answer or (field_question.default if field_question.optional else "")
        else:
            collected[field_question.field] = _ask_for(guide, field_question, field_question.default)
    return collected


def _ask_for(guide: Guide, field_question: Asked, default: str) -> str:
    """Ask one question and return the answer, checked on its own."""
    from orchestrator.guide import check_answer

    hint = ""
    if field_question.example:
        hint = f"such as {field_question.example}"
    return _read_answer(
        field_question.question, default, hint, lambda answer: check_answer(guide, field_question, answer)
    )


def _write_priced(guide: Guide, answers: dict[str, str], file: Path, out: str, store: str | None) -> dict[str, Any]:
    """Write the file for these answers and estimate its run time.

    If the answers are inconsistent, an interactive session repeats the questions for the fields named in the error. The
    error is raised and the file removed if the session is not interactive, if no answer changes, or after ROUNDS
    attempts.
    """
    for remaining in reversed(range(ROUNDS)):
        try:
            return _try_write(guide, answers, file, out, store)
        except StoreError:
            raise
        except EngramError as error:
            if not remaining or not _is_interactive():
                raise
            changed = _ask_again(guide, answers, error)
            if changed == answers:
                raise
            answers = changed
    raise AssertionError("unreachable: the last round returns or raises")


def _ask_again(guide: Guide, answers: Mapping[str, str], error: EngramError) -> dict[str, str]:
    """Repeat the questions for the fields named in the error. An empty line keeps the previous answer."""
    from orchestrator.guide import fields_in_error

    say(f"  {one_line(error)}")
    changed = dict(answers)
    for field_question in fields_in_error(guide, answers, str(error)):
        changed[field_question.field] = _ask_for(guide, field_question, answers[field_question.field])
    return changed


def _try_write(guide: Guide, answers: Mapping[str, str], file: Path, out: str, store: str | None) -> dict[str, Any]:
    """Write and plan the file. If planning fails, remove the file so that the same command can be repeated."""
    from orchestrator.guide import document, has_secret, stand_in_of, waits_for_table

    waits = waits_for_table(guide, answers)
    stand_in = stand_in_of(guide, answers)  # raises if the answers are inconsistent, before any file is written
    _create_file(file, has_secret(guide, answers))
    try:
        _write(file, document(guide, answers, out))
        price = _price_summary(file, out, store, waits)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return {"audit": guide.audit, "file": str(file), "stand_in": "" if waits else stand_in, **price}


def _create_file(file: Path, secret: bool) -> None:
    """Create an empty file. If it will contain a secret, only its owner may read it."""
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o666))
    except OSError as error:
        raise EngramError(f"cannot write {file}: {error.strerror or error}") from None


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except UnicodeEncodeError:
        raise SpecError(f"{file}: an answer contains a file name that is not UTF-8, which YAML cannot store") from None
    except OSError as error:
        raise EngramError(f"cannot write {file}: {error.strerror or error}") from None


def _check_names(answers: Mapping[str, str], guide: Guide) -> None:
    """Raise SpecError for an answer that belongs to no question."""
    from orchestrator.spec.fields import nearest

    fields = [field_question.field for field_question in guide.situation.asks]
    for name in answers:
        if name not in fields:
            raise SpecError(
                f"{name} is not a field of this audit; the fields are {', '.join(fields)}{nearest(name, fields)}"
            )


def _price_summary(file: Path, out: str, store: str | None, waits: bool) -> dict[str, Any]:
    """Return the expected time as text and the next command, which names the file as the user did."""
    from orchestrator.inspection.preview import preview
    from orchestrator.spec.resolve import pin_cells, read_spec, resolve_cells
    from orchestrator.spec.specification import Spec

    if waits:
        pin_cells(resolve_cells(read_spec(str(file), Spec("", store=store))), {})
        next_command = f"engram probes {out} --out probes{store_option(store)}"
        return {"time": None, "expected_seconds": None, "next": next_command}
    price = preview(read_spec(str(file), Spec("", store=store)))
    next_command = f"engram run {out}{store_option(store)}"
    return {"time": price["time"], "expected_seconds": price["expected_seconds"], "next": next_command}


def _run(file: Path, next_command: str, store: str | None, run: bool | None, json: bool) -> int:
    """Run the file if the user agrees; otherwise print the command that runs it."""
    from orchestrator.cli.run import run as start

    if run is None and _is_interactive():
        run = _choice("run", "Run it now?", {"yes": "", "no": ""}, "no") == "yes"
    if not run:
        show(f"next: {next_command}")
        return 0
    return start(str(file), store=store, json=json)


def _free(out: str) -> Path:
    """Return the path to write. Raises SpecError if the name does not end in .yaml or .yml, or if the file exists."""
    file = path_of("--out", out)
    if file.suffix not in (".yaml", ".yml"):
        raise SpecError(f"--out {out}: the file must end in .yaml")
    try:
        if file.exists():
            raise SpecError(f"--out {out}: the file exists; give another name")
        if not file.absolute().parent.is_dir():
            raise SpecError(f"--out {out}: the folder {file.parent} does not exist")
    except OSError as error:  # the operating system rejects the name
        raise SpecError(f"--out {out}: {error.strerror or error}") from None
    return output_file("--out", out)


def _check_answered(fields_without_answer: Sequence[str]) -> None:
    """Raise SpecError if answers are missing without a terminal. Defaults, such as sample data, are never assumed."""
    if fields_without_answer:
        fields = ", ".join(f"{field}=..." for field in fields_without_answer)
        raise SpecError(f"no terminal is available, so these answers are required: {fields}; no file was written")


def _is_interactive() -> bool:
    """Return whether the user can be prompted, that is, whether standard input is a terminal."""
    return sys.stdin.isatty()


def _choice(name: str, question: str, choices: Mapping[str, str], default: str = "") -> str:
    """Ask for one of the choices and return it. Raises SpecError without a terminal."""
    from orchestrator.spec.fields import nearest

    if not _is_interactive():
        raise SpecError(f"--{name} is missing; it must be one of {', '.join(choices)}")

    def check(text: str) -> None:
        if text not in choices:
            raise SpecError(f"{text!r} is not one of {', '.join(choices)}{nearest(text, choices)}")

    for choice, words in choices.items():
        if words:
            say(f"  {choice:<8} {words}")
    return _read_answer(question, default, ", ".join(choices), check)


def _read_answer(question: str, default: str, hint: str, check: Callable[[str], Any]) -> str:
    """Return the first answer that passes the check.

    Raises SpecError with the check's message after TRIES rejected answers.
    """
    for remaining in reversed(range(TRIES)):
        prompt = f"{question} " + (f"({hint}) " if hint else "") + (f"[{default}] " if default else "")
        print(prompt, end="", file=sys.stderr, flush=True)  # noqa: T201
        line = sys.stdin.readline()
        if not line:
            raise SpecError("the input ended before all questions were answered; no file was written")
        answer = line.strip() or default
        try:
            check(answer)
        except EngramError as error:
            if not remaining:
                raise SpecError(f"no answer was accepted in {TRIES} tries: {error}") from None
            say(f"  {one_line(error)}")
        else:
            return answer
    raise AssertionError("unreachable: the last try returns or raises")


@new_app.callback()
def new() -> None:
    pass


@new_app.command("audit")
def audit(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The audit's name, as in engram run NAME.", show_default=False)
    ],
    into: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="The folder to create it in. [default: the current folder, or Engram's checkout]"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create a working audit in a single file, with a test.

    In your own folder, the audit is a package. Engram finds it as soon as you install it.
    """
    from orchestrator.scaffold import new_audit

    if into is None:
        folder = None
    else:
        folder = Path(path_of("--into", into))
    _show_files(new_audit(name, folder), json)


@new_app.command("training")
def training(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="The folder to create it in. [default: the current folder]", show_default=False
        ),
    ] = ".",
    json: Json = False,
) -> None:
    """Create a training program, train.py, that the audit membership runs.

    Replace its data, model and loss by yours.
    """
    from orchestrator.scaffold.training_program import new_training

    _show_files(new_training(Path(path_of("FOLDER", folder))), json)


def _show_files(files: NewFiles, json: bool) -> None:
    if json:
        emit({"files": list(map(str, files.files)), "next": list(files.following)})
        return
    for path in files.files:
        show(str(path))
    say("next:")
    for command in files.following:
        say(f"  {command}")
