"""A job that always fails. Its module is separate, since everything that it imports is part of its key."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.contract.job import Inputs, task


@dataclass(frozen=True)
class Lost:
    """Nothing."""


@task(version=1, name="contract.lost")
def lost(config: Lost, inputs: Inputs) -> pa.Table:
    raise ValueError("lost for the test")
