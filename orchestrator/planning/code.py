"""User code that a plan depends on, with names such as `network hospital:small` and `audit label_memorization`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.planning.identity import source_of
from orchestrator.planning.plan import Plan
from orchestrator.spec.config_parts import rebuild, walk
from tasks.external.model_file import ModelFile
from tasks.models import custom
from tasks.models.custom import Factory, Named, is_own
from tasks.user_code.closure import SourceFile, digest_of_files, find_user_files

NETWORK = "network "
AUDIT = "audit "


@dataclass(frozen=True)
class Code:
    """The current state of a piece of user code: its digest, and the digests of its files by name."""

    name: str
    digest: str
    files: Mapping[str, str]


def code_of(config: Any, plan: Plan | None = None) -> list[Code]:
    """Return the user code referenced by a configuration and, if a plan is given, by its tasks.

    Raises SpecError if code is missing.
    """
    names = dict.fromkeys(f"{NETWORK}{_bare(factory)}" for factory in _factories(config))
    if plan is not None:
        modules = dict.fromkeys(job.function.__module__ for job in plan.jobs.values())
        names |= dict.fromkeys(f"{AUDIT}{module}" for module in modules if source_of(module))
    return [read_code(name) for name in names]


def read_code(name: str) -> Code:
    """Return the current code with this name. Raises SpecError if it is missing or cannot be pinned."""
    try:
        if name.startswith(NETWORK):
            files: Mapping[str, SourceFile] = custom.source_files(Factory.parse(name.removeprefix(NETWORK)))
        else:
            files = find_user_files(name.removeprefix(AUDIT))
    except ValueError as error:
        raise SpecError(str(error)) from None
    return Code(name, digest_of_files(files.values()), {file.name: file.digest for file in files.values()})


def pinned_digest(config: Any, name: str) -> str | None:
    """Return the digest of a network's code pinned in a configuration, or None if the network is not named directly."""
    for _, part in walk(config):
        if isinstance(part, Named) and is_own(part.name) and f"{NETWORK}{part.name}" == name:
            return part.digest
    return None


def stand_ins(config: Any, earlier: Mapping[str, tuple[str, Sequence[str]]]) -> dict[str, str]:
    """Map the digests in a pinned configuration and of accepted changes to the digests used in keys.

    `earlier` maps each code name to the digest used in its keys and to the digests of the versions accepted since then.
    """
    digests_in_keys: dict[str, str] = {}
    for name, (keys, accepted_digests) in earlier.items():
        digests_in_keys |= dict.fromkeys((read_code(name).digest, *accepted_digests), keys)
    for _, part in walk(config):
        if isinstance(part, ModelFile) and part.factory is not None:
            keys, accepted_digests = earlier.get(f"{NETWORK}{_bare(part.factory)}", ("", ()))
            if keys:
                digests = (part.digest, *(part.digest_with_source(source) for source in accepted_digests))
                digests_in_keys |= dict.fromkeys(digests, part.digest_with_source(keys))
    return {digest: keys for digest, keys in digests_in_keys.items() if digest != keys}


def pin_code_again(config: Any, names: Iterable[str]) -> Any:
    """Return a pinned configuration with the current digests of this code."""
    names_to_pin = set(names)

    def pin(value: Any) -> Any:
        if isinstance(value, Named) and is_own(value.name) and f"{NETWORK}{value.name}" in names_to_pin:
            return replace(value, digest="").pin({})
        if isinstance(value, ModelFile):
            is_named = value.factory is not None and f"{NETWORK}{_bare(value.factory)}" in names_to_pin
            if is_named:
                return replace(value, digest="").pin({})
            return value
        return rebuild(value, lambda part, _: pin(part))

    return pin(config)


def _factories(config: Any) -> list[Factory]:
    factories = []
    for _, part in walk(config):
        if isinstance(part, Named):
            if is_own(part.name):
                factories.append(Factory.parse(part.name))
        elif isinstance(part, ModelFile) and part.factory is not None:
            factories.append(part.factory)
    return factories


def _bare(factory: Factory) -> str:
    return str(replace(factory, digest=""))
