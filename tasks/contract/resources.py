"""The resources of a job, which its task or its user states. They do not affect results, so they are in no key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tasks.contract.ranges import AtLeast, Ranged

# Metadata key of config fields that say how jobs run. They enter neither keys nor the name of a run.
EXECUTION_ONLY = "how jobs run"


@dataclass(frozen=True)
class Resources(Ranged):
    """The resources of one job. A value of 0 is not stated: the run's options and the task decide."""

    gpus: Annotated[int, AtLeast(0)] = 0
    """GPUs of one job, all in one machine."""
    cpus: Annotated[int, AtLeast(0)] = 0
    """Processors of one job."""
    memory: Annotated[int, AtLeast(0)] = 0
    """Host memory of one job, in bytes."""
    time: Annotated[float, AtLeast(0)] = 0.0
    """Longest duration of one job, in seconds; a job that takes longer is stopped and retried."""


NO_RESOURCES = Resources()
