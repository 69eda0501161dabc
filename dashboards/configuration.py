"""What a run was asked for: its settings beside the published ones, its data sets, and the command that repeats it."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dashboards.run import Run
from orchestrator.errors import EngramError
from orchestrator.inspection import labels
from orchestrator.spec import audits, specification
from orchestrator.spec.fields import differing, flat, plain, text
from orchestrator.spec.resolve import SCALE, configured, wanted
from orchestrator.spec.specification import Spec

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
    """The command that asks for the same again; None where no command can, or today's audit is another one."""
    configs = [_unpinned(each.about["config"]) for each in run.cells or (run,)]
    same = _alike(configs)
    for preset in dict.fromkeys((run.about.get("preset") or (run.cells or (run,))[0].about["preset"], None)):
        with suppress(EngramError, LookupError, TypeError, ValueError):
            for words in _askings(run, preset, configs):
                if _alike(_asked(run.audit, preset, *words)) == same:
                    return _command(run.audit, preset, *words)
    return None


def _askings(
    run: Run, preset: str | None, configs: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[list[str], list[str]]]:
    """What may have been set and swept over the preset to come to these configs; whether it was is to be seen."""
    audit = audits.find(run.audit).audit
    known = [dict(flat(config)) for config in configs]
    common = {name: value for name, value in known[0].items() if all(name in k and k[name] == value for k in known)}
    for scale, whole in itertools.product(("full", "tiny"), (False, True)):
        bases = [
            configured(audit, base, {SCALE: scale}) for base in (audit.cells(preset) if preset else [audit.config()])
        ]
        before = [dict(flat(_unpinned(plain(base)))) for base in bases]
        beside = [_fields_beside(fields) for fields in (known[0], *before)]
        fixed = {
            name: value
            for name, value in common.items()
            if any(b.get(name, ...) != value for b in before)
            # A feature of another kind has that kind's defaults, and not what the preset's has of the same name.
            or (whole and any(each.get(name) != beside[0].get(name) for each in beside))
        }
        own = set(differing([_unpinned(plain(base)) for base in bases]))  # varies without being swept
        swept = [name for name in varied(run) if name not in fixed]
        of_both = [name for name in swept if name in own]
        for also in ([], *([name] for name in of_both), of_both):
            yield (
                [
                    *([f"{SCALE}=tiny"] if scale == "tiny" else []),
                    *(f"{n}={text(value)}" for n, value in fixed.items()),
                ],
                [f"{n}={','.join(_values(run, n))}" for n in swept if n not in own or n in also],
            )


def _fields_beside(fields: Collection[str]) -> dict[str, frozenset[str]]:
    """Each dotted field with all those that are parts of the same: they tell a feature's kind."""
    parts: dict[str, set[str]] = {}
    for name in fields:
        parts.setdefault(name.rpartition(".")[0], set()).add(name)
    return {name: frozenset(parts[name.rpartition(".")[0]]) for name in fields if "." in name}


def _values(run: Run, name: str) -> list[str]:
    return list(dict.fromkeys(text((cell.about.get("setting") or {}).get(name)) for cell in run.cells))


def _asked(audit: str, preset: str | None, fixed: Sequence[str], swept: Sequence[str]) -> list[Mapping[str, Any]]:
    """The configs that these words of a command ask for; none where they cannot be."""
    try:
        cells = wanted(Spec(audit, preset, specification.settings(fixed), specification.sweeps(swept)))
    except EngramError:
        return []
    return [_unpinned(plain(cell.config)) for cell in cells]


def _alike(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Something that is equal for equal configs in whatever order."""
    return sorted(json.dumps(config, sort_keys=True) for config in configs)


def _command(audit: str, preset: str | None, fixed: Sequence[str], swept: Sequence[str]) -> str:
    sweeps = itertools.chain.from_iterable(("--sweep", each) for each in swept)
    return shlex.join(["engram", "run", audit, *(["--preset", preset] if preset else []), *fixed, *sweeps])


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
