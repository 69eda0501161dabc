"""The JSON files in a run's folder, which are sealed with a digest of their own bytes and checked when read.

A file from an older version has no digest; it may be damaged and still be valid JSON.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from tasks.contract.commitment import BINDINGS

NAME = "sha256"  # last name in the object: the digest of all bytes before it
SEAL = re.compile(rb',\s*"sha256": "([0-9a-f]{64})"\s*\}\s*\Z')
LENGTH = 200  # bytes at the end of the file that contain the seal
Check = Callable[[Any], bool]


def seal(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Serialise the object as JSON and append a digest. The object must have at least one name."""
    body = json.dumps(value, indent=indent).removesuffix("}").rstrip().encode()
    separator = " "
    if indent:
        separator = "\n" + " " * indent
    end = "\n}" if indent else "}"
    return body + f',{separator}"{NAME}": "{hashlib.sha256(body).hexdigest()}"{end}'.encode()


def unseal(data: bytes, must_be_sealed: bool = False) -> Any:
    """Return the sealed object. Raises ValueError with the reason if the bytes are damaged.

    JSON without a digest is returned unchecked, unless `must_be_sealed` is set.
    """
    value = _parse(data)
    if not must_be_sealed and (not isinstance(value, dict) or NAME not in value):
        return value
    match = SEAL.search(data, max(0, len(data) - LENGTH))
    if match is None or hashlib.sha256(memoryview(data)[: match.start()]).hexdigest().encode() != match[1]:
        raise ValueError("it is damaged: its digest does not match its content")
    del value[NAME]
    return value


def _parse(data: bytes) -> Any:
    """Parse JSON with Python's garbage collector off, because it would repeatedly scan the lists of a long plan."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return json.loads(data)
    finally:
        if is_collecting:
            gc.enable()


def check_about(value: Any) -> None:
    """Raise ValueError unless this is the content of a `run.json` for a run or a sweep."""
    _check_fields(value, "run.json", {"audit": _text}, ABOUT)
    if "cells" in value and len(value.get("settings", value["cells"])) != len(value["cells"]):
        raise ValueError("its numbers of settings and cells differ")


def check_plan(value: Any) -> None:
    """Raise ValueError unless this is the content of a `plan.json`."""
    _check_fields(value, "plan.json", {"roots": _mapping_of(_texts), "jobs": _jobs}, {"after": _mapping_of(_text)})


def is_event(value: Any) -> bool:
    """Whether this is an event with the fields that readers require for its kind."""
    if not isinstance(value, dict) or not (_text(value.get("event")) and _text(value.get("time"))):
        return False
    if not _is_time(value["time"]) or not all(is_valid(value[name]) for name, is_valid in ANY.items() if name in value):
        return False
    required_fields = {} if "results" in value else EVENTS.get(value["event"], {})
    return all(name in value and is_valid(value[name]) for name, is_valid in required_fields.items())


def parse_timings(value: Any) -> dict[str, list[float]]:
    """Return seconds by group from a `timings.json`, ignoring invalid parts."""
    if not isinstance(value, dict):
        return {}
    timings = {}
    for group, durations in value.items():
        if isinstance(durations, list):
            timings[group] = list(filter(_seconds, durations))
    return timings


def _check_fields(value: Any, name: str, required_fields: Mapping[str, Check], optional: Mapping[str, Check]) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"it contains a {type(value).__name__}, not the content of a {name}")
    for field, is_valid in {**required_fields, **optional}.items():
        if field in value and not is_valid(value[field]):
            raise ValueError(f"{field!r} has a wrong form for a {name}")
        if field in required_fields and field not in value:
            raise ValueError(f"{field!r} is missing, which every {name} has")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _maybe(is_valid: Check) -> Check:
    return lambda value: value is None or is_valid(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and not set(map(type, value)) - {str}


def _mapping_of(is_valid: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(is_valid, value.values()))


def _jobs(value: Any) -> bool:
    # In passes over the whole list, for speed, because there may be a million jobs.
    if not isinstance(value, list) or set(map(type, value)) - {list}:
        return False
    return not set(map(len, value)) - {2} and not set(map(type, chain.from_iterable(value))) - {str}


def _cells(value: Any) -> bool:
    """Whether these are folder names."""
    return _texts(value) and bool(value) and all(name not in ("", ".", "..") and "/" not in name for name in value)


def _settings(value: Any) -> bool:
    return isinstance(value, list) and all(map(_maybe(_mapping), value))


def _left_out(value: Any) -> bool:
    """Whether these are skipped cells, each with a message."""
    return isinstance(value, list) and all(_mapping(cell) and _text(cell.get("line")) for cell in value)


def _asked(value: Any) -> bool:
    """Whether this is a specification: a preset, fields that were set, and fields that were swept."""
    if not isinstance(value, dict) or not _maybe(_text)(value.get("preset")):
        return False
    sweep = value.get("sweep", {})
    return (
        _mapping(value.get("set", {}))
        and (_mapping(sweep) and all(isinstance(values, list) for values in sweep.values()))
        and _count(value.get("tolerate", 0))
    )


def _code(value: Any) -> bool:
    """Whether this is the user's code by name, each with a digest and the digests of its files."""
    return isinstance(value, dict) and all(
        _mapping(code) and _text(code.get("digest")) and _mapping_of(_text)(code.get("files"))
        for code in value.values()
    )


def _accepted(value: Any) -> bool:
    """Whether these are accepted code changes."""
    names = ("code", "run", "keys", "before", "now", "time")
    return isinstance(value, list) and all(
        _mapping(entry) and all(_text(entry.get(name)) for name in names) and _texts(entry.get("files"))
        for entry in value
    )


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


ABOUT: Mapping[str, Check] = {
    "run": _text,
    "created": _text,
    "preset": _maybe(_text),
    "setting": _maybe(_mapping),
    "config": _mapping,
    "versions": _mapping,
    "key_format": _count,
    "cells": _cells,
    "settings": _settings,
    "asked": _asked,
    "left_out": _left_out,
    "search": _mapping,
    "code": _code,
    "accepted": _accepted,
    "stand_ins": _mapping_of(_text),
    "binding": lambda value: value in BINDINGS,
    "look": lambda value: _mapping(value) and all(_count(value.get(name)) for name in ("number", "cells", "streams")),
}
# Optional fields of all events, and required fields by event kind.
ANY: Mapping[str, Check] = {
    "key": _text,
    "task": _text,
    "error": _text,
    "note": _text,
    "unsound": _texts,
    "planned": _count,
    "stored": _count,
    "models": _count,
    "tasks": _mapping_of(_count),
    "trains": _mapping_of(_count),
    "prices": _mapping_of(_seconds),
    "search": _text,
    "pages": _mapping_of(_text),
    "results": _mapping_of(_texts),  # in `stored` events; earlier versions have a single key
    "jobs": _mapping_of(_count),
}
EVENTS: Mapping[str, Mapping[str, Check]] = {
    "stored": {"key": _text},
    "step": {"step": _text},
    "ready": {"slots": _seconds},
    "running": {"count": _count},
    "done": {"key": _text, "task": _text, "seconds": _seconds},
    "missing": {"inputs": _texts},
    "damaged": {"key": _text},
    "tolerated": {"keys": _texts, "instead": _texts, "roots": _mapping_of(_texts)},
    "curtailed": {"keys": _texts, "instead": _texts, "roots": _mapping_of(_texts)},
}
