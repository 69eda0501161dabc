"""What is shown to the models: the crops of both sets' pictures, and the public pictures.

The owner of an encoder is given both sets to embed. They are shuffled, so that nothing in a picture's name says whether
its owner trained on it. A set's name ends in a digest of what is in it, so that a table which was made for other
settings has no row for these. Some public pictures can be handed out once more, whole among the crops: who answers that
set otherwise than pictures answers these otherwise, too. Whoever looks at a picture sees whether it is a crop, though.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.audits.deja_vu.config import SMALLEST, Corner, DejaVu, Periphery, Strips
from tasks.audits.deja_vu.encoder_config import Given
from tasks.datasets.boxed.crops import CORNER_SHARE, CropName, windows
from tasks.datasets.boxed.partition import Partition, PartName, Parts, split_pictures
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.dataset import Dataset
from tasks.external.handout import ToEmbed, image_of
from tasks.numerics import seeds
from tasks.worker.files import FileError

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures, Boxes

SETS: tuple[PartName, ...] = ("A", "B")  # that are attacked
PICTURES = 256  # whose crops are sought at a time
DIGITS = 8  # of a digest


@dataclass(frozen=True)
class Attack:
    """Which pictures are cropped, how, and among which their neighbours are; `resolution` is in pixels."""

    data: Dataset
    correlation: float
    partition: Partition
    crop: CropName
    smallest: int
    resolution: int
    corner_share: float = CORNER_SHARE


def attack(config: DejaVu) -> Attack:
    crop = config.crop
    return Attack(
        data=config.data,
        correlation=config.correlation,
        partition=config.partition,
        crop=_crop_name(crop),
        smallest=SMALLEST if isinstance(crop, Corner) else crop.smallest,
        resolution=config.training.augmentation.resolution,
        corner_share=crop.corner_share if isinstance(crop, Corner) else CORNER_SHARE,
    )


def _crop_name(crop: Periphery | Strips | Corner) -> CropName:
    match crop:
        case Periphery():
            return "periphery"
        case Strips():
            return "strips"
        case Corner():
            return "corner"


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
            raise _no_crops_error(attack, name, len(chosen))
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
            raise _no_crops_error(attack, name, len(rows))


def _no_crops_error(attack: Attack, name: str, pictures: int) -> ValueError:
    return ValueError(
        f"smallest is {attack.smallest}; none of the {pictures} pictures of {name} has a crop ({attack.crop}) whose "
        "shorter side has so many pixels; lower it, or choose another crop"
    )


@dataclass(frozen=True, eq=False)
class HandedOut:
    """The crops and public pictures in the order in which they are handed out, and the names of the two sets.

    `crop_order` and `public_order` are permutations: what is handed out first stands first. `shown` are the crops and
    after them the public pictures that are `repeated` (r,), by their places in `Crops.public`.
    """

    shown: Crops
    repeated: NDArray[np.int64]
    crop_order: NDArray[np.int64]
    public_order: NDArray[np.int64]
    crop_set: str
    public_set: str

    @property
    def crop_ids(self) -> list[str]:
        """The id of each crop, in the order of `Crops.rows`."""
        return self._shown_ids[: len(self.crop_order) - len(self.repeated)]

    @property
    def repeated_ids(self) -> list[str]:
        """The id among the crops of each picture that is repeated."""
        return self._shown_ids[len(self.crop_order) - len(self.repeated) :]

    @property
    def _shown_ids(self) -> list[str]:
        return ids(self.crop_set, self.crop_order)

    @property
    def public_ids(self) -> list[str]:
        """The id of each public picture, in the order of `Crops.public`."""
        return ids(self.public_set, self.public_order)

    def sets(self, pictures: BoxedPictures) -> Iterator[tuple[str, ToEmbed]]:
        shuffled = replace(
            self.shown,
            rows=self.shown.rows[self.crop_order],
            sets=self.shown.sets[self.crop_order],
            windows=self.shown.windows[self.crop_order],
            public=self.shown.public[self.public_order],
        )
        yield self.crop_set, ToEmbed(len(shuffled.rows), lambda: shuffled.batches(pictures))
        yield self.public_set, ToEmbed(len(shuffled.public), lambda: shuffled.public_pictures(pictures))


def ids(name: str, order: NDArray[np.int64]) -> list[str]:
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return [image_of(name, place) for place in places.tolist()]


def handed_out(crops: Crops, pictures: BoxedPictures, repeated: int = 0) -> HandedOut:
    """What is handed out of these crops and public pictures, so many of which are repeated."""
    public_set = set_name("public", [crops.data, crops.resolution, [pictures.ids[row] for row in crops.public]])
    again = seeds.generator(0, "repeated", public_set).permutation(len(crops.public))[:repeated]
    shown = _add_whole_pictures(crops, crops.public[again], pictures)
    cropped = [[pictures.ids[row], *window] for row, window in zip(shown.rows, shown.windows.tolist(), strict=True)]
    crop_set = set_name("crops", [crops.data, crops.resolution, cropped])
    orders = _order_of(crop_set, len(shown.rows)), _order_of(public_set, len(crops.public))
    return HandedOut(shown, again, *orders, crop_set, public_set)


def _add_whole_pictures(crops: Crops, rows: NDArray[np.int64], pictures: BoxedPictures) -> Crops:
    """The crops, and after them these pictures in windows that show all of them."""
    if not len(rows):
        return crops
    whole = np.concatenate([np.zeros((len(rows), 2), np.int64), pictures.sizes[rows][:, ::-1]], axis=1)
    return replace(
        crops,
        rows=np.concatenate([crops.rows, rows]),
        sets=np.concatenate([crops.sets, np.full(len(rows), "X")]),
        windows=np.concatenate([crops.windows, whole.astype(crops.windows.dtype)]),
    )


def set_name(name: str, content: Any) -> str:
    return f"{name}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]}"


def _order_of(name: str, count: int) -> NDArray[np.int64]:
    return seeds.generator(0, "handed out", name).permutation(count)


def probes(config: DejaVu) -> Iterator[tuple[str, ToEmbed]]:
    """The pictures whose embeddings are needed of an encoder that its owner keeps."""
    pictures = load_with_boxes(config.data, config.correlation)
    repeated = config.encoders.repeated if isinstance(config.encoders, Given) else 0
    yield from handed_out(crops_of(attack(config), pictures), pictures, repeated).sets(pictures)


def check_tables(given: Given, handed: HandedOut) -> None:
    """Raise ValueError if a table of embeddings cannot be used, before a reference is trained for it.

    A table that has been removed since it was pinned passes, since stored results of the run remain readable.
    """
    from tasks.external.sent_table import read_embeddings

    for table in given.tables:
        with suppress(FileError):
            read_embeddings(table).select([*handed.crop_ids, *handed.repeated_ids, *handed.public_ids])
