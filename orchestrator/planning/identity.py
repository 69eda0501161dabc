"""Identity: a job's key is a hash of its task name and version, its configuration and the keys of its inputs.

Nothing else enters the key: not the machine, the time, the speed, other jobs or the resources that a job states. Data
sets are represented by the digest of their content. A task's version stands for its code in Engram and in installed
packages. For a task defined in a user file, the key also contains the digest of the files that it may execute.
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
from orchestrator.spec.config_parts import execution_only, parts
from orchestrator.spec.fields import kinds, readers
from tasks.contract.alternatives import TYPE, tag_of
from tasks.contract.job import ADDED_LATER, ANSWER_ONLY, Job, marks
from tasks.user_code.acceptance import digest_in_keys, use_stand_ins
from tasks.user_code.closure import digest_of_files, find_user_files, is_user_file

# Version of the key format. Format 1 omitted fields added after the first stored results if they had their default
# values. Format 2 contains every field, except those that their configuration marks as ADDED_LATER at their defaults.
KEY_FORMAT = 2
MAX_CACHED = 10_000  # maximum number of cached forms
_known: dict[int, tuple[Any, Any]] = {}  # id of a part -> the part, kept alive so that its id stays valid, and its form


def key_of(job: Job, inputs: Sequence[str]) -> str:
    """Return the key of a job whose inputs have these keys: 64 hexadecimal digits (SHA-256)."""
    mark = marks(job.function)
    source = digest_in_keys(source_of(job.function.__module__))
    code = [source] if source else []
    return _hash([KEY_FORMAT, mark.name, mark.version, canonical(job.config), list(inputs), *code])


@functools.cache  # later changes to the files have no effect because the module is already imported
def source_of(module: str) -> str:
    """Return the digest of the user files that a task's module may execute.

    Returns an empty string if the code is covered by a task version. Raises SpecError if the imports cannot be
    determined without running the module.
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
    """Within the block, compute keys as if code with these digests had the earlier ones (present -> earlier)."""
    if not stand_ins:
        yield
        return
    _known.clear()  # cached forms contain digests
    try:
        with use_stand_ins(stand_ins):
            yield
    finally:
        _known.clear()


def canonical(config: Any) -> Any:
    """Convert a configuration to numbers, text, lists and dicts, coercing each field to its declared type.

    As a result, 1 and 1.0 are equal. A value with an `identity()` method, such as a data set, is represented by its
    identity. Fields that say only how jobs run are left out. Raises SpecError if a value has no stable form.
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
    left_out = execution_only(kind)
    added_later = _added_later(kind)
    for name, part in fields.items():
        if name in left_out or (name in added_later and part == added_later[name]):
            continue
        if type(part) in nested[name]:  # nested configurations are handled by recursion and need no reader
            forms[name] = _form_of(part)
        else:
            forms[name] = _stable(field_readers[name](part, f"{kind_name}.{name}"))
    return forms


@functools.cache
def _added_later(kind: Any) -> Mapping[str, Any]:
    """Return the default values of the fields that enter keys only with another value."""
    return {field.name: field.default for field in dataclasses.fields(kind) if field.metadata.get(ADDED_LATER)}


def _form_of(part: Any) -> Any:
    """Return the form of a configuration part. Forms of frozen parts, which thousands of jobs may share, are cached."""
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
    """Return the name of an audit run whose plan has these keys, such as `unique_feature-1f83d9ab`.

    Thresholds that are read only when computing the answer are in no key. They enter the name unless they have their
    default values, so that a run never shows the answer for another threshold.
    """
    thresholds = _answer_settings(config)
    return f"{audit}-{_hash([audit, sorted(keys), *([thresholds] if thresholds else [])])[:8]}"


def _answer_settings(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the answer-only fields that differ from their defaults, coerced, by dotted path."""
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
