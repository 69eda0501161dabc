"""The pictures that an encoder's owner is given to embed: the public ones, and the crops of both sets, in one set.

Both are shuffled, so that nothing in a picture's name says whether its owner trained on it. A set's name ends in a
digest of what is in it, so that a table which was made for other settings has no row for these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.audits.deja_vu.attack import Crops, attack, crops_of
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.given_encoder import GivenEncoder
from tasks.datasets.catalog import load_with_boxes
from tasks.external.handout import ToEmbed, image_of
from tasks.files import FileError

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures

DIGITS = 8  # of a digest


@dataclass(frozen=True, eq=False)
class HandedOut:
    """The crops and public pictures in the order in which they are handed out, and the names of the two sets.

    `crop_order` and `public_order` are permutations: what is handed out first stands first.
    """

    crops: Crops
    crop_order: NDArray[np.int64]
    public_order: NDArray[np.int64]
    crop_set: str
    public_set: str

    @property
    def crop_ids(self) -> list[str]:
        """The id of each crop, in the order of `Crops.rows`."""
        return ids(self.crop_set, self.crop_order)

    @property
    def public_ids(self) -> list[str]:
        """The id of each public picture, in the order of `Crops.public`."""
        return ids(self.public_set, self.public_order)

    def sets(self, pictures: BoxedPictures) -> Iterator[tuple[str, ToEmbed]]:
        """Both sets by name."""
        shuffled = replace(
            self.crops,
            rows=self.crops.rows[self.crop_order],
            sets=self.crops.sets[self.crop_order],
            windows=self.crops.windows[self.crop_order],
            public=self.crops.public[self.public_order],
        )
        yield self.crop_set, ToEmbed(len(shuffled.rows), lambda: shuffled.batches(pictures))
        yield self.public_set, ToEmbed(len(shuffled.public), lambda: shuffled.public_pictures(pictures))


def ids(name: str, order: NDArray[np.int64]) -> list[str]:
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return [image_of(name, place) for place in places.tolist()]


def handed_out(crops: Crops, pictures: BoxedPictures) -> HandedOut:
    """What is handed out of these crops and public pictures."""
    cropped = [[pictures.ids[row], *window] for row, window in zip(crops.rows, crops.windows.tolist(), strict=True)]
    crop_set = set_name("crops", [crops.data, crops.resolution, cropped])
    public_set = set_name("public", [crops.data, crops.resolution, [pictures.ids[row] for row in crops.public]])
    return HandedOut(
        crops, order_of(crop_set, len(crops.rows)), order_of(public_set, len(crops.public)), crop_set, public_set
    )


def set_name(name: str, content: Any) -> str:
    return f"{name}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]}"


def order_of(name: str, count: int) -> NDArray[np.int64]:
    return seeds.generator(0, "handed out", name).permutation(count)


def probes(config: DejaVu) -> Iterator[tuple[str, ToEmbed]]:
    """The pictures whose embeddings are needed of an encoder that its owner keeps."""
    pictures = load_with_boxes(config.data, config.correlation)
    yield from handed_out(crops_of(attack(config), pictures), pictures).sets(pictures)


def check_tables(given: GivenEncoder, handed: HandedOut) -> None:
    """ValueError where a table of embeddings cannot be used: before anything is trained to be compared with it.

    One that has gone since it was pinned passes, since what is stored of the run can still be looked at.
    """
    from tasks.external.sent_table import read_embeddings

    for table in (given.embeddings, given.reference_embeddings):
        if table is not None:
            with suppress(FileError):
                read_embeddings(table).select([*handed.crop_ids, *handed.public_ids])
