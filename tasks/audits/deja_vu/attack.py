"""Model inputs: the crops of both image sets, and the public images.

The owner of an encoder receives both to embed. The images are shuffled so that a file name does not reveal whether the
encoder was trained on the image. The name of each set ends in a digest of its content, so a table made for other
settings has no rows for it. Some public images can be repeated, uncropped, among the crops: an owner who processes the
crop set differently also changes the embeddings of these repeats. An owner who inspects each image can still recognise
the crops.
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

SETS: tuple[PartName, ...] = ("A", "B")  # attacked image sets
PICTURES = 256  # images per crop search
DIGITS = 8  # digest length in characters


@dataclass(frozen=True)
class Attack:
    """Attacked images, their crops and the public images. `resolution` is in pixels."""

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
    """The cropped images of A, then of B, each sorted by id, and the public images.

    `rows` (n,) and `public` (m,) are data set rows, `sets` (n,) names the set of each image, and `windows` (n, 4) are
    the crop rectangles. `attacked` maps each set to its rows, including images without a crop.
    """

    rows: NDArray[np.int64]
    sets: NDArray[np.str_]
    windows: Boxes
    public: NDArray[np.int64]
    attacked: Mapping[PartName, NDArray[np.int64]]
    resolution: int
    data: str  # digest of the data, and its correlation

    def batches(self, pictures: BoxedPictures) -> Iterator[NDArray[np.uint8]]:
        """Yield the crops in batches of shape (rows, resolution, resolution, 3)."""
        from tasks.datasets.boxed.crops import portions

        return portions(pictures, self.rows, self.resolution, self.windows)

    def public_pictures(self, pictures: BoxedPictures) -> Iterator[NDArray[np.uint8]]:
        """Yield the public images in batches of shape (rows, resolution, resolution, 3)."""
        from tasks.datasets.boxed.crops import portions

        return portions(pictures, self.public, self.resolution)


def crops_of(attack: Attack, pictures: BoxedPictures) -> Crops:
    """Crop the images of both sets. Raises ValueError if a set has no crops."""
    parts = split_pictures(pictures, attack.partition)
    attacked = {name: parts.rows_to_attack(name) for name in SETS}
    rows = []
    sets = []
    rectangles = []
    for name, candidates in attacked.items():
        rectangles_of_set, has_window = windows(pictures, candidates, attack.crop, attack.smallest, attack.corner_share)
        if not has_window.any():
            raise _no_crops_error(attack, name, len(candidates))
        rows.append(candidates[has_window])
        sets.append(np.full(int(has_window.sum()), name))
        rectangles.append(rectangles_of_set[has_window])
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
    """Raise ValueError if a set has no image with a crop. Searches in batches, since one crop suffices."""
    for name in SETS:
        rows = parts.rows_to_attack(name)
        batches = (rows[start : start + PICTURES] for start in range(0, len(rows), PICTURES))
        if not any(
            windows(pictures, batch, attack.crop, attack.smallest, attack.corner_share)[1].any() for batch in batches
        ):
            raise _no_crops_error(attack, name, len(rows))


def _no_crops_error(attack: Attack, name: str, pictures: int) -> ValueError:
    return ValueError(
        f"smallest is {attack.smallest}; none of the {pictures} images of {name} has a crop ({attack.crop}) with a "
        "shorter side of at least that many pixels; lower smallest, or choose another crop"
    )


@dataclass(frozen=True, eq=False)
class HandedOut:
    """Export order of the crops and public images, and the names of the two exported sets.

    `crop_order` and `public_order` are permutations into export order. `exported` contains the crops, followed by the
    repeated public images; `repeated` (r,) indexes `Crops.public`.
    """

    exported: Crops
    repeated: NDArray[np.int64]
    crop_order: NDArray[np.int64]
    public_order: NDArray[np.int64]
    crop_set: str
    public_set: str

    @property
    def crop_ids(self) -> list[str]:
        """Export id of each crop, in the order of `Crops.rows`."""
        return self._exported_ids[: len(self.crop_order) - len(self.repeated)]

    @property
    def repeated_ids(self) -> list[str]:
        """Export id, within the crop set, of each repeated image."""
        return self._exported_ids[len(self.crop_order) - len(self.repeated) :]

    @property
    def _exported_ids(self) -> list[str]:
        return ids(self.crop_set, self.crop_order)

    @property
    def public_ids(self) -> list[str]:
        """Export id of each public image, in the order of `Crops.public`."""
        return ids(self.public_set, self.public_order)

    def sets(self, pictures: BoxedPictures) -> Iterator[tuple[str, ToEmbed]]:
        shuffled = replace(
            self.exported,
            rows=self.exported.rows[self.crop_order],
            sets=self.exported.sets[self.crop_order],
            windows=self.exported.windows[self.crop_order],
            public=self.exported.public[self.public_order],
        )
        yield self.crop_set, ToEmbed(len(shuffled.rows), lambda: shuffled.batches(pictures))
        yield self.public_set, ToEmbed(len(shuffled.public), lambda: shuffled.public_pictures(pictures))


def ids(name: str, order: NDArray[np.int64]) -> list[str]:
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    return [image_of(name, position) for position in positions.tolist()]


def handed_out(crops: Crops, pictures: BoxedPictures, repeated: int = 0) -> HandedOut:
    """Prepare these crops and public images for export, repeating `repeated` public images among the crops."""
    public_set = set_name("public", [crops.data, crops.resolution, [pictures.ids[row] for row in crops.public]])
    repeated_rows = seeds.generator(0, "repeated", public_set).permutation(len(crops.public))[:repeated]
    exported = _add_whole_pictures(crops, crops.public[repeated_rows], pictures)
    cropped = []
    for row, window in zip(exported.rows, exported.windows.tolist(), strict=True):
        cropped.append([pictures.ids[row], *window])
    crop_set = set_name("crops", [crops.data, crops.resolution, cropped])
    orders = _order_of(crop_set, len(exported.rows)), _order_of(public_set, len(crops.public))
    return HandedOut(exported, repeated_rows, *orders, crop_set, public_set)


def _add_whole_pictures(crops: Crops, rows: NDArray[np.int64], pictures: BoxedPictures) -> Crops:
    """Append these images to the crops, with windows that cover the whole image."""
    if not len(rows):
        return crops
    full_windows = np.concatenate([np.zeros((len(rows), 2), np.int64), pictures.sizes[rows][:, ::-1]], axis=1)
    return replace(
        crops,
        rows=np.concatenate([crops.rows, rows]),
        sets=np.concatenate([crops.sets, np.full(len(rows), "X")]),
        windows=np.concatenate([crops.windows, full_windows.astype(crops.windows.dtype)]),
    )


def set_name(name: str, content: Any) -> str:
    return f"{name}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]}"


def _order_of(name: str, count: int) -> NDArray[np.int64]:
    return seeds.generator(0, "handed out", name).permutation(count)


def probes(config: DejaVu) -> Iterator[tuple[str, ToEmbed]]:
    """Yield the images that an encoder's owner must embed if the encoder is not shared."""
    pictures = load_with_boxes(config.data, config.correlation)
    repeated = 0
    if isinstance(config.encoders, Given):
        repeated = config.encoders.repeated_images
    yield from handed_out(crops_of(attack(config), pictures), pictures, repeated).sets(pictures)


def check_tables(external: Given, export: HandedOut) -> None:
    """Raise ValueError if a table of embeddings is unusable, before any reference is trained.

    A table that was removed after the run pinned it passes, since the run's stored results remain readable.
    """
    from tasks.external.sent_table import read_embeddings

    for table in external.tables:
        with suppress(FileError):
            read_embeddings(table).select([*export.crop_ids, *export.repeated_ids, *export.public_ids])
