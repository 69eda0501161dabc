"""Check a page and its sources against the page's seal. No network is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import Absent, EngramError, SpecError, StoreError
from orchestrator.inspection import item_history, page_seal, pages, status
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.inspection.page_contents import first_difference, version_of
from orchestrator.inspection.page_seal import AuditedItem, PinnedItem, ResultTable, Seal
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

# Kinds to try when parsing a name, in this order. A file of any name could be any of them.
KINDS: tuple[Any, ...] = (Dataset, LanguageModel, ModelFile, Predictions, Named, File)
Key = tuple[str, str, str]  # noun of an item on a page, name, digest
State = Literal["agrees", "changed", "unchecked"]


def _key(entry: AuditedItem) -> Key:
    return entry.what, entry.name, entry.digest


def _items_of_run(run: str, store: Store) -> dict[Key, PinnedItem]:
    """Return the items named in the run's configuration, at their audited paths.

    Raises StoreError if it is unreadable.
    """
    items: dict[Key, PinnedItem] = {}
    for _, pinned_item in page_seal.pinned_items(Journal(store.folder("runs") / run)):
        named: Any = pinned_item
        items[page_seal.noun(pinned_item), page_seal.public_name(pinned_item), named.digest] = pinned_item
    return items


def _find_by_name(entry: AuditedItem) -> PinnedItem | None:
    """Return the item if its name suffices to find it: an embedded or standard data set, a cached hub model, a network.

    Returns None for an item at a path, because the page does not contain paths.
    """
    pinned_item = _read(entry, entry.name)
    if isinstance(pinned_item, Dataset):
        return None if ":" in entry.name else pinned_item
    if isinstance(pinned_item, LanguageModel):
        if entry.name.startswith("hub:"):
            return pinned_item
        return None
    if isinstance(pinned_item, Named):
        return pinned_item
    return None


def _existing(file: str) -> Path:
    """Return the file or folder at this path. Raises SpecError if it does not exist or cannot be read."""
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


def _find_at_path(entry: AuditedItem, path: Path) -> PinnedItem | None:
    """Return the item at this path, or None if neither its content nor its name matches."""
    if entry.of_bytes and path.is_file() and _file_digest(path) == entry.digest:
        return File(str(path))
    if entry.what == Dataset.noun:
        name, shape, options = entry.name.partition("#")
    else:
        name = entry.name
        shape = ""
        options = ""
    prefix = name.removesuffix(path.name)
    if prefix == name or (prefix and prefix[-1] not in ":+"):
        return None
    return _read(entry, f"{prefix}{path}{shape}{options}")


def _file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes. Raises SpecError if the file cannot be read completely."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(f"--file {path}: {error.strerror or error}") from None


def _current_digest(pinned_item: PinnedItem) -> str:
    """Return the digest of the item's current content. Raises ValueError or OSError if it cannot be read."""
    unpinned: Any = replace(pinned_item, digest="")  # type: ignore[type-var]
    pinned: Any = catalog.pin(unpinned, {}) if isinstance(unpinned, Dataset) else unpinned.pin({})
    return str(pinned.digest)


def _read(entry: AuditedItem, text: str) -> PinnedItem | None:
    """Parse the item that this text describes.

    Returns None if there is none, or if its kind belongs to another package.
    """
    for kind in KINDS:
        if kind.noun == entry.what:
            try:
                pinned_item: PinnedItem = kind.parse(text)
            except ValueError:
                continue
            return pinned_item
    return None


@dataclass(frozen=True)
class SealCheck:
    """The result of checking one item whose digest is in the page's seal."""

    what: str  # page, table, run, data set, model, ...
    name: str
    state: State
    sealed: str  # digest in the seal, empty for a file that is not in it
    found: str  # current digest, empty if unknown
    note: str = ""  # the problem, or where the item was found


def check_signature(path: Path, key: Path) -> SealCheck:
    """Check that a page was signed with this public key. Raises SpecError if the file is not a public key."""
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
    """Read a page and its seal. Raises SpecError if the page cannot be read, and EngramError if it has no seal."""
    try:
        data = regular_bytes(path)
    except OSError as error:
        raise SpecError(f"cannot read the page {path}: {error.strerror or error}") from None
    return SealedPage(path, data, page_seal.read(data, str(path)))


def store_of(page: SealedPage, store_flag: str | None, default: str) -> Store | None:
    """Return the first store with the page's runs: the one given, the one that contains the page, or the default."""
    own_folders = map(str, page.path.absolute().parents[1 if page.seal.item else 2 :][:1])
    enough = any if page.seal.item else all  # the runs that the page of an item lists may have been removed
    for location in (*([store_flag] if store_flag else []), *own_folders, default):
        try:
            store = None
            if is_there(location):
                store = open_store(location, create=False)
        except StoreError:  # not a store, for example the folder where the page was saved
            continue
        if store is not None and enough((store.folder("runs") / run).is_dir() for run in page.seal.runs):
            return store
    return None


def checks(page: SealedPage, store: Store | None, files: Sequence[str]) -> Iterator[SealCheck]:
    """Check the page, its tables in the store, and its sources, at the paths in `files` or where they were audited.

    With a store, all tables and items of the page's runs are checked, even if the seal omits some, and the page is
    redrawn. Raises SpecError for a file that does not exist.
    """
    unmatched_files = {file: _existing(file) for file in files}
    yield _page(page)
    for table in page.seal.tables:
        yield _table(table, store)
    if store is not None and page.seal.item:
        yield from _runs_of_item(page.seal, store)
    elif store is not None:
        yield from _left_out(page.seal, store)
    yield _contents(page, store)
    items_of_runs, unreadable = _items_in_runs(page.seal, store)
    yield from unreadable
    for entry in page.seal.audited:
        match = next(
            (
                (file, pinned_item)
                for file, path in unmatched_files.items()
                if (pinned_item := _find_at_path(entry, path))
            ),
            None,
        )
        if match is not None:
            unmatched_files.pop(match[0])
            yield _check_item(entry, match[1], f"as {match[0]}")
        else:
            yield _check_item(entry, items_of_runs.get(_key(entry)) or _find_by_name(entry))
    for file, path in unmatched_files.items():
        digest = ""
        if path.is_file():
            digest = _file_digest(path)
        yield SealCheck("file", file, "changed", "", digest, "the page depends on no file with this content or name")


def _contents(page: SealedPage, store: Store | None) -> SealCheck:
    """Compare the page with the page redrawn from the store."""
    check = SealCheck("contents", page.path.name, "unchecked", "", "")
    if store is None:
        return replace(check, note="its store was not found; give it by --store")
    if not page.seal.item and (not page.seal.runs or len(page.seal.runs) > 2):
        return replace(check, note="its seal must name one or two runs")
    difference: str | None = ""
    for show_images in (False,) if page.seal.item else (False, True):
        try:
            redrawn_page = _redraw(page.seal, store, show_images)
        except EngramError as error:
            return replace(check, note=str(error))
        drawn_version = version_of(redrawn_page)
        page_version = version_of(page.data)
        if drawn_version != page_version:
            return replace(
                check, note=f"it was written by Engram {page_version or '(unknown version)'}; this is {drawn_version}"
            )
        for candidate in (redrawn_page, page_seal.make_standalone(redrawn_page)):
            digest = page_seal.read(candidate, "the page drawn again").page
            difference_here = first_difference(page.data, page.seal.page, candidate, digest)
            if difference_here is None:
                return replace(check, state="agrees", note="as drawn from the store")
            difference = difference or difference_here
    return replace(check, state="changed", note=f"the store has other results: {difference}")


def _redraw(seal: Seal, store: Store, show_images: bool) -> bytes:
    """Draw a page with this seal from the store. Raises EngramError if it cannot be drawn."""
    if not seal.item:
        return pages.redraw(store, seal.runs, show_images)
    item = item_history.read_history(store).items.get(seal.item)
    if item is None:
        raise EngramError("the store has no run that examined this content")
    return pages.redraw_item(store, item.digest, item.page)


def _runs_of_item(seal: Seal, store: Store) -> Iterator[SealCheck]:
    """Yield the runs that only the page of an item or only the store has."""
    item = item_history.read_history(store).items.get(seal.item)
    stored = () if item is None else item.runs
    for run in seal.runs:
        if run not in stored:
            yield SealCheck("run", run, "changed", "", "", "the page lists it, but the store has no such run")
    for run in stored:
        if run not in seal.runs:
            yield SealCheck("run", run, "changed", "", "", "the page does not list this run of the same content")


def _left_out(seal: Seal, store: Store) -> Iterator[SealCheck]:
    """Yield the tables and items of the page's runs that the seal does not list."""
    sealed_tables = {(table.run, table.name) for table in seal.tables}
    sealed_items = {_key(entry) for entry in seal.audited}
    note = "the page's seal does not name it"
    for run in seal.runs:
        try:
            journal = Disclosure().journal(store.folder("runs", run))
            for table in page_seal.tables(journal, store):
                if (table.run, table.name) not in sealed_tables:
                    name = f"{table.name} of {table.run}"
                    yield SealCheck("table", name, "changed", "", table.digest, note)
            for entry in page_seal.audited_items(journal, store):
                if _key(entry) not in sealed_items:
                    yield SealCheck(entry.what, entry.name, "changed", "", entry.digest, note)
        except (StoreError, OSError) as error:
            yield SealCheck("run", run, "unchecked", "", "", str(error))


def _items_in_runs(seal: Seal, store: Store | None) -> tuple[Mapping[Key, PinnedItem], list[SealCheck]]:
    """Return the items named by the page's runs, and a check for each run whose configuration cannot be read."""
    items: dict[Key, PinnedItem] = {}
    unreadable: list[SealCheck] = []
    if store is None:
        return items, unreadable
    for run in seal.runs:
        try:
            items |= _items_of_run(run, store)
        except StoreError as error:
            unreadable.append(SealCheck("run", run, "changed", "", "", str(error)))
    return items, unreadable


def _page(page: SealedPage) -> SealCheck:
    sealed = page.seal.page
    digest = page_seal.digest_of_page(page.data, sealed)
    state: State = "agrees" if digest == sealed else "changed"
    return SealCheck(
        "page", page.path.name, state, sealed, digest, "" if digest == sealed else "its text has been changed"
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
    """Check a table whose results now have these keys and content digests."""
    name = f"{table.name} of {table.run}"
    digest = page_seal.digest_of_table(contents)
    if digest == table.digest:
        return SealCheck("table", name, "agrees", table.digest, digest)
    note = "its results have changed"
    if len(contents) != table.stored:
        note = f"{table.stored} of {table.planned} results were stored when the page was written, now {len(contents)}"
    return SealCheck("table", name, "changed", table.digest, digest, note)


def _check_item(entry: AuditedItem, pinned_item: PinnedItem | None, location: str = "") -> SealCheck:
    """Check an item found on this machine. `pinned_item` is None if it was not found."""
    if pinned_item is None:
        note = "its location is unknown; give it by --file"
        return SealCheck(entry.what, entry.name, "unchecked", entry.digest, "", note)
    try:
        digest = _current_digest(pinned_item)
    except (ValueError, OSError) as error:
        return SealCheck(entry.what, entry.name, "unchecked", entry.digest, "", f"{error}; give it by --file")
    if digest == entry.digest:
        return SealCheck(entry.what, entry.name, "agrees", entry.digest, digest, location)
    note = " ".join(["its content has changed", *([f"({location})"] if location else [])])
    return SealCheck(entry.what, entry.name, "changed", entry.digest, digest, note)
