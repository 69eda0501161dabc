"""Where the data sets, models and files that a page names lie now, and what their digests are."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.inspection import evidence
from orchestrator.inspection.evidence import AuditedItem, Thing
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import ModelFile
from tasks.files import File, FileError, check_regular, expand_home
from tasks.language_models.language_model import LanguageModel
from tasks.models.custom import Named
from tasks.question_answering.predictions import Predictions

# What is read from a name, in this order: a file of any name is read as any of them.
KINDS: tuple[Any, ...] = (Dataset, LanguageModel, ModelFile, Predictions, Named, File)
Key = tuple[str, str, str]  # what a page calls a thing, its name, its digest


def key(entry: AuditedItem) -> Key:
    return entry.what, entry.name, entry.digest


def run_things(run: str, store: Store) -> dict[Key, Thing]:
    """The things that the run's config names, where they were audited. Raises StoreError if it cannot be read."""
    found: dict[Key, Thing] = {}
    for _, thing in evidence.things(Journal(store.folder("runs") / run)):
        named: Any = thing
        found[evidence.noun(thing), evidence.public_name(thing), named.digest] = thing
    return found


def find_by_name(entry: AuditedItem) -> Thing | None:
    """The thing if its name says where it is: an embedded or usual data set, a model of the hub's cache, a network.

    None for one that lies at a path, which the page does not tell.
    """
    thing = _read(entry, entry.name)
    if isinstance(thing, Dataset):
        return None if ":" in entry.name else thing
    if isinstance(thing, LanguageModel):
        return thing if entry.name.startswith("hub:") else None
    return thing if isinstance(thing, Named) else None


def existing(file: str) -> Path:
    """The file or folder of this path. Raises SpecError where there is none that can be read."""
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


def find_at_path(entry: AuditedItem, path: Path) -> Thing | None:
    """The thing at this path; None if neither the content nor the name of what lies there is the thing's."""
    if entry.of_bytes and path.is_file() and file_digest(path) == entry.digest:
        return File(str(path))
    name, shape, options = entry.name.partition("#") if entry.what == Dataset.noun else (entry.name, "", "")
    before = name.removesuffix(path.name)
    if before == name or (before and before[-1] not in ":+"):
        return None
    return _read(entry, f"{before}{path}{shape}{options}")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; OSError where it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def current_digest(thing: Thing) -> str:
    """The digest of the thing's content as it is now, read anew. ValueError or OSError where it cannot be."""
    unpinned: Any = replace(thing, digest="")  # type: ignore[type-var]
    pinned: Any = catalog.pin(unpinned, {}) if isinstance(unpinned, Dataset) else unpinned.pin({})
    return str(pinned.digest)


def _read(entry: AuditedItem, text: str) -> Thing | None:
    """The thing of this kind that is written so; None if there is none, or the kind is another package's."""
    for kind in KINDS:
        if kind.noun == entry.what:
            try:
                thing: Thing = kind.parse(text)
            except ValueError:
                continue
            return thing
    return None
