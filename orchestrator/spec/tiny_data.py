"""What `scale=tiny` leaves of a config whose data set is smaller than the embedded one it was written for."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress
from typing import Any

from orchestrator.spec.config_parts import parts, walk
from orchestrator.spec.fields import replace_fields
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset, DatasetError

EXAMPLES, CANARIES = "examples", "canaries"


def fit_to_data(config: Any, kept: Container[str]) -> Any:
    """The config with no more `examples` of a data set than it has, and canaries among half of them at most.

    Fields whose paths are `kept` were set by the user and stay as they are.
    """
    smaller = {name: value for name, value in _fitting(config) if name not in kept}
    return replace_fields(config, smaller) if smaller else config


def _fitting(config: Any) -> Iterator[tuple[str, int]]:
    for path, part in walk(config):
        fields = parts(part) or {}
        data, asked = fields.get("data"), fields.get(EXAMPLES)
        if not isinstance(data, Dataset) or not isinstance(asked, int):
            continue
        count = _count_examples(data) - fields.get("first", 0)
        if 0 < count < asked:
            above = f"{path}." if path else ""
            yield f"{above}{EXAMPLES}", count
            if fields.get(CANARIES, 0) > count // 2:
                yield f"{above}{CANARIES}", count // 2


def _count_examples(data: Dataset) -> int:
    """The training images of a data set, or its texts; 0 for one that has neither."""
    with suppress(DatasetError):
        return len(catalog.load(data).train_images)
    with suppress(DatasetError):
        return len(catalog.load_texts(data))
    return 0
