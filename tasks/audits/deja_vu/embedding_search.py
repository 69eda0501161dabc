"""The public images nearest to every crop, layer by layer and in shards.

Only the public images of a few layers, and one shard of the crops, are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.audits.deja_vu.attack import Attack, Crops
from tasks.audits.deja_vu.embedding_facts import EqualRows, describe_encoder
from tasks.datasets.boxed.crops import EVALUATED_TOGETHER
from tasks.datasets.boxed.partition import expect_sizes
from tasks.datasets.catalog import load_with_boxes
from tasks.self_supervised.embedding_memory import FLOAT_BYTES, group_layers, reserved_memory
from tasks.self_supervised.pretraining_config import EncoderConfig, layer_features

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures
    from tasks.self_supervised.networks import Embed

SHARD_BYTES = 2**30  # bytes of the crops' embeddings in memory at a time


@dataclass(frozen=True)
class LayerMatches:
    """A layer's nearest public images for each crop (crops, k), nearest first, as data set rows.

    `facts` are the NEIGHBOURS columns that describe the whole encoder.
    """

    layer: int
    rows: NDArray[np.int64]
    facts: Mapping[str, float | int | None]


def search_layers(
    embed: Embed, layers: Sequence[int], pictures: BoxedPictures, crops: Crops, k: int
) -> Iterator[LayerMatches]:
    """Yield each layer's nearest public images. The grouping of layers and crops does not affect the result."""
    from tasks.self_supervised.networks import collect_embeddings, measure_widths

    widths = measure_widths(embed, layers, next(crops.public_pictures(pictures)))
    for group in group_layers(widths, len(crops.public)):
        public = collect_embeddings(embed, group, crops.public_pictures(pictures), len(crops.public))
        shard_width = sum(widths[layer] for layer in group)
        batches = max(1, SHARD_BYTES // (FLOAT_BYTES * shard_width * EVALUATED_TOGETHER))
        searches = {layer: LayerSearch(public[layer], len(crops.rows), k) for layer in group}
        portions = crops.batches(pictures)
        for start in range(0, len(crops.rows), batches * EVALUATED_TOGETHER):
            count = min(batches * EVALUATED_TOGETHER, len(crops.rows) - start)
            shard = collect_embeddings(embed, group, islice(portions, batches), count)
            for layer in group:
                searches[layer].take(shard.pop(layer), start)
        for layer in group:
            yield searches.pop(layer).finish(layer, pictures, crops)
            del public[layer]


class LayerSearch:
    """The search of one layer, to which crops are passed in shards."""

    def __init__(self, public: NDArray[np.float32], crops: int, k: int) -> None:
        self.public = public
        self.k = min(k, len(public))
        self.rows = np.empty((crops, self.k), np.int64)
        self.equal_crops = EqualRows()

    def take(self, cropped: NDArray[np.float32], start: int) -> None:
        """Search the nearest public images of the crops from number `start` on."""
        from tasks.numerics.nearest_neighbours import nearest

        self.rows[start : start + len(cropped)] = nearest(cropped, self.public, self.k).rows
        self.equal_crops.add(cropped)

    def finish(self, layer: int, pictures: BoxedPictures, crops: Crops) -> LayerMatches:
        labels = pictures.labels[crops.public]
        facts = describe_encoder(self.equal_crops, self.public, labels, self.k)
        return LayerMatches(layer, crops.public[self.rows], facts)


def search_memory(attack: Attack, encoder: EncoderConfig, layers: Sequence[int]) -> int:
    """Return the bytes of host memory that a search of these layers reserves."""
    sizes = expect_sizes(load_with_boxes(attack.data, attack.correlation), attack.partition)
    widths = {layer: layer_features(encoder, layer) for layer in layers}
    return reserved_memory(widths, sizes.public, SHARD_BYTES)
