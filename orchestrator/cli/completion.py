"""What may stand at the end of an unfinished command line: audits, presets, fields, runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import typer

from orchestrator.errors import EngramError

SUFFIXES = (".yaml", ".yml")


def audits_and_files(incomplete: str) -> list[str]:
    """The audits, and the YAML files of this folder, that begin so."""
    from pathlib import Path

    from orchestrator.spec import audits

    files = sorted(path.name for path in Path().iterdir() if path.suffix in SUFFIXES)
    return _beginning([*audits.names(), *files], incomplete)


def names(incomplete: str) -> list[str]:
    """The audits that begin so."""
    from orchestrator.spec import audits

    return _beginning(audits.names(), incomplete)


def parts_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """The presets of the audit that stands on the line, and its fields."""
    from orchestrator.spec.field_descriptions import describe_fields

    audit = _audit({"what": ctx.params.get("audit")})
    return [] if audit is None else _beginning([*audit.presets, *describe_fields(audit)], incomplete)


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """The presets of the audit that stands on the line."""
    audit = _audit(ctx.params)
    return [] if audit is None else _beginning(audit.presets, incomplete)


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """The fields of the audit's config, each up to its =, or the values that one may have where these are known."""
    audit = _audit(ctx.params)
    return [] if audit is None else _beginning(_settings(audit.config, incomplete), incomplete)


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The runs of the store."""
    from orchestrator.cli.store import command_store
    from orchestrator.inspection import status

    try:
        with command_store(ctx.params.get("store")) as opened:
            return _beginning(status.journals(opened), incomplete)
    except EngramError:
        return []


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _audit(given: Mapping[str, Any]) -> Any:
    """The audit on the line. typer reads no argument of a line that ends with an option, but shells pass its words."""
    from orchestrator.spec import audits

    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    known = audits.names()
    for word in (given.get("what"), *line.split()):
        if word in known:
            with suppress(EngramError):
                return audits.find(word).audit
    return None


def _settings(config: Any, incomplete: str) -> Iterator[str]:
    """`name=` of every field, dotted below the part that is being written; `name=value` where the values are few."""
    import dataclasses
    from typing import Literal, get_args, get_origin

    from orchestrator.spec.fields import alternatives, field_types

    name, given, _ = incomplete.partition("=")
    above, _, _ = name.rpartition(".")
    for part in filter(None, above.split(".")):
        to = field_types(config).get(part)
        config = next((kind for kind in alternatives(to) if dataclasses.is_dataclass(kind)), None)
        if config is None:
            return
    for field, to in field_types(config).items():
        path = f"{above}.{field}" if above else field
        if not given:
            yield f"{path}="
        elif path == name:
            values = get_args(to) if get_origin(to) is Literal else ("true", "false") if to is bool else ()
            yield from (f"{path}={value}" for value in values)
