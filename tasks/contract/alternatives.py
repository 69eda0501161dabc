"""Alternatives: dataclasses that a field accepts, each selected by a tag.

    @dataclass(frozen=True)
    class Documents(Ranged):
        tag: ClassVar[str] = "documents"
        models: int = 16

    question: Secrets | Documents = Secrets()

`question=documents question.models=8` selects the second alternative. In YAML and JSON, the tag is the `type` entry of
the mapping: `question: {type: documents, models: 8}`. An alternative with a class method `from_text` is also selected
by text from which it can be built (`training=package.module:train`), whose form is its `text_form`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

TYPE = "type"  # key of the tag in a mapping


def tag_of(kind: Any) -> str:
    """Return the tag of a configuration class, or an empty string if the class is not an alternative."""
    return getattr(kind, "tag", "") if isinstance(kind, type) else ""


def tagged_members(to: Any) -> Mapping[str, Any]:
    """Return the alternatives of a declared type, keyed by tag, in declaration order. Empty if the type has none."""
    return {tag_of(member): member for member in _union_members(to) if tag_of(member)}


def from_text(members: Mapping[str, Any], text: str) -> Any:
    """Return the alternative that this text builds, or None for tags, mappings and text of other forms.

    Raises ValueError for bad text.
    """
    if text.startswith("{"):  # a mapping, such as {type: documents, models: 8}
        return None
    for member in members.values():
        if hasattr(member, "from_text"):
            value = member.from_text(text)
            if value is not None:
                return value
    return None


def text_forms(members: Mapping[str, Any]) -> list[str]:
    """Return the forms of text that select alternatives, apart from their tags."""
    return [member.text_form for member in members.values() if hasattr(member, "from_text")]


def _union_members(to: Any) -> Iterator[Any]:
    if typing.get_origin(to) is typing.Annotated:
        yield from _union_members(typing.get_args(to)[0])
    elif typing.get_origin(to) in (typing.Union, types.UnionType):
        for member in typing.get_args(to):
            yield from _union_members(member)
    else:
        yield to
