"""A run's settings compared with published ones, its data sets, and the command to repeat it."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.run import Run
from orchestrator.errors import EngramError
from orchestrator.inspection.disclosure import recorded_settings
from orchestrator.spec import audits, resolve
from orchestrator.spec.config_parts import flatten, plain
from orchestrator.spec.fields import text

PINNED = re.compile(r"(.+)@([0-9a-f]{16,})")  # data set name and digest of its content


@dataclass(frozen=True)
class Setting:
    """One configuration field.

    `published` is the value in the paper, or None if `values` includes it. `preset` holds the values from the preset
    (without a preset, the published value). It is empty if it includes all of `values`.
    """

    name: str
    values: tuple[str, ...]  # more than one in a sweep
    published: str | None
    varied: bool
    preset: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the user, rather than the preset, set this field."""
        return bool(self.preset) or self.varied


@dataclass(frozen=True)
class Data:
    """A data set, identified by name and content digest."""

    name: str
    digest: str


def settings(run: Run) -> list[Setting]:
    """Return every configuration field of the run by its dotted name.

    For a sweep, collect the values over all cells.
    """
    runs = run.cells or (run,)
    configs = [_fields(of_run) for of_run in runs]
    published = _published_fields(run)
    preset = _preset_fields(run)
    differing = varied_fields(run)
    names = dict.fromkeys(name for config in configs for name in config)
    rows = []
    for name in names:
        values = tuple(dict.fromkeys(_format_value(config[name]) for config in configs if name in config))
        paper = None if published is None else _format_value(_nearest(published, name))
        usual: tuple[str, ...] = () if paper is None else (paper,)
        if preset is not None:
            usual = tuple(dict.fromkeys(_format_value(_nearest(config, name)) for config in preset))
        preset_values = () if set(values) <= set(usual) else usual
        rows.append(Setting(name, values, None if paper in values else paper, name in differing, preset_values))
    return rows


def varied_fields(run: Run) -> list[str]:
    """Return the fields in which a sweep's cells differ."""
    return list(dict.fromkeys(name for cell in run.cells for name in cell.about.get("setting") or {}))


def distinguishing_fields(run: Run) -> list[str]:
    """Return the smallest set of varied fields that distinguishes a sweep's cells."""
    return resolve.distinguishing_fields([cell.about.get("setting") or {} for cell in run.cells])


def data_sets(run: Run) -> list[Data]:
    """Return the distinct data sets used by the run."""
    texts = []
    for of_run in run.cells or (run,):
        for _, value in flatten(of_run.about["config"]):
            texts.append(value)
    pins = [PINNED.fullmatch(text) for text in texts if isinstance(text, str)]
    return list(dict.fromkeys(Data(pin[1], pin[2]) for pin in pins if pin))


def command(run: Run) -> str | None:
    """Return the command that repeats the run, as the user typed it.

    Returns None for runs that are older than command recording.
    """
    request = run.about.get("asked")
    if request is None:
        return None
    preset = request.get("preset")
    sweep = request.get("sweep", {})
    tolerate = request.get("tolerate", 0)
    words = ["engram", "run", run.audit, *(["--preset", preset] if preset else [])]
    words += [f"{name}={text(value)}" for name, value in request.get("set", {}).items()]
    for name, values in sweep.items():
        words += ["--sweep", f"{name}={','.join(map(text, values))}"]
    return shlex.join([*words, *(["--tolerate", str(tolerate)] if tolerate else [])])


def documentation(run: Run) -> list[tuple[bool, str]]:
    """Return the paragraphs of the audit module's documentation.

    Each has a flag that is true if the paragraph is preformatted.
    """
    registered = audits.find_installed(run.audit)
    if registered is None:
        words = ""
    else:
        words = registered.documentation
    parts = [part.strip("\n") for part in words.split("\n\n")]
    laid_out = []
    for part in parts:
        laid_out.append(any(line.startswith("    ") for line in part.splitlines()))
    result = []
    for is_laid_out, part in zip(laid_out, parts, strict=True):
        if part:
            result.append((is_laid_out, textwrap.dedent(part)))
    return result


def _fields(run: Run) -> Mapping[str, Any]:
    """Return the settings that affect results, by dotted path."""
    names = recorded_settings(run.about)
    fields = {}
    for name, value in flatten(_strip_digests(run.about["config"])):
        if name in names:
            fields[name] = value
    return fields


def _published_fields(run: Run) -> Mapping[str, Any] | None:
    """Return the audit's defaults, which are the published settings. Returns None if it has none."""
    try:
        return dict(flatten(_strip_digests(plain(audits.find(run.audit).audit.config()))))
    except (EngramError, TypeError, ValueError):
        return None


def _preset_fields(run: Run) -> list[Mapping[str, Any]] | None:
    """Return the configurations in the run's preset.

    Returns None if it used no preset or the preset no longer exists.
    """
    preset = run.status.preset
    try:
        audit = audits.find(run.audit).audit
        if preset:
            return [dict(flatten(_strip_digests(plain(cell)))) for cell in audit.cells(preset)]
        return None
    except (EngramError, KeyError):
        return None


def _nearest(published: Mapping[str, Any], name: str) -> Any:
    """Return the published value of a field. If there is none, use the nearest enclosing field that has one."""
    while name not in published and "." in name:
        name = name.rpartition(".")[0]
    return published.get(name)


def _strip_digests(value: Any) -> Any:
    """Return the configuration with digests removed from data set names."""
    if isinstance(value, Mapping):
        return {name: _strip_digests(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_strip_digests(part) for part in value]
    pin = None
    if isinstance(value, str):
        pin = PINNED.fullmatch(value)
    if pin:
        return pin[1]
    return value


def _format_value(value: Any) -> str:
    """Format a value for a table. Empty text is quoted so that it does not look missing."""
    return text(value) or '""'
