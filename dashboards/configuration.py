"""What a run was asked for: its settings beside the published ones, its data sets, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.run import Run
from orchestrator import audits
from orchestrator.cells import configured
from orchestrator.errors import EngramError
from orchestrator.fields import changed, flat, plain
from tasks.job import Audit

PINNED = re.compile(r"(.+)@([0-9a-f]{16,})")  # a data set and the digest of its content


@dataclass(frozen=True)
class Setting:
    """A field of the config. `published` is what the paper has, where that is something else."""

    name: str
    values: tuple[str, ...]  # several in a sweep
    published: str | None
    varied: bool


@dataclass(frozen=True)
class Data:
    """A data set by its name and the digest of its content."""

    name: str
    digest: str


def settings(run: Run) -> list[Setting]:
    """Every field of the run's config, dotted; of a sweep, with the values that its cells have."""
    runs = run.cells or (run,)
    configs = [_fields(each) for each in runs]
    published = _published(run)
    differing = varied(run)
    names = dict.fromkeys(name for config in configs for name in config)
    found = []
    for name in names:
        values = tuple(dict.fromkeys(_said(config[name]) for config in configs if name in config))
        paper = None if published is None else _said(_nearest(published, name))
        found.append(Setting(name, values, None if (paper,) == values else paper, name in differing))
    return found


def varied(run: Run) -> list[str]:
    """What the cells of a sweep differ in."""
    return list(dict.fromkeys(name for cell in run.cells for name in cell.about.get("setting") or {}))


def data(run: Run) -> list[Data]:
    """The data sets of the run, each once."""
    texts = [value for each in run.cells or (run,) for _, value in flat(each.about["config"])]
    pins = [PINNED.fullmatch(text) for text in texts if isinstance(text, str)]
    return list(dict.fromkeys(Data(pin[1], pin[2]) for pin in pins if pin))


def command(run: Run) -> str | None:
    """The command that asks for the same again; None where no command can, or today's audit is another one."""
    first = (run.cells or (run,))[0]
    about = first.about
    try:
        audit = audits.find(run.audit).audit
        base = audit.presets[about["preset"]] if about["preset"] else audit.config()
        base = configured(audit, base, about.get("setting") or {} if run.cells else {})
        differs = _differing(_unpinned(plain(base)), _unpinned(about["config"]))
        same = _unpinned(plain(changed(base, differs))) == _unpinned(about["config"])
    except (EngramError, LookupError, TypeError, ValueError):
        return None
    if not same:
        return None
    words = ["engram", "run", run.audit]
    words += ["--preset", about["preset"]] if about["preset"] else []
    words += [f"{name}={_text(value)}" for name, value in differs.items()]
    for name in varied(run):
        values = dict.fromkeys(_text((cell.about.get("setting") or {}).get(name)) for cell in run.cells)
        words += ["--sweep", f"{name}={','.join(values)}"]
    return shlex.join(words)


def documentation(run: Run) -> list[tuple[bool, str]]:
    """What the audit's module says of itself, a paragraph at a time; true for those that are laid out already."""
    try:
        audit = audits.find(run.audit).audit
    except EngramError:
        return []
    parts = [part.strip("\n") for part in _docstring(audit).split("\n\n")]
    laid_out = [any(line.startswith("    ") for line in part.splitlines()) for part in parts]
    return [(each, textwrap.dedent(part)) for each, part in zip(laid_out, parts, strict=True) if part]


def _docstring(audit: Audit) -> str:
    """The audit's words after its question, which is the first line of its module."""
    whole = getattr(sys.modules.get(audit.plan.__module__), "__doc__", None) or ""
    return whole.strip().partition("\n")[2].strip("\n")


def _fields(run: Run) -> Mapping[str, Any]:
    return dict(flat(_unpinned(run.about["config"])))


def _published(run: Run) -> Mapping[str, Any] | None:
    """The audit's defaults, which are the published setting; None where it has none."""
    try:
        return dict(flat(_unpinned(plain(audits.find(run.audit).audit.config()))))
    except (EngramError, TypeError, ValueError):
        return None


def _nearest(published: Mapping[str, Any], name: str) -> Any:
    """The published value of a field, or of what it is a part of where the paper has no such part."""
    while name not in published and "." in name:
        name = name.rpartition(".")[0]
    return published.get(name)


def _unpinned(value: Any) -> Any:
    """The config with its data sets by their names alone."""
    if isinstance(value, Mapping):
        return {name: _unpinned(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_unpinned(part) for part in value]
    pin = PINNED.fullmatch(value) if isinstance(value, str) else None
    return pin[1] if pin else value


def _differing(base: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    known = dict(flat(base))
    return {name: value for name, value in flat(config) if name not in known or known[name] != value}


def _said(value: Any) -> str:
    """A value as a table shows it, where nothing at all would look like a value left out."""
    return _text(value) or '""'


def _text(value: Any) -> str:
    """A value as a command line takes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    return str(value)
