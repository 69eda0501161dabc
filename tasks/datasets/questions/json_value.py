"""Values of a JSON file, which know their place in it: what is wrong with one is said in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.datasets.dataset import DatasetError


@dataclass(frozen=True)
class JsonValue:
    """A value, its file, and the names and numbers that lead to it."""

    value: Any
    path: Path
    keys: tuple[str | int, ...] = ()

    @property
    def place(self) -> str:
        """The file and the place in it: `train.json, data[0].paragraphs[2]`."""
        steps = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return f"{self.path}, {steps.lstrip('.')}" if steps else str(self.path)

    def error(self, allowed: str) -> DatasetError:
        return DatasetError(f"{self.place} is {json.dumps(self.value):.80}; it must be {allowed}")

    def has(self, name: str) -> bool:
        """Whether it is an object with this field, which is not null."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def field(self, name: str) -> JsonValue:
        """The object's field; DatasetError where it is no object, or has no such field."""
        if not isinstance(self.value, dict):
            raise self.error(f"an object with the field {name}")
        if name not in self.value:
            held = ", ".join(self.value) or "none"
            raise DatasetError(f"{self.place} has no field {name}; its fields are {held:.80}")
        return JsonValue(self.value[name], self.path, (*self.keys, name))

    def fields(self) -> Iterator[tuple[str, JsonValue]]:
        """The names and values of an object."""
        if not isinstance(self.value, dict):
            raise self.error("an object")
        for name in self.value:
            yield name, self.field(name)

    def elements(self) -> list[JsonValue]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.error("a list")
        return [JsonValue(value, self.path, (*self.keys, place)) for place, value in enumerate(self.value)]

    def text(self, blank: bool = False) -> str:
        """Text, which is `blank` where that is allowed."""
        if not isinstance(self.value, str) or not (blank or self.value.strip()):
            raise self.error("text" if blank else "text that is not blank")
        return self.value


def parse_json(path: Path, content: bytes) -> JsonValue:
    """The whole file's value; DatasetError where it is no JSON in UTF-8."""
    try:
        return JsonValue(json.loads(content.decode("utf-8-sig")), path)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is no text in UTF-8: {error}") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is no JSON: {error}") from None
