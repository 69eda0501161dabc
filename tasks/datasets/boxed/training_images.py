"""What a model is trained on: a part of a data set of boxed pictures."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.datasets.boxed.partition import PART_NAMES, Partition, PartName
from tasks.datasets.dataset import Dataset
from tasks.ranges import share


@dataclass(frozen=True)
class TrainingImages:
    """A part of the data's pictures, which `catalog.load_boxed(data, correlation)` gives.

    `correlation` is that of digits-on-photos, in [0, 1]: how often a scene's background tells its digit's class.
    """

    data: Dataset
    correlation: float
    partition: Partition
    part: PartName

    def __post_init__(self) -> None:
        share(self, "correlation")
        if self.part not in PART_NAMES:
            raise ValueError(f"part is {self.part!r}; it must be one of {', '.join(PART_NAMES)}")
