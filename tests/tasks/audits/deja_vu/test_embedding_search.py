"""Embeddings are searched layer by layer and in shards, with the same result as all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.audits.deja_vu import embedding_search
from tasks.audits.deja_vu.attack import Attack, crops_of
from tasks.audits.deja_vu.embedding_search import search_layers, search_memory
from tasks.datasets.boxed import crops as boxed_crops
from tasks.datasets.boxed.partition import Partition
from tasks.datasets.catalog import load_with_boxes, pin
from tasks.datasets.dataset import Dataset
from tasks.self_supervised import embedding_memory
from tasks.self_supervised.embedding_memory import BASE_BYTES, group_layers, reserved_memory
from tasks.self_supervised.pretraining_config import EncoderConfig

LAYERS = {0: 4, 2: 16, 3: 8}  # columns by layer
GIB = 2**30


class Patches:
    """An encoder whose layers are corners of the image, as floats. Remembers which layers it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, images: NDArray[np.uint8], layers: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        self.asked.append(tuple(layers))
        rows = images.reshape(len(images), -1).astype(np.float32)
        return {layer: rows[:, layer : layer + LAYERS[layer]] for layer in layers}


def test_layers_and_shards_do_not_affect_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = Attack(pin(Dataset("digits-on-photos")), 0.0, Partition(per_class=3, public=100), "periphery", 8, 32)
    pictures = load_with_boxes(attack.data)
    crops = crops_of(attack, pictures)
    together = list(search_layers(Patches(), tuple(LAYERS), pictures, crops, 5))
    monkeypatch.setattr(boxed_crops, "EVALUATED_TOGETHER", 7)
    monkeypatch.setattr(embedding_search, "EVALUATED_TOGETHER", 7)
    monkeypatch.setattr(embedding_search, "SHARD_BYTES", 2 * 7 * 4 * 16)
    monkeypatch.setattr(embedding_search, "group_layers", lambda widths, images: group_layers(widths, images, 1))
    patches = Patches()
    apart = list(search_layers(patches, tuple(LAYERS), pictures, crops, 5))
    assert set(patches.asked) == {(0, 2, 3), (0,), (2,), (3,)}  # all layers of one image, for their widths
    assert [matches.layer for matches in apart] == list(LAYERS)
    for matches, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(matches.rows, other.rows)
        assert matches.facts == other.facts


@pytest.mark.parametrize(("most", "groups"), [(10, [(0,), (1,), (2,)]), (24, [(0, 1), (2,)]), (10**6, [(0, 1, 2)])])
def test_layers_are_grouped_within_a_limit(most: int, groups: list[tuple[int, ...]]) -> None:
    assert group_layers({0: 1, 1: 2, 2: 2}, 2, most) == groups


def test_reservation_grows_with_the_largest_group() -> None:
    assert reserved_memory({0: 2048}, 1000) == 0  # so little is measured instead
    widths = {0: 2048, 1: 8192, 2: 8192}
    assert reserved_memory(widths, 460_000, GIB) == BASE_BYTES + GIB + 4 * 8192 * 460_000


def test_small_search_reserves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = Attack(pin(Dataset("digits-on-photos")), 0.0, Partition(per_class=3, public=100), "periphery", 8, 32)
    encoder = EncoderConfig("resnet101", (8192, 8192), 32)
    assert search_memory(attack, encoder, (0, 1)) == 0
    monkeypatch.setattr(embedding_memory, "LEAST_RESERVED", 0)
    expected = BASE_BYTES + embedding_search.SHARD_BYTES + 4 * 100 * (2048 + 8192)
    assert search_memory(attack, encoder, (0, 1)) == expected
