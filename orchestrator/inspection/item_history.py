"""The runs that examined a model or data set, found by the digest of its content in their configurations.

The run folders suffice, so there is no register that could omit a run: runs without an answer, failed and interrupted
runs count like all others. The cells of a sweep and the trials of a search are runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from orchestrator.errors import SpecError, StoreError
from orchestrator.inspection import page_seal, status
from orchestrator.inspection.page_seal import AuditedItem, ResultTable
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.fields import nearest
from orchestrator.store import Store
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import ModelFile
from tasks.models.custom import Named
from tasks.worker.files import File

DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
PREFIX = re.compile(r"[0-9a-f]{8,64}")  # a digest, or enough of it to find the item
NAMED = 16  # digits of the digest in the name of a page
UNTYPED = "item"  # kind of an item in the configuration of an audit that is not installed
Role = Literal["model", "data"]


@dataclass(frozen=True)
class Item:
    """A model, data set or file, the names under which runs examined it, and these runs, oldest first."""

    noun: str
    digest: str
    names: tuple[str, ...]
    runs: tuple[str, ...]

    @property
    def role(self) -> Role:
        """Whether it is data. A file, such as a table of outputs or a recording, represents a model."""
        return "data" if self.noun == Dataset.noun else "model"

    @property
    def name(self) -> str:
        """Its newest name."""
        return self.names[-1]

    @property
    def page(self) -> str:
        """The file name of its page."""
        return f"{self.noun.replace(' ', '-')}-{self.digest[:NAMED]}.html"


@dataclass(frozen=True)
class History:
    """All items that the runs of a store examined, by digest, and what may be missing.

    unreadable: runs with unreadable folders. absent: for each run of a sweep or search without a folder, the name of
    this sweep or search.
    """

    items: Mapping[str, Item]
    unreadable: tuple[str, ...]
    absent: Mapping[str, str]


def read_history(store: Store) -> History:
    """Return the items examined by the runs of this store."""
    items: dict[str, Item] = {}
    unreadable = []
    absent = {}
    journals = status.journals(store)
    created: dict[str, tuple[str, Journal]] = {}
    for name, journal in journals.items():
        try:
            about = journal.about()
        except StoreError:
            unreadable.append(name)
            continue
        for cell in about.get("cells", ()):
            if cell not in journals:
                absent[cell] = name
        if "cells" not in about:
            created[name] = (about.get("created", ""), journal)
    for name, (_, journal) in sorted(created.items(), key=lambda entry: (entry[1][0], entry[0])):
        for item in _items_of_run(journal):
            earlier = items.get(item.digest, item)
            kind = earlier.noun if item.noun == UNTYPED else item.noun
            names = tuple(dict.fromkeys((*(each for each in earlier.names if each not in item.names), *item.names)))
            runs = earlier.runs if earlier is not item else ()
            items[item.digest] = Item(kind, item.digest, names, (*runs, name))
    return History(items, tuple(unreadable), absent)


def _items_of_run(journal: Journal) -> Iterator[Item]:
    """Yield each item in the configuration of a run once, without its runs. Code of networks is not an item."""
    items = {}
    for _, pinned_item in page_seal.pinned_items(journal):
        digest = str(getattr(pinned_item, "digest", ""))
        if not isinstance(pinned_item, Named):
            items[digest] = Item(page_seal.noun(pinned_item), digest, (page_seal.public_name(pinned_item),), ())
    if not items:  # the audit may no longer be installed
        for digest in DIGEST.findall(str(journal.about().get("config"))):
            items[digest] = Item(UNTYPED, digest, (UNTYPED,), ())
    yield from items.values()


def find_item(history: History, word: str, role: Role) -> Item:
    """Return the examined item with this digest or its beginning, this name, or the content of the file at this path.

    Raises SpecError if there is none or more than one.
    """
    option = f"--{role}"
    candidates = [item for item in history.items.values() if item.role == role or item.noun == UNTYPED]
    matches = []
    if PREFIX.fullmatch(word):
        matches = [item for item in candidates if item.digest.startswith(word)]
    if not matches:
        matches = [item for item in candidates if word in item.names]
    if not matches:
        digest = _digest_of(word, role)
        matches = [item for item in candidates if item.digest == digest]
        if digest and not matches:
            raise SpecError(f"{option} {word}: no run of this store examined its content, SHA-256 {digest}")
    if len(matches) > 1:
        digests = ", ".join(item.digest[:NAMED] for item in matches)
        raise SpecError(f"{option} {word!r} has several contents; give one of the digests {digests}")
    if not matches:
        names = [name for item in candidates for name in item.names]
        raise SpecError(f"{option} {word!r}: no run of this store examined it{nearest(word, names)}")
    return matches[0]


def _digest_of(word: str, role: Role) -> str:
    """Return the digest of the file, folder or data set with this name, or an empty string if there is none."""
    kinds: Sequence[Any] = (Dataset,) if role == "data" else (ModelFile, File)
    for kind in kinds:
        try:
            item = kind.parse(word)
            pinned: Any = catalog.pin(item, {}) if kind is Dataset else item.pin({})
        except (ValueError, OSError):
            continue
        return str(pinned.digest)
    return ""


def audited_item(item: Item, store: Store) -> AuditedItem:
    """Return the item as the seal of its page lists it, with its newest name."""
    listed = AuditedItem(item.noun, item.name, item.digest, None, None, item.noun == File.noun, False, ())
    for run in reversed(item.runs):
        for entry in page_seal.audited_items(Journal(store.folder("runs") / run), store):
            if entry.digest == item.digest:
                return replace(entry, name=item.name, fields=())
    return listed


def summaries(item: Item, store: Store) -> list[ResultTable]:
    """Return the digests of the summaries of all runs that examined the item."""
    tables = []
    for run in item.runs:
        try:
            tables += page_seal.tables(Journal(store.folder("runs") / run), store, only="summary")
        except StoreError:
            continue  # the run's plan is damaged, and the page says so
    return tables
