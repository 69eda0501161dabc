"""Whether a page and what it rests on are still as they were sealed. Nothing is asked of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.errors import Absent, SpecError, StoreError
from orchestrator.inspection import evidence, locations, page_seal, status
from orchestrator.inspection.evidence import AuditedItem, ResultTable, Thing
from orchestrator.inspection.page_seal import Seal
from orchestrator.inspection.search_results import TRIALS, is_search
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store, is_there, open_store, read_each
from orchestrator.store.content import content
from tasks.files import regular_bytes

State = Literal["agrees", "changed", "unchecked"]


@dataclass(frozen=True)
class SealCheck:
    """One thing of which the page's seal gives the digest."""

    what: str  # page, table, run, data set, model, ...
    name: str
    state: State
    sealed: str  # the digest in the seal; empty for a file that is not in it
    found: str  # the digest now; empty where it is not known
    note: str = ""  # what is the matter, or where it was found


@dataclass(frozen=True)
class SealedPage:
    """A page on the disk with the seal that it carries."""

    path: Path
    data: bytes
    seal: Seal


def open_page(path: Path) -> SealedPage:
    """Raises SpecError for a page that cannot be read, and EngramError for one without a seal."""
    try:
        data = regular_bytes(path)
    except OSError as error:
        raise SpecError(f"cannot read the page {path}: {error.strerror or error}") from None
    return SealedPage(path, data, page_seal.read(data, str(path)))


def store_of(page: SealedPage, named: str | None, default: str) -> Store | None:
    """The first store that has the page's runs: the one that is named, the one that the page lies in, the default."""
    for place in (*([named] if named else []), *map(str, page.path.absolute().parents[2:3]), default):
        try:
            store = open_store(place, create=False) if is_there(place) else None
        except StoreError:  # not a store, such as the folder into which the page was saved
            continue
        if store is not None and all((store.folder("runs") / run).is_dir() for run in page.seal.runs):
            return store
    return None


def checks(page: SealedPage, store: Store | None, files: Sequence[str]) -> Iterator[SealCheck]:
    """The page itself, its tables in the store, and what it rests on: as given in `files`, else where it was audited.

    Raises SpecError for a file that is not there.
    """
    given = {file: locations.existing(file) for file in files}
    yield _page(page)
    for table in page.seal.tables:
        yield _table(table, store)
    places, unreadable = _things_in_runs(page.seal, store)
    yield from unreadable
    for entry in page.seal.audited:
        match = next(
            ((file, thing) for file, path in given.items() if (thing := locations.find_at_path(entry, path))), None
        )
        if match is not None:
            given.pop(match[0])
            yield _thing(entry, match[1], f"as {match[0]}")
        else:
            yield _thing(entry, places.get(locations.key(entry)) or locations.find_by_name(entry))
    for file, path in given.items():
        found = locations.file_digest(path) if path.is_file() else ""
        yield SealCheck("file", file, "changed", "", found, "the page rests on nothing with this content or name")


def _things_in_runs(seal: Seal, store: Store | None) -> tuple[Mapping[locations.Key, Thing], list[SealCheck]]:
    """The things that the page's runs name, and a check for each run whose config cannot be read."""
    places: dict[locations.Key, Thing] = {}
    unreadable: list[SealCheck] = []
    if store is None:
        return places, unreadable
    for run in seal.runs:
        try:
            places |= locations.run_things(run, store)
        except StoreError as error:
            unreadable.append(SealCheck("run", run, "changed", "", "", str(error)))
    return places, unreadable


def _page(page: SealedPage) -> SealCheck:
    sealed = page.seal.page
    found = page_seal.digest_of_page(page.data, sealed)
    state: State = "agrees" if found == sealed else "changed"
    return SealCheck(
        "page", page.path.name, state, sealed, found, "" if found == sealed else "its text has been changed"
    )


def _table(table: ResultTable, store: Store | None) -> SealCheck:
    name = f"{table.name} of {table.run}"
    if store is None:
        return SealCheck("table", name, "unchecked", table.digest, "", "its store is not here; name it with --store")
    contents: list[tuple[str, str]] = []
    try:
        journal = Journal(store.folder("runs") / table.run)
        if table.name == TRIALS and is_search(journal.about()):
            return _compare_digests(table, [evidence.trials_content(journal)])
        roots = status.roots(journal)
        for key, rows in read_each(store, roots.get(table.name, ())):
            if not isinstance(rows, Exception):
                contents.append((key, content(rows)))
            elif not isinstance(rows, Absent):
                raise rows
    except (StoreError, OSError) as error:
        return SealCheck("table", name, "changed", table.digest, "", str(error))
    return _compare_digests(table, contents)


def _compare_digests(table: ResultTable, contents: Sequence[tuple[str, str]]) -> SealCheck:
    """The check of a table whose results have these keys and content digests now."""
    name = f"{table.name} of {table.run}"
    found = evidence.digest_of_table(contents)
    if found == table.digest:
        return SealCheck("table", name, "agrees", table.digest, found)
    note = "its results are others now"
    if len(contents) != table.stored:
        note = f"{table.stored} of {table.planned} results were stored when the page was written, now {len(contents)}"
    return SealCheck("table", name, "changed", table.digest, found, note)


def _thing(entry: AuditedItem, thing: Thing | None, place: str = "") -> SealCheck:
    """The check of a thing found here, or of None."""
    if thing is None:
        note = "it is not known where it lies; name it with --file"
        return SealCheck(entry.what, entry.name, "unchecked", entry.digest, "", note)
    try:
        found = locations.current_digest(thing)
    except (ValueError, OSError) as error:
        return SealCheck(entry.what, entry.name, "unchecked", entry.digest, "", f"{error}; name it with --file")
    if found == entry.digest:
        return SealCheck(entry.what, entry.name, "agrees", entry.digest, found, place)
    note = " ".join(["its content is another now", *([f"({place})"] if place else [])])
    return SealCheck(entry.what, entry.name, "changed", entry.digest, found, note)
