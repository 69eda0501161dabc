"""An audit with its settings as one Python value, such as `engram.UniqueFeature(canaries=4)`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from orchestrator.errors import SpecError, short_traceback
from orchestrator.spec.specification import Spec
from tasks.contract.quantities import ByteCount, Duration

if TYPE_CHECKING:
    from orchestrator.spec.field_descriptions import DescribedField

PYTHON_TYPES = {
    "whole number": "int",
    "number": "float",
    "text": "str",
    "true or false": "bool",
    ByteCount.words: "str | int",
    Duration.words: "str | float",
}
CHOICE = re.compile(r"one of ([\w-]+(?:, [\w-]+)*)")


@dataclasses.dataclass(frozen=True)
class SettingParameter:
    """A keyword of an audit's settings: a field, under each of the types that its alternatives declare."""

    annotation: str
    meaning: str


class _SettingsType(type):
    """Type of the settings classes. Their signatures list every field, which takes a third of a second to find."""

    audit: str

    @property
    def __signature__(cls) -> inspect.Signature | None:
        if not cls.audit:
            return None
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("preset", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)]
        for name, parameter in setting_parameters(cls.audit).items():
            parameters.append(inspect.Parameter(name, keyword, default=None, annotation=parameter.annotation))
        return inspect.Signature([*parameters, inspect.Parameter("fields", inspect.Parameter.VAR_KEYWORD)])


class AuditSettings(metaclass=_SettingsType):
    """An audit with a preset and the fields that differ from it. Without a preset, they differ from the default.

    Fields have the names and values that the command line accepts. `engram.run`, `plan` and `search` take these
    settings in place of an audit's name. Raises SpecError for an unknown preset or field, and for an invalid value.
    """

    audit = ""

    @short_traceback
    def __init__(self, preset: str | None = None, **fields: Any) -> None:
        from orchestrator.spec.resolve import resolve_cells

        self.preset = preset
        self.fields: Mapping[str, Any] = fields
        resolve_cells(Spec(self.audit, preset, fields))

    def __repr__(self) -> str:
        preset = [] if self.preset is None else [f"preset={self.preset!r}"]
        fields = [f"{name}={value!r}" for name, value in self.fields.items() if name.isidentifier()]
        others = {name: value for name, value in self.fields.items() if not name.isidentifier()}
        return f"{type(self).__name__}({', '.join([*preset, *fields, *([f'**{others!r}'] if others else [])])})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AuditSettings):
            return NotImplemented
        return (self.audit, self.preset, self.fields) == (other.audit, other.preset, other.fields)

    __hash__ = None  # type: ignore[assignment] # the values of fields may be lists


def class_name(audit: str) -> str:
    """Return the name of an audit's settings class: `UniqueFeature` for `unique_feature`."""
    return "".join(word.capitalize() for word in audit.split("_"))


def settings_classes() -> Mapping[str, str]:
    """Map the names of the settings classes to the installed audits, without importing the audits."""
    from orchestrator.spec import audits

    return {class_name(audit): audit for audit in audits.names()}


@functools.cache
def settings_class(audit: str) -> type[AuditSettings]:
    """Return the settings class of an audit. Raises SpecError if it is unknown."""
    from orchestrator.spec import audits

    question = audits.find(audit).question
    created = _SettingsType(class_name(audit), (AuditSettings,), {"audit": audit, "__doc__": question})
    return cast(type[AuditSettings], created)


def settings_of(config: Any) -> AuditSettings | None:
    """Return the settings that describe a configuration, or None if its class belongs to no installed audit."""
    from orchestrator.spec import audits
    from orchestrator.spec.config_parts import differing_paths, plain

    module = type(config).__module__  # which names the audit: loading all audits takes seconds
    for name in sorted(audits.names(), key=lambda name: name not in module):
        registered = audits.find_installed(name)
        if registered is not None and type(config) is registered.audit.config:
            values, defaults = plain(config), plain(registered.audit.config())
            fields = {}
            for path in differing_paths([defaults, values]):
                fields[path] = functools.reduce(lambda part, key: part[key], path.split("."), values)
            return settings_class(name)(**fields)
    return None


def setting_parameters(audit: str) -> Mapping[str, SettingParameter]:
    """Return the keywords of an audit's settings class: its top-level fields, then those with unambiguous short names.

    A field whose short name is ambiguous is passed by its path, such as `**{"training.steps": 100}`.
    """
    from orchestrator.spec import audits
    from orchestrator.spec.field_descriptions import describe_fields
    from orchestrator.spec.short_names import find_paths

    registered = audits.find(audit).audit
    described = describe_fields(registered)
    by_name: dict[str, list[DescribedField]] = {}
    for path, field in sorted(described.items(), key=lambda item: item[0].count(".")):
        by_name.setdefault(path.rpartition(".")[2], []).append(field)
    parameters = {}
    for name, fields in by_name.items():
        try:
            find_paths(registered.config(), {name: None})
        except SpecError:
            continue
        types = dict.fromkeys(_python_type(field) for field in fields)
        annotation = "Any" if "Any" in types else " | ".join(types)
        parameters[name] = SettingParameter(annotation, fields[0].meaning)
    return parameters


def _python_type(field: DescribedField) -> str:
    """Return the Python type of a field. A field whose type is written in several forms accepts any value."""
    if field.type in PYTHON_TYPES:
        return PYTHON_TYPES[field.type]
    choice = CHOICE.fullmatch(field.type)
    if choice is None:
        return "Any"
    names = ", ".join(f'"{name}"' for name in choice[1].split(", "))
    return f"Literal[{names}] | Mapping[str, Any]" if field.choices else f"Literal[{names}]"
