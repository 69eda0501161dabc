"""The commands that verify stored results or a page against their digests, and sign a page."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.options import Json, StoreOption
from orchestrator.cli.store import command_store, path_of
from orchestrator.cli.terminal import emit, say, show, stdout
from orchestrator.errors import SpecError
from orchestrator.quantities import printable
from orchestrator.store import is_there, store_location

if TYPE_CHECKING:
    from orchestrator.inspection.page_checks import SealCheck

STATES = {"agrees": "green", "changed": "bold red", "unchecked": "yellow"}


Page = Annotated[
    str,
    typer.Argument(
        metavar="PAGE|RUN",
        help="A report page, such as report.html, or a run.",
        show_default=False,
        autocompletion=completion.runs,
    ),
]
OptionalPage = Annotated[
    str | None,
    typer.Argument(metavar="PAGE", help="A report page, such as report.html, or a run.", show_default=False),
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="PATH", help="The path of a model, file or data set that the page depends on."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Also exit with code 1 if part of a page could not be checked.")]
PublicKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY.pub", help="The SSH key that must have signed the page.")
]


def verify_page(
    context: typer.Context,
    page: Page,
    file: Files = None,
    strict: Strict = False,
    key: PublicKey = None,
    store: StoreOption = None,
    json: Json = False,
) -> int:
    """Check a report page and its sources against its seal.

    Engram reads the tables from the first store that contains the run: the store that you pass with --store, the store
    that contains the page, or the default store. It then generates the page again from that store and compares the two.
    This command works offline.
    """
    store_flag = None
    if _is_flag(context, "store"):
        store_flag = store
    public = None
    if key is not None:
        public = path_of("--key", key)
    path = _find_page(page, store)
    return _check_page(path, file or [], public, store_flag, store_location(store), json, strict)


Data = Annotated[
    bool,
    typer.Option(
        "--data",
        help="Check the files of data sets instead of results: read all, and compare their digests.",
    ),
]
Decode = Annotated[
    bool,
    typer.Option(
        "--images",
        help="With --data: also decode the images of large data sets, and search them for near copies.",
    ),
]
AuditedData = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|DATASET",
        help="With --data: a run, or a data set such as folder:scans. If left out: the data sets of all runs.",
        show_default=False,
    ),
]


def verify_store(
    data_of: AuditedData = None,
    data: Data = False,
    images: Decode = False,
    store: StoreOption = None,
    json: Json = False,
) -> int:
    """Check every stored table against its digest, or with --data, the files of data sets.

    Engram moves damaged results to quarantine and computes them again when you resume their run. This command works
    offline.
    """
    if data:
        return _check_data(data_of, store, json, images)
    if images:
        raise SpecError("--images requires --data, as in engram store verify --data --images folder:scans")
    if data_of is not None:
        raise SpecError("a run or data set requires --data, as in engram store verify --data folder:scans")
    with command_store(store) as opened_store:
        keys = sorted(opened_store.keys())
        damaged = list(opened_store.verify(keys))
    for _, problem in damaged:
        say(str(problem))
    if json:
        emit({"checked": len(keys), "damaged": [key for key, _ in damaged]})
    else:
        show(f"{len(keys)} results checked, {len(damaged)} damaged")
    return 1 if damaged else 0


def verify(
    context: typer.Context,
    page: OptionalPage = None,
    file: Files = None,
    strict: Strict = False,
    key: PublicKey = None,
    data: Data = False,
    store: StoreOption = None,
    json: Json = False,
) -> int:
    """Check every stored table against its digest, or a report page and its sources against its seal.

    The same as engram store verify, and with a page, as engram report verify.
    """
    if data:
        return _check_data(page, store, json)
    if page is not None:
        return verify_page(context, page, file, strict, key, store, json)
    if key is not None:
        raise SpecError("--key requires a page, as in engram report verify report.html --key KEY.pub")
    if strict:
        raise SpecError("--strict requires a page; in a store, every result is always checked")
    if file:
        raise SpecError("--file requires a page, as in engram report verify report.html --file ...")
    return verify_store(store=store, json=json)


def _check_data(word: str | None, location: str | None, json: bool, images: bool = False) -> int:
    """Read the data sets of a run, of all runs or with this name again. Returns exit code 1 if any has changed."""
    from orchestrator.inspection.data_check import check_data, requested_data

    all_checks = []
    with command_store(location) as opened_store:
        for check in check_data(opened_store, requested_data(opened_store, word), images):
            all_checks.append(check)
            if not json:
                stdout().print(f"{check.state:<10}", style=STATES[check.state], end="")
                stdout().print(printable(f"{check.name}: {check.note}"))
                for note in check.notes:
                    show(f"  {note}")
    counts = Counter(check.state for check in all_checks)
    if json:
        changed = [check.name for check in all_checks if check.state == "changed"]
        notes = [note for check in all_checks for note in check.notes]
        emit({"checked": len(all_checks), "changed": changed, **({"notes": notes} if images else {})})
    else:
        show(f"{counts['agrees']} agree, {counts['changed']} changed, {counts['unchecked']} not checked")
    return 1 if counts["changed"] or counts["unchecked"] else 0


LONGEST = 80  # maximum number of characters of a name in a message


def _find_page(word: str, location: str | None) -> Path:
    """Return the file with this name, or else the page of the run with this name.

    Raises SpecError if neither exists or if the run has no page.
    """
    from orchestrator.inspection import pages, status

    path = path_of("PAGE", word)
    try:
        is_here = path.exists()
    except OSError as error:  # the operating system rejects the name
        raise SpecError(f"PAGE {word[:LONGEST]}: {error.strerror or error}") from None
    if is_here or path.suffix or len(path.parts) > 1 or not is_there(store_location(location)):
        return path
    with command_store(location) as opened_store:
        try:
            journal = status.find(opened_store, word)
        except SpecError as error:
            raise SpecError(f"there is no file {word}, and {error}") from None
        page = pages.page(journal.folder)
    if page is None:
        raise SpecError(f"run {journal.run} has no page; create it with `engram report {journal.run}`")
    return page


def _is_flag(context: typer.Context, name: str) -> bool:
    """Return whether this option was given on the command line rather than through the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def sign(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A report page, or any other file.", show_default=False)],
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Your private SSH key, or the public key if the private key is in an agent.",
            show_default=False,
        ),
    ],
    json: Json = False,
) -> None:
    """Sign a report page with an SSH key, so that others can verify who wrote it.

    Engram writes the signature to FILE.sig. The seal of the page contains the digests of its tables and of the audited
    model and data, so the signature covers these as well. To check the signature, others can use engram report verify
    FILE --key KEY.pub, or ssh-keygen.
    """
    from orchestrator.inspection.signatures import sign_file

    signature = sign_file(path_of("FILE", file), path_of("--key", key))
    if json:
        emit({"file": file, "signature": str(signature)})
    else:
        show(str(signature))


def _check_page(
    path: Path, files: list[str], key: Path | None, store_flag: str | None, default: str, json: bool, strict: bool
) -> int:
    """Verify a page. Returns exit code 1 if anything has changed, or if `strict` is set and anything is unchecked.

    `key` is the public key that must have signed the page, and `store_flag` is the store given by --store.
    """
    from orchestrator.inspection import page_checks

    page = page_checks.open_page(path)
    if store_flag and not is_there(store_flag):
        raise SpecError(f"there is no store at {store_flag}")
    store = page_checks.store_of(page, store_flag, default)
    all_checks: list[SealCheck] = []
    if key is None:
        signed = []
    else:
        signed = [page_checks.check_signature(path, key)]
    for check in chain(signed, page_checks.checks(page, store, files)):
        all_checks.append(check)
        if not json:
            _show(check)
    counts = Counter(check.state for check in all_checks)
    if json:
        emit(
            {
                "page": str(path),
                "store": store.location if store else None,
                "checks": [vars(check) for check in all_checks],
            }
        )
    else:
        comparison = ""
        if store:
            comparison = f", compared with the store {store.location}"
        show(f"{counts['agrees']} agree, {counts['changed']} changed, {counts['unchecked']} not checked{comparison}")
        if counts["unchecked"]:
            hint = " (--strict makes this exit 1)"
            if strict or counts["changed"]:
                hint = ""
            show(f"{counts['unchecked']} of {len(all_checks)} items were not checked, so they may have changed{hint}")
    if counts["changed"] or (strict and counts["unchecked"]):
        return 1
    return 0


def _show(check: SealCheck) -> None:
    console = stdout()
    console.print(f"{check.state:<10}", style=STATES[check.state], end="")
    console.print(printable(f"{check.what} {check.name}" + (f": {check.note}" if check.note else "")))
    if check.state == "changed" and check.found and check.sealed:
        console.print(f"{'':<10}SHA-256 now {check.found}")
        console.print(f"{'':<10}as sealed   {check.sealed}")
