"""What is shown to the models: the crops of both sets' pictures, and the public pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.audits.deja_vu.config import DejaVu
from tasks.datasets.boxed.crops import CORNER_SHARE, CropName, windows
from tasks.datasets.boxed.partition import Partition, PartName, Parts, split_pictures
from tasks.datasets.dataset import Dataset
from tasks.job import ADDED_LATER

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures, Boxes

SETS: tuple[PartName, ...] = ("A", "B")  # that are attacked
PICTURES = 256  # whose crops are sought at a time


@dataclass(frozen=True)
class Attack:
    """Which pictures are cropped, how, and among which their neighbours are; `resolution` is in pixels."""

    data: Dataset
    correlation: float
    partition: Partition
    crop: CropName
    smallest: int
    resolution: int
    corner_share: float = field(default=CORNER_SHARE, metadata={ADDED_LATER: True})


def attack(config: DejaVu) -> Attack:
    """The attack that the config asks for."""
    return Attack(
        data=config.data,
        correlation=config.correlation,
        partition=config.partition,
        crop=config.crop,
        smallest=config.smallest,
        resolution=config.augmentation.resolution,
        corner_share=config.corner_share,
    )


@dataclass(frozen=True, eq=False)
class Crops:
    """The pictures that are cropped, A's before B's, each in the order of their ids, and the public pictures.

    `rows` (n,) and `public` (m,) are rows of the data, `sets` (n,) says which set a picture is of, `windows` (n, 4) the
    rectangle that is shown of it. `attacked` are the rows of each set's pictures, those without a crop among them.
    """

    rows: NDArray[np.int64]
    sets: NDArray[np.str_]
    windows: Boxes
    public: NDArray[np.int64]
    attacked: Mapping[PartName, NDArray[np.int64]]
    resolution: int
    data: str  # the digest of the data, and its correlation

    def batches(self, pictures: BoxedPictures) -> Iterator[NDArray[np.uint8]]:
        """The crops, some at a time, (rows, resolution, resolution, 3)."""
        from tasks.datasets.boxed.crops import portions

        return portions(pictures, self.rows, self.resolution, self.windows)

    def public_pictures(self, pictures: BoxedPictures) -> Iterator[NDArray[np.uint8]]:
        """The public pictures, some at a time, (rows, resolution, resolution, 3)."""
        from tasks.datasets.boxed.crops import portions

        return portions(pictures, self.public, self.resolution)


def crops_of(attack: Attack, pictures: BoxedPictures) -> Crops:
    """The crops of both sets. ValueError where a set has none."""
    parts = split_pictures(pictures, attack.partition)
    attacked = {name: parts.rows_to_attack(name) for name in SETS}
    rows, sets, rectangles = [], [], []
    for name, chosen in attacked.items():
        found, there = windows(pictures, chosen, attack.crop, attack.smallest, attack.corner_share)
        if not there.any():
            raise no_crops_error(attack, name, len(chosen))
        rows.append(chosen[there])
        sets.append(np.full(int(there.sum()), name))
        rectangles.append(found[there])
    return Crops(
        np.concatenate(rows),
        np.concatenate(sets),
        np.concatenate(rectangles),
        parts.rows("X"),
        attacked,
        attack.resolution,
        f"{attack.data.digest} {attack.correlation:g}",
    )


def check(attack: Attack, pictures: BoxedPictures, parts: Parts) -> None:
    """ValueError where no picture of a set has a crop; a few are tried at a time, as one is enough."""
    for name in SETS:
        rows = parts.rows_to_attack(name)
        tried = (rows[start : start + PICTURES] for start in range(0, len(rows), PICTURES))
        if not any(
            windows(pictures, some, attack.crop, attack.smallest, attack.corner_share)[1].any() for some in tried
        ):
            raise no_crops_error(attack, name, len(rows))


def no_crops_error(attack: Attack, name: str, pictures: int) -> ValueError:
    return ValueError(
        f"smallest is {attack.smallest}; none of the {pictures} pictures of {name} has a crop ({attack.crop}) whose "
        "shorter side has so many pixels; lower it, or choose another crop"
    )
