"""The environment of this process, changed for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def variables(values: Mapping[str, str], *others: str) -> Iterator[None]:
    """Environment variables for as long as it takes; afterwards these, and the `others`, are as they were."""
    before = {name: os.environ.get(name) for name in (*values, *others)}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
