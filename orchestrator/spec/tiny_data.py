"""Fit a `scale=tiny` configuration to a data set smaller than the embedded one it was written for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any

from orchestrator.spec.config_parts import flatten, parts, walk
from orchestrator.spec.fields import replace_fields
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset, DatasetError

EXAMPLES = "examples"
CANARIES = "canaries"


Limits = Callable[[Any], Mapping[str, int]]


def fit_to_data(config: Any, user_fields: Container[str], limits: Limits | None = None) -> Any:
    """Limit `examples` to the size of the data set, and canaries to half of it.

    An audit with its own `limits` declares which fields the data size limits. Fields whose paths are in `user_fields`
    were set by the user and do not change.
    """
    if limits is None:
        fitting = _fitting(config)
    else:
        fitting = _within(config, limits(config))
    smaller = {name: value for name, value in fitting if name not in user_fields}
    if smaller:
        return replace_fields(config, smaller)
    return config


def _fitting(config: Any) -> Iterator[tuple[str, int]]:
    for path, part in walk(config):
        fields = parts(part) or {}
        data = fields.get("data")
        requested_examples = fields.get(EXAMPLES)
        if not isinstance(data, Dataset) or not isinstance(requested_examples, int):
            continue
        count = _count_examples(data) - fields.get("first", 0)
        if 0 < count < requested_examples:
            prefix = f"{path}." if path else ""
            yield f"{prefix}{EXAMPLES}", count
            if fields.get(CANARIES, 0) > count // 2:
                yield f"{prefix}{CANARIES}", count // 2


def _within(config: Any, limits: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    values = dict(flatten(config))
    for path, largest in limits.items():
        if 0 < largest < values[path]:
            yield path, largest


def _count_examples(data: Dataset) -> int:
    """Return the number of training images or texts in a data set. Returns 0 if it has neither."""
    with suppress(DatasetError):
        return len(catalog.load(data).train)
    with suppress(DatasetError):
        return len(catalog.load_texts(data))
    return 0
