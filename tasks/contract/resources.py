"""The resources of a job, which its task or its user states. They do not affect results, so they are in no key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tasks.contract.quantities import ByteCount, Duration
from tasks.contract.ranges import AtLeast, Ranged

# Metadata key of config fields that say how jobs run. They enter neither keys nor the name of a run.
EXECUTION_ONLY = "how jobs run"
NO_MEMORY = ByteCount(0)
NO_TIME = Duration(0)


@dataclass(frozen=True)
class Resources(Ranged):
    """The resources of one job. A value of 0 is not stated: the run's options and the task decide."""

    gpus: Annotated[int, AtLeast(0)] = 0
    """GPUs of one job, all in one machine. No other job uses them."""
    cpus: Annotated[int, AtLeast(0)] = 0
    """Processors of one job."""
    memory: ByteCount = NO_MEMORY
    """Host memory of one job, such as 64GB."""
    time: Duration = NO_TIME
    """Longest duration of one job, such as 6h. A job that takes longer is stopped and retried."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", ByteCount.parse(self.memory))
        object.__setattr__(self, "time", Duration.parse(self.time))
        super().__post_init__()


NO_RESOURCES = Resources()
