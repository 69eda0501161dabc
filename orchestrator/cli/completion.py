"""Shell completions for audits, presets, fields and runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

import typer

from orchestrator.errors import EngramError
from tasks.contract.alternatives import tagged_members

SUFFIXES = (".yaml", ".yml")


def audits_and_files(incomplete: str) -> list[str]:
    """Return the audits, and the YAML files in the current folder, that begin with this text."""
    from pathlib import Path

    from orchestrator.spec import audits

    files = sorted(path.name for path in Path().iterdir() if path.suffix in SUFFIXES)
    return _beginning([*audits.names(), *files], incomplete)


def names(incomplete: str) -> list[str]:
    """Return the audits that begin with this text."""
    from orchestrator.spec import audits

    return _beginning(audits.names(), incomplete)


def parts_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the presets of the audit on the command line, its fields, and the alternatives of these fields."""
    from orchestrator.spec.field_descriptions import describe_fields

    audit = _audit({"audit_or_file": ctx.params.get("audit")})
    if audit is None:
        return []
    described = describe_fields(audit)
    tags = [tag for field in described.values() for tag in field.choices]
    return _beginning(dict.fromkeys((*audit.presets, *described, *tags)), incomplete)


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the presets of the audit on the command line."""
    audit = _audit(ctx.params)
    if audit is None:
        return []
    return _beginning(audit.presets, incomplete)


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the configuration fields as `name=`, or the values of one field if it has a short list of values."""
    audit = _audit(ctx.params)
    if audit is None:
        return []
    return _beginning(_settings(audit.config, incomplete), incomplete)


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the runs in the store."""
    from orchestrator.cli.store import command_store
    from orchestrator.inspection import status

    try:
        with command_store(ctx.params.get("store")) as opened_store:
            return _beginning(status.journals(opened_store), incomplete)
    except EngramError:
        return []


def runs_and_actions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the second words of the command, such as `sign` of `report sign`, and the runs in the store."""
    group: Any = ctx.find_root().command
    actions = []
    for name in group.commands:
        first, _, action = name.partition(" ")
        if first == ctx.info_name and action:
            actions.append(action)
    return [*_beginning(actions, incomplete), *runs(ctx, incomplete)]


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _audit(parameters: Mapping[str, Any]) -> Any:
    """Return the audit on the command line.

    If the command line ends with an option, typer parses no arguments, so the words are taken from the shell's
    variables.
    """
    from orchestrator.spec import audits

    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    names = audits.names()
    for word in (parameters.get("audit_or_file"), *line.split()):
        if word in names:
            with suppress(EngramError):
                return audits.find(word).audit
    return None


def _settings(config: Any, incomplete: str) -> Iterator[str]:
    """Yield `name=` for every field below the typed prefix, or `name=value` for a field with a short list of values."""
    from orchestrator.spec.fields import alternatives, field_types

    name, equals_sign, _ = incomplete.partition("=")
    parent, _, _ = name.rpartition(".")
    kinds = [config]
    for part in filter(None, parent.split(".")):
        types = [field_types(kind)[part] for kind in kinds if part in field_types(kind)]
        kinds = [
            member
            for declared_type in types
            for member in alternatives(declared_type)
            if dataclasses.is_dataclass(member)
        ]
    for field, declared_type in {
        field: declared_type for kind in kinds for field, declared_type in field_types(kind).items()
    }.items():
        path = f"{parent}.{field}" if parent else field
        if not equals_sign:
            yield f"{path}="
        elif path == name:
            yield from (f"{path}={value}" for value in _known_values(declared_type))


def _known_values(declared_type: Any) -> tuple[str, ...]:
    """Return the allowed values of a type that has only a few, such as a boolean, a literal or a tagged union."""
    if tagged_members(declared_type):
        return tuple(tagged_members(declared_type))
    if declared_type is bool:
        return ("true", "false")
    if get_origin(declared_type) is Literal:
        return tuple(map(str, get_args(declared_type)))
    return ()
