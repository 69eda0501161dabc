"""The seal of a page: the digests of the page and of its sources, embedded in the page.

    <template id="engram-seal">{"engram seal": 1, "page": DIGEST, "audited": [...], "tables": [...]}</template>

Browsers do not display the content of a template. The digest of the page is the SHA-256 of the file's bytes with zeros
in place of the digest itself, so that any tool can compute it:

    sed "s/$DIGEST/$(printf '%064d' 0)/g" report.html | sha256sum

A seal shows that a page has changed since its digest was noted. It is not a signature: anyone who changes the page can
also renew the seal.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, StoreError
from orchestrator.inspection import search_results, status
from orchestrator.inspection.disclosure import typed_config
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.config_parts import walk
from orchestrator.store import Store
from orchestrator.store.entry import content
from tasks.contract.pinnable import InFiles, Pinnable
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.datasets.places import find
from tasks.external.model_file import ModelFile
from tasks.worker.files import File

PinnedItem = Dataset | Pinnable  # a configuration item that enters keys by its content
FORMAT = "engram seal"
VERSION = 1
ZEROS = "0" * 64
# The two places where the page's digest occurs. Text on a page is escaped, so it cannot contain either of them.
SHOWN_DIGEST = '<code class="digest" id="digest-of-page">{}</code>'
SEALED_DIGEST = '"page": "{}"'
ELEMENT = re.compile(rb'<template id="engram-seal">(.*?)</template>', re.DOTALL)
RUN = re.compile(r"\w[\w.-]*")
DIGEST = re.compile(r"[0-9a-f]{64}")
PAGE_LINK = re.compile(rb'<a href="\.\./[^"]*">(.*?)</a>', re.DOTALL)  # a link to the page of another run


@dataclass(frozen=True)
class AuditedItem:
    """A data set, model or file that a run's configuration names.

    digest: SHA-256 (hex). If `of_bytes` is true, of the bytes of its single file, as printed by `sha256sum`. Otherwise
        of the content of all its files, as defined by its kind.
    size, modified: the total size of its files in bytes, and the time of the newest change (ISO 8601, UTC). None if the
        audited files are no longer on this machine.
    embedded: whether it is part of the installation, in which case its date has no meaning.
    fields: the configuration fields that name it.
    """

    what: str  # data set, model, file, ...
    name: str
    digest: str
    size: int | None
    modified: str | None
    of_bytes: bool
    embedded: bool
    fields: tuple[str, ...]


@dataclass(frozen=True)
class ResultTable:
    """A table of a run, from the results stored so far.

    digest: SHA-256 over one line `KEY CONTENT` per stored result, in the order of the plan, where CONTENT is the digest
        of the result's schema and values (`orchestrator.store.entry`).
    finished: the time when the newest result was stored (ISO 8601, UTC), or an empty string if no result is stored.
    """

    run: str
    name: str
    digest: str
    stored: int
    planned: int
    finished: str


def audited_items(journal: Journal, store: Store) -> list[AuditedItem]:
    """Return the distinct items named in the configuration of a run, or of a sweep's cells, in field order.

    Returns an empty list if the audit is no longer installed.
    """
    cached_digests = store.digests()
    items: dict[tuple[str, str, str], AuditedItem] = {}
    for field, pinned_item in pinned_items(journal):
        entry = _audited_item(field, pinned_item, cached_digests)
        identity = (entry.what, entry.name, entry.digest)
        earlier_item = items.get(identity)
        if earlier_item is None:
            items[identity] = entry
        elif field not in earlier_item.fields:
            items[identity] = replace(earlier_item, fields=(*earlier_item.fields, field))
    return list(items.values())


def pinned_items(journal: Journal) -> Iterator[tuple[str, PinnedItem]]:
    """Yield the pinned items in the configuration of a run, or of a sweep's cells, with their fields.

    Not for display.
    """
    for run in journal.parts():
        for field, part in walk(typed_config(Journal(run.folder).about())):
            if isinstance(part, PinnedItem) and getattr(part, "digest", None):
                yield field, part


def public_name(pinned_item: PinnedItem) -> str:
    """Return the public name of an item, without folders and digest."""
    public_item: Any = pinned_item.named() if hasattr(pinned_item, "named") else pinned_item
    return str(public_item).removesuffix(f"@{getattr(public_item, 'digest', '')}")


def noun(pinned_item: PinnedItem) -> str:
    """Return the noun used for the item on pages."""
    declared_noun: str | None = getattr(pinned_item, "noun", None)  # kinds from other packages may lack it
    return declared_noun or type(pinned_item).__name__.lower()


def tables(journal: Journal, store: Store, only: str | None = None) -> list[ResultTable]:
    """Return the tables of a run, or of all cells of a sweep, each summary first. A search's trials come before all.

    With `only`, tables with other names are left out.
    """
    search_tables = []
    if search_results.is_search(journal.about()):
        search_tables = [_trials(journal)]
    return [*search_tables, *(table for run in journal.parts() for table in _tables(run, store, only))]


def trials_content(journal: Journal) -> tuple[str, str]:
    """Return the name and content digest of a search's trials table, from which its page is drawn."""
    return search_results.TRIALS, content(
        search_results.read_search(Journal(journal.folder)).table(search_results.TRIALS)
    )


def digest_of_table(contents: Iterable[tuple[str, str]]) -> str:
    """Return the digest of a table whose results have these keys and content digests."""
    return hashlib.sha256("".join(f"{key} {content}\n" for key, content in contents).encode()).hexdigest()


def _audited_item(field: str, pinned_item: Any, cached_digests: MutableMapping[str, str]) -> AuditedItem:
    paths = _unchanged_files(pinned_item, cached_digests)
    states = [path.stat() for path in paths]
    embedded = isinstance(pinned_item, Dataset) and catalog.is_embedded(pinned_item.name)
    newest = max((state.st_mtime for state in states if not embedded), default=None)
    return AuditedItem(
        what=noun(pinned_item),
        name=public_name(pinned_item),
        digest=pinned_item.digest,
        size=sum(state.st_size for state in states) if states and all(path.is_file() for path in paths) else None,
        modified=None if newest is None else datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds"),
        of_bytes=isinstance(pinned_item, File) or (isinstance(pinned_item, ModelFile) and pinned_item.is_one_file),
        embedded=embedded,
        fields=(field,),
    )


def _unchanged_files(pinned_item: PinnedItem, cached_digests: MutableMapping[str, str]) -> tuple[Path, ...]:
    """Return the files of an item if their content is unchanged. For a data set, this requires a cached digest."""
    try:
        if isinstance(pinned_item, Dataset):
            source = find(pinned_item.name)[1]
            if catalog.is_embedded(pinned_item.name):
                catalog.pin(pinned_item, cached_digests)
            if cached_digests.get(source.stamp()) == pinned_item.digest:
                return source.files
            return ()
        if isinstance(pinned_item, InFiles):
            return pinned_item.pin(cached_digests).paths()
        return ()
    except (ValueError, OSError):
        return ()


def _tables(journal: Journal, store: Store, only: str | None) -> Iterator[ResultTable]:
    roots = status.roots(journal)
    for name in sorted(roots, key=lambda name: name != "summary"):
        if only in (None, name):
            yield _table(journal.run, name, roots[name], store)


def _trials(journal: Journal) -> ResultTable:
    digest = digest_of_table([trials_content(journal)])
    return ResultTable(journal.run, search_results.TRIALS, digest, stored=1, planned=1, finished="")


def _table(run: str, name: str, keys: tuple[str, ...], store: Store) -> ResultTable:
    records: dict[str, Mapping[str, Any]] = {}
    for key in keys:
        try:
            records[key] = store.record(key, check=False)
        except StoreError:
            continue
    return ResultTable(
        run=run,
        name=name,
        digest=digest_of_table((key, record["content"]) for key, record in records.items()),
        stored=len(records),
        planned=len(keys),
        finished=max((record.get("finished", "") for record in records.values()), default=""),
    )


class Unsealed(EngramError):
    """A page has no seal, or its seal cannot be read."""


@dataclass(frozen=True)
class Seal:
    """The content of a seal: the digest of the page, the runs that it shows, and their sources.

    `item` is the digest of the model or data set whose runs the page lists. It is empty on the page of a run.
    """

    page: str
    runs: tuple[str, ...]
    audited: tuple[AuditedItem, ...]
    tables: tuple[ResultTable, ...]
    item: str = ""


def element(runs: Sequence[str], audited: Sequence[AuditedItem], tables: Sequence[ResultTable], item: str = "") -> str:
    """Return the seal element for a page that `seal_page` has not processed yet. The page's digest is all zeros."""
    value = {
        FORMAT: VERSION,
        "page": ZEROS,
        **({"item": item} if item else {}),
        "runs": list(runs),
        "audited": [dataclasses.asdict(entry) for entry in audited],
        "tables": [dataclasses.asdict(table) for table in tables],
    }
    text = json.dumps(value)
    for character in "&<>":  # so that the text of the element is valid JSON
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<template id="engram-seal">{text}</template>'


def seal_page(page: str) -> str:
    """Replace the zeros by the page's digest, in its seal and where the digest is displayed (`SHOWN_DIGEST`)."""
    digest = hashlib.sha256(page.encode()).hexdigest()
    for pattern in (SHOWN_DIGEST, SEALED_DIGEST):
        page = page.replace(pattern.format(ZEROS), pattern.format(digest))
    return page


def digest_of_page(page: bytes, sealed: str) -> str:
    """Return the digest of a page that contains the digest `sealed`."""
    return hashlib.sha256(page.replace(sealed.encode(), ZEROS.encode())).hexdigest()


def make_standalone(page: bytes) -> bytes:
    """Return the page without links to the pages of other runs, and with a new seal."""
    plain = PAGE_LINK.sub(rb"\1", page)
    if plain == page:
        return page
    return seal_page(plain.decode().replace(read(page, "page").page, ZEROS)).encode()


def read(page: bytes, name: str) -> Seal:
    """Read the seal in a page's bytes. Raises Unsealed if there is none or if it cannot be read."""
    elements = ELEMENT.findall(page)
    if not elements:
        raise Unsealed(
            f"{name} has no seal: an earlier version of Engram wrote it, or it is not a report; "
            "`engram report RUN` writes a page with a seal"
        )
    try:
        value = json.loads(elements[0])
        if len(elements) > 1 or value[FORMAT] != VERSION:
            raise ValueError("it has several seals, or an unknown version")
        seal = Seal(
            page=_digest(value["page"]),
            runs=tuple(map(_run, value["runs"])),
            audited=tuple(_entry(AuditedItem, entry) for entry in value["audited"]),
            tables=tuple(_entry(ResultTable, table) for table in value["tables"]),
            item=_digest(value["item"]) if "item" in value else "",
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unsealed(f"the seal of {name} cannot be read, so the page has been changed: {error}") from None
    return seal


def _entry(kind: Any, value: Mapping[str, Any]) -> Any:
    """Parse a seal entry. Raises ValueError, TypeError or KeyError if its fields do not match its kind."""
    fields = dict(value)
    _digest(fields["digest"])
    if "run" in fields:
        _run(fields["run"])
    if "fields" in fields:
        fields["fields"] = tuple(map(str, fields["fields"]))
    if not all(isinstance(fields[name], str) for name in ("what", "run", "name") if name in fields):
        raise ValueError("a name in it is not text")
    return kind(**fields)


def _run(value: Any) -> str:
    """Validate the name of a run, which becomes part of a path."""
    if not isinstance(value, str) or not RUN.fullmatch(value):
        raise ValueError(f"{value!r} in it is not the name of a run")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise ValueError(f"{value!r} in it is not a SHA-256 digest")
    return value
