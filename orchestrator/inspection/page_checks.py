"""Checks of a page and its sources against the page's seal. No network is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import Absent, EngramError, SpecError, StoreError
from orchestrator.inspection import page_seal, pages, status
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.inspection.page_contents import first_difference, version_of
from orchestrator.inspection.page_seal import AuditedItem, ResultTable, Seal, Thing
from orchestrator.inspection.search_results import TRIALS, is_search
from orchestrator.inspection.signatures import SUFFIX, signature_problem
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store, is_there, open_store, read_each
from orchestrator.store.entry import content
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import ModelFile
from tasks.language_models.language_model import LanguageModel
from tasks.models.custom import Named
from tasks.question_answering.predictions import Predictions
from tasks.worker.files import File, FileError, check_regular, expand_home, regular_bytes

# The kinds that a name is parsed as, in this order: a file of any name can be any of them.
KINDS: tuple[Any, ...] = (Dataset, LanguageModel, ModelFile, Predictions, Named, File)
Key = tuple[str, str, str]  # the noun of an item on a page, its name, its digest
State = Literal["agrees", "changed", "unchecked"]


def _key(entry: AuditedItem) -> Key:
    return entry.what, entry.name, entry.digest


def _run_things(run: str, store: Store) -> dict[Key, Thing]:
    """The items that the run's config names, at their audited paths. Raises StoreError if it cannot be read."""
    found: dict[Key, Thing] = {}
    for _, thing in page_seal.things(Journal(store.folder("runs") / run)):
        named: Any = thing
        found[page_seal.noun(thing), page_seal.public_name(thing), named.digest] = thing
    return found


def _find_by_name(entry: AuditedItem) -> Thing | None:
    """The item if its name locates it: an embedded or usual data set, a model of the hub's cache, a network.

    None for an item at a path, which the page does not contain.
    """
    thing = _read(entry, entry.name)
    if isinstance(thing, Dataset):
        return None if ":" in entry.name else thing
    if isinstance(thing, LanguageModel):
        return thing if entry.name.startswith("hub:") else None
    return thing if isinstance(thing, Named) else None


def _existing(file: str) -> Path:
    """The file or folder of this path. Raises SpecError if it does not exist or cannot be read."""
    try:
        path = expand_home(file).absolute()
    except FileError as error:
        raise SpecError(f"--file {error}") from None
    try:
        if not path.is_dir():
            check_regular(path)
            path.open("rb").close()
    except FileError as error:
        raise SpecError(f"--file {error}") from None
    except OSError as error:
        raise SpecError(f"--file {file}: {error.strerror or error}") from None
    return path


def _find_at_path(entry: AuditedItem, path: Path) -> Thing | None:
    """The item at this path; None if neither the content nor the name matches."""
    if entry.of_bytes and path.is_file() and _file_digest(path) == entry.digest:
        return File(str(path))
    name, shape, options = entry.name.partition("#") if entry.what == Dataset.noun else (entry.name, "", "")
    before = name.removesuffix(path.name)
    if before == name or (before and before[-1] not in ":+"):
        return None
    return _read(entry, f"{before}{path}{shape}{options}")


def _file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes. Raises SpecError if it cannot be read completely."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(f"--file {path}: {error.strerror or error}") from None


def _current_digest(thing: Thing) -> str:
    """The digest of the item's present content. Raises ValueError or OSError if it cannot be read."""
    unpinned: Any = replace(thing, digest="")  # type: ignore[type-var]
    pinned: Any = catalog.pin(unpinned, {}) if isinstance(unpinned, Dataset) else unpinned.pin({})
    return str(pinned.digest)


def _read(entry: AuditedItem, text: str) -> Thing | None:
    """The item that this text describes; None if there is none, or if its kind belongs to another package."""
    for kind in KINDS:
        if kind.noun == entry.what:
            try:
                thing: Thing = kind.parse(text)
            except ValueError:
                continue
            return thing
    return None


@dataclass(frozen=True)
class SealCheck:
    """The check of one item whose digest is in the page's seal."""

    what: str  # page, table, run, data set, model, ...
    name: str
    state: State
    sealed: str  # the digest in the seal; empty for a file that is not in it
    found: str  # the present digest; empty if unknown
    note: str = ""  # the problem, or the location of the item


def check_signature(path: Path, key: Path) -> SealCheck:
    """Check that a page's signature is by this public key. Raises SpecError if the file is not a public key."""
    problem = signature_problem(path, key)
    return SealCheck(
        "signature", path.name + SUFFIX, "changed" if problem else "agrees", "", "", problem or f"by {key}"
    )


@dataclass(frozen=True)
class SealedPage:
    """A page on disk and its seal."""

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
    """The first store that has the page's runs: the named one, the one that contains the page, or the default."""
    for place in (*([named] if named else []), *map(str, page.path.absolute().parents[2:3]), default):
        try:
            store = open_store(place, create=False) if is_there(place) else None
        except StoreError:  # not a store, such as the folder into which the page was saved
            continue
        if store is not None and all((store.folder("runs") / run).is_dir() for run in page.seal.runs):
            return store
    return None


def checks(page: SealedPage, store: Store | None, files: Sequence[str]) -> Iterator[SealCheck]:
    """Check the page, its tables in the store, and its sources, at the paths in `files` or where they were audited.

    With a store, all tables and items of its runs are checked, even if the seal omits some, and the page is drawn
    again. Raises SpecError for a file that does not exist.
    """
    given = {file: _existing(file) for file in files}
    yield _page(page)
    for table in page.seal.tables:
        yield _table(table, store)
    if store is not None:
        yield from _left_out(page.seal, store)
    yield _contents(page, store)
    places, unreadable = _things_in_runs(page.seal, store)
    yield from unreadable
    for entry in page.seal.audited:
        match = next(((file, thing) for file, path in given.items() if (thing := _find_at_path(entry, path))), None)
        if match is not None:
            given.pop(match[0])
            yield _thing(entry, match[1], f"as {match[0]}")
        else:
            yield _thing(entry, places.get(_key(entry)) or _find_by_name(entry))
    for file, path in given.items():
        found = _file_digest(path) if path.is_file() else ""
        yield SealCheck("file", file, "changed", "", found, "the page depends on no file with this content or name")


def _contents(page: SealedPage, store: Store | None) -> SealCheck:
    """Compare the page with the page drawn again from the store."""
    check = SealCheck("contents", page.path.name, "unchecked", "", "")
    if store is None:
        return replace(check, note="its store was not found; give it by --store")
    if not page.seal.runs or len(page.seal.runs) > 2:
        return replace(check, note="its seal must name one or two runs")
    difference: str | None = ""
    for show_images in (False, True):
        try:
            drawn = pages.redraw(store, page.seal.runs, show_images)
        except EngramError as error:
            return replace(check, note=str(error))
        here, there = version_of(drawn), version_of(page.data)
        if here != there:
            return replace(check, note=f"it was written by Engram {there or '(unknown version)'}; this is {here}")
        for candidate in (drawn, page_seal.make_standalone(drawn)):
            digest = page_seal.read(candidate, "the page drawn again").page
            found = first_difference(page.data, page.seal.page, candidate, digest)
            if found is None:
                return replace(check, state="agrees", note="as drawn from the store")
            difference = difference or found
    return replace(check, state="changed", note=f"the store has other results: {difference}")


def _left_out(seal: Seal, store: Store) -> Iterator[SealCheck]:
    """The tables and items of the page's runs that its seal does not name."""
    sealed_tables = {(table.run, table.name) for table in seal.tables}
    sealed_things = {_key(entry) for entry in seal.audited}
    note = "the page's seal does not name it"
    for run in seal.runs:
        try:
            journal = Disclosure().journal(store.folder("runs", run))
            for table in page_seal.tables(journal, store):
                if (table.run, table.name) not in sealed_tables:
                    name = f"{table.name} of {table.run}"
                    yield SealCheck("table", name, "changed", "", table.digest, note)
            for entry in page_seal.audited_items(journal, store):
                if _key(entry) not in sealed_things:
                    yield SealCheck(entry.what, entry.name, "changed", "", entry.digest, note)
        except (StoreError, OSError) as error:
            yield SealCheck("run", run, "unchecked", "", "", str(error))


def _things_in_runs(seal: Seal, store: Store | None) -> tuple[Mapping[Key, Thing], list[SealCheck]]:
    """The items that the page's runs name, and a check for each run whose config cannot be read."""
    places: dict[Key, Thing] = {}
    unreadable: list[SealCheck] = []
    if store is None:
        return places, unreadable
    for run in seal.runs:
        try:
            places |= _run_things(run, store)
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
        return SealCheck("table", name, "unchecked", table.digest, "", "its store was not found; give it by --store")
    contents: list[tuple[str, str]] = []
    try:
        journal = Journal(store.folder("runs") / table.run)
        if table.name == TRIALS and is_search(journal.about()):
            return _compare_digests(table, [page_seal.trials_content(journal)])
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
    found = page_seal.digest_of_table(contents)
    if found == table.digest:
        return SealCheck("table", name, "agrees", table.digest, found)
    note = "its results have changed"
    if len(contents) != table.stored:
        note = f"{table.stored} of {table.planned} results were stored when the page was written, now {len(contents)}"
    return SealCheck("table", name, "changed", table.digest, found, note)


def _thing(entry: AuditedItem, thing: Thing | None, place: str = "") -> SealCheck:
    """The check of an item found on this machine, or of None."""
    if thing is None:
        note = "its location is unknown; give it by --file"
        return SealCheck(entry.what, entry.name, "unchecked", entry.digest, "", note)
    try:
        found = _current_digest(thing)
    except (ValueError, OSError) as error:
        return SealCheck(entry.what, entry.name, "unchecked", entry.digest, "", f"{error}; give it by --file")
    if found == entry.digest:
        return SealCheck(entry.what, entry.name, "agrees", entry.digest, found, place)
    note = " ".join(["its content has changed", *([f"({place})"] if place else [])])
    return SealCheck(entry.what, entry.name, "changed", entry.digest, found, note)
