"""What a run was asked for: its settings beside the published ones, its data sets, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.run import Run
from orchestrator.errors import EngramError
from orchestrator.inspection import labels
from orchestrator.spec import audits
from orchestrator.spec.fields import flat, plain, text

PINNED = re.compile(r"(.+)@([0-9a-f]{16,})")  # a data set and the digest of its content


@dataclass(frozen=True)
class Setting:
    """A field of the config. `published` is what the paper has, where that is none of the values."""

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
        found.append(Setting(name, values, None if paper in values else paper, name in differing))
    return found


def varied(run: Run) -> list[str]:
    """What the cells of a sweep differ in."""
    return list(dict.fromkeys(name for cell in run.cells for name in cell.about.get("setting") or {}))


def telling(run: Run) -> list[str]:
    """As many of the fields in which the cells of a sweep differ as it takes to tell them apart."""
    return labels.telling([cell.about.get("setting") or {} for cell in run.cells])


def data(run: Run) -> list[Data]:
    """The data sets of the run, each once."""
    texts = [value for each in run.cells or (run,) for _, value in flat(each.about["config"])]
    pins = [PINNED.fullmatch(text) for text in texts if isinstance(text, str)]
    return list(dict.fromkeys(Data(pin[1], pin[2]) for pin in pins if pin))


def command(run: Run) -> str | None:
    """The command that asks for the same again; None for a run that was made before this was noted."""
    asked = run.about.get("asked")
    if asked is None:
        return None
    preset, sweep, tolerate = asked.get("preset"), asked.get("sweep", {}), asked.get("tolerate", 0)
    words = ["engram", "run", run.audit, *(["--preset", preset] if preset else [])]
    words += [f"{name}={text(value)}" for name, value in asked.get("set", {}).items()]
    for name, values in sweep.items():
        words += ["--sweep", f"{name}={','.join(map(text, values))}"]
    return shlex.join([*words, *(["--tolerate", str(tolerate)] if tolerate else [])])


def documentation(run: Run) -> list[tuple[bool, str]]:
    """What the audit's module says of itself, a paragraph at a time; true for those that are laid out already."""
    try:
        words = audits.find(run.audit).documentation
    except EngramError:
        return []
    parts = [part.strip("\n") for part in words.split("\n\n")]
    laid_out = [any(line.startswith("    ") for line in part.splitlines()) for part in parts]
    return [(each, textwrap.dedent(part)) for each, part in zip(laid_out, parts, strict=True) if part]


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


def _said(value: Any) -> str:
    """A value as a table shows it, where nothing at all would look like a value left out."""
    return text(value) or '""'
