"""The commands of `engram store`: copy it, check it, and remove what no run needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import verify
from orchestrator.cli.options import Json, StoreOption
from orchestrator.cli.store import command_store
from orchestrator.cli.terminal import emit, say, show
from orchestrator.quantities import format_count, format_size, printable

if TYPE_CHECKING:
    from orchestrator.store import Store
    from orchestrator.store.transfer import Transfer

Origin = Annotated[
    str, typer.Argument(metavar="FROM", help="A store: a folder, s3://bucket/prefix or az://container/prefix.")
]
Target = Annotated[str, typer.Argument(metavar="TO", help="Another store. It is created if it does not exist.")]

store_app = typer.Typer(
    help="Copy, check or clean up a store.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@store_app.command("copy")
def copy(origin: Origin, target: Target, json: Json = False) -> int:
    """Copy all results, checkpoints, tracebacks and runs from FROM that are missing in TO.

    Engram checks each result and checkpoint against its digest before it copies the file, and reads every file back. It
    never removes files or replaces results. It replaces the folder of a run if FROM has the longer log. If the copy is
    interrupted, repeat the command to continue. Engram does not follow links in FROM. If it finds damaged files, links
    or pipes, it lists and skips them, and the exit code is 1. To set damaged results aside, use engram store verify
    --store FROM.
    """
    from orchestrator.store.transfer import copy_store

    with command_store(origin) as origin_store, command_store(target, create=True) as target_store:
        return _report([(origin_store, target_store, copy_store(origin_store, target_store))], json)


@store_app.command("sync")
def sync(origin: Origin, target: Target, json: Json = False) -> int:
    """Copy in both directions, so that both stores contain all results and runs.

    This is equivalent to engram store copy FROM TO, followed by engram store copy TO FROM.
    """
    from orchestrator.store.transfer import copy_store

    with command_store(origin) as origin_store, command_store(target, create=True) as target_store:
        pair = origin_store, target_store, copy_store(origin_store, target_store)
        return _report([pair, (target_store, origin_store, copy_store(target_store, origin_store))], json)


@store_app.command("gc")
def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the listed files. By default, they are only listed.")
    ] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """List files in the store that no run needs. To remove them, use --delete.

    This includes results that no run in the store plans (for example because you removed the folder of a run), the
    checkpoints, tracebacks and outputs of such jobs, states of jobs that no unfinished run needs, recordings of models
    in memory, damaged files that were set aside, and results that differed from a stored one. You can use this command
    while runs are in progress.
    """
    from orchestrator.inspection.garbage import find_garbage, remove_garbage
    from orchestrator.quantities import format_size

    with command_store(store) as opened_store:
        garbage = find_garbage(opened_store)
        if delete:
            remove_garbage(opened_store, garbage)
    kinds: dict[str, list[int]] = {}
    for file in garbage:
        kinds.setdefault(file.kind, []).append(file.size)
    if json:
        totals = [{"kind": kind, "files": len(sizes), "bytes": sum(sizes)} for kind, sizes in kinds.items()]
        emit({"deleted": delete, "files": [file.name for file in garbage], "kinds": totals})
        return
    for kind, sizes in kinds.items():
        show(f"{len(sizes):>8,} {kind}, {format_size(sum(sizes))}")
    outcome = "not needed by any run; to remove them, use engram store gc --delete"
    if delete:
        outcome = "removed"
    show(f"{format_count(len(garbage), 'file')} {outcome}" if garbage else "every file is needed by a run")


store_app.command("verify")(verify.verify_store)


def _report(copies: list[tuple[Store, Store, Transfer]], json: bool) -> int:
    if json:
        entries = (
            {"from": origin.location, "to": target.location, **vars(transfer)} for origin, target, transfer in copies
        )
        emit({"copies": list(entries)})
    for origin, target, transfer in copies:
        if not json:
            size = format_size(transfer.bytes)
            files = f"{format_count(transfer.copied, 'file')}, {size}, copied to {target.location}"
            show(f"{files}; {transfer.present:,} existed already")
        for name in transfer.damaged:
            say(f"engram: {origin.location}/{printable(name)} is damaged and was not copied")
        for name, reason in transfer.irregular.items():
            say(f"engram: {origin.location}/{printable(name)} was not copied: {reason}")
    if any(transfer.damaged or transfer.irregular for _, _, transfer in copies):
        return 1
    return 0
