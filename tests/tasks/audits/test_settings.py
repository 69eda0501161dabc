"""Every setting of an audit changes the plan or is read only by the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest

from orchestrator.errors import EngramError
from orchestrator.spec import audits
from orchestrator.spec.config_parts import parts
from orchestrator.spec.fields import alternatives, field_types, replace_fields
from tasks.contract.job import ANSWER_ONLY, Job

AUDITS = ("deja_vu", "density", "forgetting", "membership", "relational", "text", "unique_feature")


# Settings without a visible effect in a small plan.
WITHOUT_EFFECT_IF_TINY = {
    "link": "a training of one epoch is one link",
    "one_seed": "the plan has one canary",
    "partial": "the targets have these shares already",
    "kind": "each canary has a different feature, drawn by the seed",
}


def plan_digest(audit: Any, config: Any) -> tuple[Any, ...]:
    """A digest of the plan: every job with its configuration and inputs."""
    digests: dict[int, int] = {}

    def digest(job: Job) -> int:
        if id(job) not in digests:
            # The text of a config leaves out some fields that were added later, but names its types.
            form = f"{job.config!r} {dataclasses.asdict(job.config)!r}"
            digests[id(job)] = hash((job.function.__qualname__, form, tuple(map(digest, job.inputs))))
        return digests[id(job)]

    roots = audit.plan(config).items()
    return tuple((name, tuple(map(digest, jobs if isinstance(jobs, tuple) else (jobs,)))) for name, jobs in roots)


def settings(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, declared type and value of each field that should affect the plan, including groups and alternatives."""
    kind: Any = type(config)
    for field in dataclasses.fields(config):
        path = f"{prefix}{field.name}"
        field_value = getattr(config, field.name)
        if field.metadata.get(ANSWER_ONLY):
            continue
        if parts(field_value) is not None:
            yield from settings(field_value, f"{path}.")
        else:
            yield path, field_types(kind)[field.name], field_value


def other_values(declared_type: Any, value: Any) -> list[Any]:
    """Other values of a declared type; none for texts, data sets and files."""
    if isinstance(value, bool):
        return [not value]
    for member in alternatives(declared_type):
        if get_origin(member) is Literal:
            return [choice for choice in get_args(member) if choice != value]
    if isinstance(value, int):
        return [value + 1, value + 2, max(0, value - 1), value * 2]
    if isinstance(value, float):
        return [value * 0.9, value * 0.5, min(0.99, value + 0.1)]
    if isinstance(value, tuple) and value and isinstance(value[0], int | float):
        return [value[1:], (*value, value[-1] * 2), (value[0] * 2, *value[1:])]
    return []


def without_effect(audit: Any, config: Any) -> list[str]:
    """The settings whose other accepted values do not change the plan."""
    baseline = plan_digest(audit, config)
    unused = []
    for path, declared_type, value in settings(config):
        accepted = 0
        for new_value in other_values(declared_type, value):
            if new_value == value:
                continue
            try:
                changed = plan_digest(audit, replace_fields(config, {path: new_value})) != baseline
            except (EngramError, ValueError):
                continue
            accepted += 1
            if changed:
                break
        else:
            if accepted:
                unused.append(path)
    return unused


def kinds(config: Any) -> tuple[Any, ...]:
    """The types of a config, its groups, its alternatives and its lists of names; presets with equal types count as
    one.
    """
    types: list[Any] = [type(config)]
    for value in (parts(config) or {}).values():
        if parts(value) is not None:
            types.append(kinds(value))
        elif isinstance(value, tuple) and value and isinstance(value[0], str):
            types.append(value)
    return tuple(types)


def distinct_presets(name: str) -> list[str]:
    """The first preset of each combination of types."""
    audit = audits.find(name).audit
    presets: dict[Any, str] = {}
    for preset in audit.presets:
        presets.setdefault(kinds(audit.cells(preset)[0]), preset)
    return list(presets.values())


@pytest.mark.parametrize(("name", "preset"), [(name, preset) for name in AUDITS for preset in distinct_presets(name)])
def test_every_setting_has_an_effect(name: str, preset: str) -> None:
    audit = audits.find(name).audit
    unused = without_effect(audit, audit.tiny(audit.cells(preset)[0]))
    assert [path for path in unused if path.rpartition(".")[2] not in WITHOUT_EFFECT_IF_TINY] == []
