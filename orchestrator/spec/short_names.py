"""Short field names: `epochs` for `tuning.epochs`, and `documents.models` for `question.models` of `documents`.

A name that is not a top-level field may be the last part of a path if only one field ends in it. It may also start with
the tag of an alternative, which is then selected. Fields of selected alternatives take precedence, and a value with a
prefix (`column:trained`) refers to a field whose type has this prefix. The last part may also follow a group:
`query.secret` stands for `query.control.secret`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.fields import alternatives, field_types, value_of_text
from tasks.contract.alternatives import tag_of, tagged_members


@dataclass(frozen=True)
class _Field:
    """A field path, and the tags that must be set for the configuration to have this field.

    `selects` maps the paths of alternatives to the tags to set. `members` are the alternatives of the field itself by
    tag, and `selected` is the current one. `prefix` is the prefix of its values in text form, if its type has one.
    `is_absent` is true below an optional field without a value, which the setting would create. `is_unknown` is true if
    the alternative has no such field.
    """

    path: str
    selects: Mapping[str, str]
    members: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    selected: str = ""
    prefix: str = ""
    is_absent: bool = False
    is_unknown: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.members)

    def select(self, tag: str) -> Mapping[str, str]:
        """Return the tags to set for a field that belongs to this alternative."""
        if tag == self.selected:
            return self.selects
        return {**self.selects, self.path: tag}

    def below(self, nested_path: str) -> _Field:
        """Return the field at a path relative to this field, or this field itself if the path is empty."""
        if nested_path:
            return _Field(f"{self.path}.{nested_path}", self.selects, is_absent=self.is_absent)
        return _Field(self.path, self.selects, prefix=self.prefix, is_absent=self.is_absent)


def find_paths(
    config: Any, settings: Mapping[str, Any], overriding: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the full path of each setting, and the tags of the alternatives that the short names select.

    An unknown name is returned as its own path. Raises SpecError if a short name is ambiguous, if two names refer to
    the same field, or if the fields belong to different alternatives. An `overriding` name may refer to the same field
    as another name.
    """
    if not settings:
        return {}, {}
    kind: Any = type(config)
    fields = _list_fields(config, settings)
    settings_with_tags = {**settings, **_selections_by_short_names(kind, settings, fields)}
    if settings_with_tags != settings:
        fields = _list_fields(config, settings_with_tags)
    selected: dict[str, str] = {}
    for name in settings:  # names that exist in only one alternative determine the choice for all others
        for path, tag in _common_selections(_candidates(kind, name, settings_with_tags, fields)).items():
            if selected.setdefault(path, tag) != tag:
                raise SpecError(
                    f"{name} is a field of {path}={tag}, but another setting belongs to {path}={selected[path]}"
                )
    decided = {**selected, **settings_with_tags}
    if selected:
        chosen_fields = _list_fields(config, decided)
    else:
        chosen_fields = fields
    paths: dict[str, str] = {}
    for name in settings:
        field = _choose(name, _candidates(kind, name, decided, chosen_fields))
        if field is None:
            _refuse_other_alternative(config, name, settings_with_tags, fields)
        if field is None or field.is_unknown or field.path == name:
            _refuse_choice(name, fields)
            candidates = _candidates(kind, name, settings_with_tags, fields)
            known_fields = []
            for candidate in candidates:
                if candidate.path != name and not candidate.is_unknown:
                    known_fields.append(candidate)
            if selected and known_fields:
                selections = ", ".join(f"{path}={tag}" for path, tag in selected.items())
                raise SpecError(
                    f"{name} is not a field of {selections}, but another setting is; leave out one of the two"
                )
        path = name if field is None else field.path
        if any(
            paths[earlier_name] == path and (earlier_name in overriding) == (name in overriding)
            for earlier_name in paths
        ):
            raise SpecError(f"{path} is set twice, once as {name}; set it only once")
        paths[name] = path
        if field is not None and not field.selects.items() <= selected.items():
            selected |= field.selects
            decided = {**selected, **settings_with_tags}
            chosen_fields = _list_fields(config, decided)
    return paths, selected


def _selections_by_short_names(kind: Any, settings: Mapping[str, Any], fields: list[_Field]) -> dict[str, str]:
    """Return the tags, or the text, selected through the short name of a field, such as `criterion=simclr`."""
    members: dict[str, dict[str, Any]] = {}
    for field in fields:  # two alternatives may have fields of the same path with other alternatives
        members.setdefault(field.path, {}).update(field.members)
    selections = {}
    for name, value in settings.items():
        likeliest = _likeliest(_candidates(kind, name, settings, fields))
        if len(likeliest) != 1:
            continue
        path = likeliest[0].path
        tag = _given_tag(members.get(path, {}), value, path)
        if isinstance(tag, str) and tag in members.get(path, ()):
            selections[path] = value
    return selections


def _common_selections(candidates: list[_Field]) -> dict[str, str]:
    """Return the tags that all of these fields require."""
    if not candidates:
        return {}
    first, *other_candidates = candidates
    selections = {}
    for path, tag in first.selects.items():
        if all(candidate.selects.get(path) == tag for candidate in other_candidates):
            selections[path] = tag
    return selections


def _candidates(kind: Any, name: str, settings: Mapping[str, Any], fields: list[_Field]) -> list[_Field]:
    """Return the fields that a name may refer to.

    If their types have prefixes, the prefix of the value selects among them. `kind` is the configuration class, and
    `fields` are its fields given these settings.
    """
    return _with_prefix_of(settings.get(name), _named_fields(kind, name, fields))


def _with_prefix_of(value: Any, fields: list[_Field]) -> list[_Field]:
    prefixed = [field for field in fields if field.prefix]
    matching = []
    for field in prefixed:
        if isinstance(value, str) and value.startswith(field.prefix):
            matching.append(field)
    return matching or [field for field in fields if not field.prefix] or fields


def _named_fields(kind: Any, name: str, fields: list[_Field]) -> list[_Field]:
    first, _, nested_path = name.partition(".")
    if first in field_types(kind):
        exact = [field for field in fields if field.path == name and nested_path]
        if len(exact) == 1:
            return exact
        return list(_below_group(name, fields)) or [_Field(name, {})]
    tagged = [field for field in fields if first in field.tags]
    if tagged and nested_path:
        return [match for field in tagged for match in _below_tag(field, first, nested_path, fields)]
    matching_fields = [field for field in fields if field.name == first]
    below_choices = {f"{field.path}.{nested_path}" for field in matching_fields if field.tags}
    in_alternatives = [field for field in fields if field.path in below_choices]
    return in_alternatives or [field.below(nested_path) for field in matching_fields]


def _below_tag(choice: _Field, tag: str, nested_path: str, fields: list[_Field]) -> Iterator[_Field]:
    """Yield the fields that `nested_path` may refer to in the alternative with this tag, top-level fields first."""
    first, _, last = nested_path.partition(".")
    selects = choice.select(tag)
    below = [field for field in fields if field.path.startswith(f"{choice.path}.") and field.name == first]
    inside = [field for field in below if selects.items() <= {**choice.selects, **field.selects}.items()]
    matching_fields = [field for field in inside if field.path == f"{choice.path}.{first}"] or inside
    for field in matching_fields:
        yield field.below(last)
    if not matching_fields:
        yield _Field(f"{choice.path}.{nested_path}", selects, is_unknown=True)


def _below_group(name: str, fields: list[_Field]) -> Iterator[_Field]:
    """Yield the fields that a path with omitted groups may refer to. Yields nothing for a complete path."""
    paths = {field.path for field in fields}
    group, _, nested_path = name.partition(".")
    first, _, last = nested_path.partition(".")
    while nested_path and f"{group}.{first}" in paths:
        group = f"{group}.{first}"
        nested_path = last
        first, _, last = nested_path.partition(".")
    for field in fields:
        if nested_path and field.name == first and field.path.startswith(f"{group}."):
            yield field.below(last)


def _refuse_choice(name: str, fields: list[_Field]) -> None:
    """Raise SpecError if the name of a setting is the tag of an alternative but not a field."""
    for field in fields:
        if name in field.tags and name not in {known_field.name for known_field in fields}:
            raise SpecError(f"{name!r} is not a field but a choice of {field.path}: write {field.path}={name}")


def _refuse_other_alternative(config: Any, name: str, settings: Mapping[str, Any], fields: list[_Field]) -> None:
    """Raise SpecError if a field with this name exists only in alternatives that the settings do not select."""
    kind: Any = type(config)
    selections = []
    for field in fields:
        if settings.get(field.path) in field.tags:
            selections.append(f"{field.path}={field.selected}")
    is_missing = selections and not _candidates(kind, name, settings, fields)
    if is_missing and _candidates(kind, name, {}, _list_fields(config, {})):
        raise SpecError(f"{name} is not a field of {', '.join(dict.fromkeys(selections))}")


def _likeliest(matches: list[_Field]) -> list[_Field]:
    """Return the fields that need the fewest tags.

    Existing fields are preferred, then fields that keep the alternatives around them (`privacy.epsilon` of the present
    recipe, not of another kind of training), then fields of an alternative whose tag equals the field name.
    """
    fewest = min(((len(field.selects), field.is_absent) for field in matches), default=None)
    likely = []
    for field in matches:
        if (len(field.selects), field.is_absent) == fewest:
            likely.append(field)
    kept = [field for field in likely if not _selects_around(field, likely)]
    if len(kept) > 1:
        kept = [field for field in kept if field.name in field.selects.values()] or kept
    return kept


def _selects_around(field: _Field, others: list[_Field]) -> bool:
    """Return whether the field needs another alternative of a group in which others need one of a part of it."""
    for other in others:
        for path in field.selects.keys() - other.selects.keys():
            if any(inner.startswith(f"{path}.") for inner in other.selects):
                return True
    return False


def _choose(name: str, matches: list[_Field]) -> _Field | None:
    """Return the likeliest field, or None without matches. Raises SpecError if several are equally likely."""
    likely = _likeliest(matches)
    if len(likely) < 2:
        return likely[0] if likely else None
    forms = " or ".join(_describe_field(field) for field in likely)
    raise SpecError(f"{name} is ambiguous; write {forms}")


def _describe_field(field: _Field) -> str:
    return " ".join((*(f"{path}={tag}" for path, tag in field.selects.items()), f"{field.path}=VALUE"))


def _list_fields(config: Any, settings: Mapping[str, Any]) -> list[_Field]:
    """List every field of the configuration, including fields of alternatives that the settings do not exclude."""
    return list(_fields_below(type(config), config, settings, "", {}))


def _fields_below(
    kind: Any, value: Any, settings: Mapping[str, Any], prefix: str, selects: Mapping[str, str], is_absent: bool = False
) -> Iterator[_Field]:
    """Yield every field of configurations of this class, including the fields of alternatives.

    `value` is the current configuration, or None if it is of another class, in which case the defaults apply. If the
    settings select an alternative, the fields of the other alternatives are omitted.
    """
    for name, members, nested_configs, text_prefix in _declared_fields(kind):
        path = f"{prefix}{name}"
        present = getattr(kind if value is None else value, name, None)
        given_tag = _given_tag(members, settings.get(path), path)
        if isinstance(given_tag, str) and given_tag in members:
            selected = given_tag
        else:
            selected = tag_of(type(present))
        field = _Field(path, selects, members, selected, text_prefix, is_absent)
        yield field
        for tag, member in members.items():
            if given_tag != selected or tag == selected:
                inner = None
                if type(present) is member:
                    inner = present
                yield from _fields_below(member, inner, settings, f"{path}.", field.select(tag), is_absent)
        if not members:
            creates = is_absent or (value is not None and present is None)
            for member in nested_configs:
                yield from _fields_below(member, present, settings, f"{path}.", selects, creates)


def _given_tag(members: Mapping[str, Any], setting: Any, path: str) -> Any:
    """Return the tag of the alternative that a setting selects by its tag or its text, or the setting itself."""
    if not members or not isinstance(setting, str) or setting in members:
        return setting
    value = value_of_text(members, setting, path)
    return setting if value is None else tag_of(type(value))


@functools.cache
def _declared_fields(kind: Any) -> tuple[tuple[str, Mapping[str, Any], list[Any], str], ...]:
    """Return the name, alternatives, nested dataclasses and prefix of each field of a configuration class."""
    fields = []
    for name, declared_type in field_types(kind).items():
        members = tagged_members(declared_type)
        fields.append((name, members, _plain_configs(declared_type), getattr(declared_type, "prefix", "")))
    return tuple(fields)


def _plain_configs(declared_type: Any) -> list[Any]:
    """Return the dataclass of a declared type whose fields have short names, as a list with at most one element.

    The list is empty if values are parsed from text, or if the fields are always written with their full path
    (`in_full`).
    """
    kinds = []
    for kind in alternatives(declared_type):
        if dataclasses.is_dataclass(kind):
            kinds.append(kind)
    other_forms = ("identity", "parse", "in_full")
    configs = []
    for kind in kinds:
        if len(kinds) == 1 and not any(hasattr(kind, form) for form in other_forms):
            configs.append(kind)
    return configs
