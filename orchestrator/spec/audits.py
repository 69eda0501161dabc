"""Audit registry: one module per audit in `tasks/audits`, plus the `engram.audits` entry points of other packages."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from orchestrator.errors import EngramError, SpecError
from orchestrator.spec.fields import nearest
from tasks.contract.audit import Audit
from tasks.user_code.closure import SourceFile, find_user_files
from tasks.user_code.loaded import UncoveredImport, cover_files, watch_imports

GROUP = "engram.audits"
_found_audits: ContextVar[dict[str, RegisteredAudit] | None] = ContextVar("found audits", default=None)


@dataclass(frozen=True)
class RegisteredAudit:
    """An audit and its name. The first line of its module docstring is the question, the rest the documentation."""

    name: str
    audit: Audit
    question: str
    documentation: str


def names() -> list[str]:
    """Return the sorted names of all audits, without importing their modules."""
    return sorted({*_own(), *_entry_points()})


def find(name: str) -> RegisteredAudit:
    """Return the audit with this name.

    Raises SpecError, which suggests the nearest name, if there is none. Raises EngramError if its module cannot be
    imported or contains no audit.
    """
    own_modules = _own()
    offered_points = _entry_points()
    if name in own_modules and name in offered_points:
        raise EngramError(f"audit {name!r} is part of Engram, and {_source(offered_points[name])} offers another one")
    if name in own_modules:
        return _load_audit(name, own_modules[name], "AUDIT", own_modules[name], files={})
    if name in offered_points:
        return _find_offered(name, offered_points[name])
    audit_names = names()
    raise SpecError(
        f"unknown audit {name!r}; available audits are {', '.join(audit_names)}{nearest(name, audit_names)}"
    )


@contextmanager
def find_once() -> Iterator[None]:
    """Make `find` read the files of each audit at most once inside the block. Later changes are not seen.

    Its files are read and compared at every call, because user code may change while a program runs. The pages and
    deliveries of a sweep need its audit many times per cell.
    """
    if _found_audits.get() is not None:
        yield
        return
    token = _found_audits.set({})
    try:
        yield
    finally:
        _found_audits.reset(token)


def find_installed(name: str) -> RegisteredAudit | None:
    """Return the audit with this name, or None if its package is no longer installed or cannot be imported."""
    try:
        return find(name)
    except EngramError:
        return None


def _own() -> Mapping[str, str]:
    """Map the names of the built-in audits to their modules."""
    import tasks.audits

    return _own_on(tuple(tasks.audits.__path__))


@functools.cache  # each lookup lists the audits folder, and every command needs several
def _own_on(path: tuple[str, ...]) -> Mapping[str, str]:
    modules = pkgutil.iter_modules(path)
    result = {}
    for module in modules:
        if not module.name.startswith("_"):
            result[module.name] = f"tasks.audits.{module.name}"
    return result


def _entry_points() -> Mapping[str, EntryPoint]:
    return _entry_points_on(tuple(sys.path))


@functools.cache
def _entry_points_on(_path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return the entry points by name. Cached per search path because a lookup reads the metadata of every package."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _find_offered(name: str, point: EntryPoint) -> RegisteredAudit:
    """Return an audit of another package. Cached inside `find_once`."""
    found_audits = _found_audits.get()
    if found_audits is not None and name in found_audits:
        return found_audits[name]
    audit = _load_audit(name, point.module, point.attr or "AUDIT", _source(point))
    if found_audits is not None:
        found_audits[name] = audit
    return audit


def _source(point: EntryPoint) -> str:
    if point.dist:
        return f"package {point.dist.name} ({point.value})"
    return point.value


def _load_audit(
    name: str, module: str, attribute: str, source: str, files: Mapping[str, SourceFile] | None = None
) -> RegisteredAudit:
    """Return the audit in this module. `files` are its user files, which are searched for if they are not given."""
    try:
        if files is None:
            files = find_user_files(module)
    except ValueError as error:
        raise EngramError(f"audit {name!r} cannot be imported from {source}: {error}") from None
    try:
        holder = _import_audit(name, module, files)
    except UncoveredImport as error:
        raise EngramError(str(error)) from None
    except Exception as error:  # a plugin may raise anything while it is imported
        raise EngramError(f"audit {name!r} cannot be imported from {source}: {_line(error)}") from error
    audit = getattr(holder, attribute, None)
    if not isinstance(audit, Audit):
        raise EngramError(f"audit {name!r}: {source} has no {attribute} that is a tasks.contract.audit.Audit")
    question, _, documentation = _docstring(holder.__doc__, audit).strip().partition("\n")
    return RegisteredAudit(name, audit, question.strip(), documentation.strip("\n"))


def _import_audit(name: str, module: str, files: Mapping[str, SourceFile]) -> ModuleType:
    if module in sys.modules:  # nothing is imported, and watching costs time for each loaded module
        cover_files(files)
        return sys.modules[module]
    with watch_imports(f"audit {name!r}", files):
        return importlib.import_module(module)


def _docstring(module_docstring: str | None, audit: Audit) -> str:
    """Return the docstring of the module that defines the audit, or else of the module that defines its plan."""
    if module_docstring:
        return module_docstring
    return getattr(sys.modules.get(getattr(audit.plan, "__module__", "")), "__doc__", None) or ""


def _line(error: Exception) -> str:
    first = str(error).strip().splitlines()
    if first:
        return f"{type(error).__name__}: {first[0]}"
    return type(error).__name__
