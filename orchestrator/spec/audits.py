"""Audit registry: one module per audit in `tasks/audits`, plus the `engram.audits` entry points of other packages."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from orchestrator.errors import EngramError, SpecError
from orchestrator.spec.fields import nearest
from tasks.contract.audit import Audit
from tasks.user_code.closure import SourceFile, find_user_files
from tasks.user_code.loaded import UncoveredImport, cover_files, watch_imports

GROUP = "engram.audits"


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
        return _load_audit(name, own_modules[name], "AUDIT", own_modules[name])
    if name in offered_points:
        point = offered_points[name]
        return _load_audit(name, point.module, point.attr or "AUDIT", _source(point))
    audit_names = names()
    raise SpecError(
        f"unknown audit {name!r}; available audits are {', '.join(audit_names)}{nearest(name, audit_names)}"
    )


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


def _source(point: EntryPoint) -> str:
    if point.dist:
        return f"package {point.dist.name} ({point.value})"
    return point.value


def _load_audit(name: str, module: str, attribute: str, source: str) -> RegisteredAudit:
    try:
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
