"""Identity: the key of a job is a hash of its task's name and version, its config and its inputs' keys; nothing else.

Place, time, speed and neighbouring jobs do not enter the key. Data enters by the digest of its content. The version of
a task represents its code in Engram and in installed packages; for a task in a user's file, the digest of the files
that it may execute also enters.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.config_parts import parts
from orchestrator.spec.fields import kinds, readers
from tasks.contract.alternatives import TYPE, tag_of
from tasks.contract.job import ANSWER_ONLY, Job, marks
from tasks.user_code.acceptance import digest_in_keys, use_stand_ins
from tasks.user_code.closure import digest_of_files, find_user_files, is_user_file

# The format of keys. Format 1 omitted fields newer than the first stored results if they had their default; format 2
# contains every field.
KEY_FORMAT = 2
MAX_CACHED = 10_000  # cached forms
_known: dict[int, tuple[Any, Any]] = {}  # id of a part -> the part itself, which keeps the id valid, and its form


def key_of(job: Job, inputs: Sequence[str]) -> str:
    """The key of a job whose inputs have these keys: 64 hexadecimal digits (SHA-256)."""
    mark = marks(job.function)
    source = digest_in_keys(source_of(job.function.__module__))
    code = [source] if source else []
    return _hash([KEY_FORMAT, mark.name, mark.version, canonical(job.config), list(inputs), *code])


@functools.cache  # later changes of the files do not matter: the module is imported
def source_of(module: str) -> str:
    """The digest of the user's files that a task's module may execute; empty if its code has a version.

    Raises SpecError if its imports cannot be determined before it runs.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or not is_user_file(path):
        return ""
    try:
        files = find_user_files(module)
    except ValueError as error:
        raise SpecError(f"audit in {module}: {error}") from None
    if files:
        return digest_of_files(files.values())
    return ""


@contextmanager
def accept_code(stand_ins: Mapping[str, str]) -> Iterator[None]:
    """Compute keys inside the block as if code with these digests had the earlier ones (present -> earlier)."""
    if not stand_ins:
        yield
        return
    _known.clear()  # forms contain digests
    try:
        with use_stand_ins(stand_ins):
            yield
    finally:
        _known.clear()


def canonical(config: Any) -> Any:
    """The config as numbers, text, lists and dicts, each field coerced to its declared type: 1 and 1.0 are equal.

    A value with an `identity()` method, such as a data set, enters by its identity. Raises SpecError if a value has no
    stable form.
    """
    if hasattr(config, "identity"):
        try:
            return {"identity": config.identity()}
        except ValueError as error:
            raise SpecError(str(error)) from None
    fields = parts(config)
    if fields is None:
        return _stable(config)
    kind: Any = type(config)
    field_readers = readers(kind)
    nested = kinds(kind)
    kind_name = kind.__name__
    forms = {}
    if tag_of(kind):
        forms = {TYPE: tag_of(kind)}
    for name, part in fields.items():
        if type(part) in nested[name]:  # a nested config is handled by this recursion and needs no reader
            forms[name] = _form_of(part)
        else:
            forms[name] = _stable(field_readers[name](part, f"{kind_name}.{name}"))
    return forms


def _form_of(part: Any) -> Any:
    """The form of a part of a config, cached for frozen parts, which thousands of jobs may share."""
    cached = _known.get(id(part))
    if cached is not None:
        return cached[1]
    form = canonical(part)
    dataclass_params = getattr(type(part), "__dataclass_params__", None)
    if dataclass_params is not None and dataclass_params.frozen:
        if len(_known) >= MAX_CACHED:
            _known.clear()
        _known[id(part)] = part, form
    return form


def run_id(audit: str, keys: Sequence[str], config: Any) -> str:
    """The name of an audit's run whose plan has these keys, such as `unique_feature-1f83d9ab`.

    Thresholds that only the answer reads are in no key. They enter the name unless they have their defaults, so that a
    run never shows the answer for another threshold.
    """
    thresholds = _answer_settings(config)
    return f"{audit}-{_hash([audit, sorted(keys), *([thresholds] if thresholds else [])])[:8]}"


def _answer_settings(config: Any, prefix: str = "") -> dict[str, Any]:
    """The fields that only the answer reads and that differ from their defaults, coerced, by their dotted paths."""
    kind: Any = type(config)
    field_readers = readers(kind)
    settings = {}
    for field in dataclasses.fields(config):
        path = f"{prefix}{field.name}"
        value = getattr(config, field.name)
        if field.metadata.get(ANSWER_ONLY):
            value = field_readers[field.name](value, field.name)
            if value != field.default:
                settings[path] = value
        elif parts(value) is not None:
            settings |= _answer_settings(value, f"{path}.")
    return settings


def _stable(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str, float)):
        return value
    if isinstance(value, tuple | list):
        return [_stable(part) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return canonical(value)
    raise SpecError(f"{value!r} has no stable form; use numbers, text, tuples or dataclasses")


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
