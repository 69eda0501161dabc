"""Look-alikes differ from the feature in one part, are distinct, and belong to its family."""

from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.features import AskedFamily, Family, Feature, Glyph, Picture, Words, look_alikes
from tasks.datasets.features.kinds import Patch
from tasks.datasets.features.look_alikes import LEAST, arrangement_count, halves
from tasks.worker.files import File, pin

SHAPE = (32, 96)
FEW = AskedFamily(look_alikes=25)


def differing_rows(feature: Feature, patches: list[Patch]) -> set[int]:
    """The rows of pixels in which some of the patches differ from the feature."""
    colours = feature.patch().colour
    result = set()
    for patch in patches:
        for row in np.flatnonzero((patch.colour != colours).any(axis=(1, 2))):
            result.add(int(row))
    return result


def word_pixels(words: str, family: Family = FEW) -> list[list[bytes]]:
    result = []
    for part in look_alikes(Words(words, size=9), family, 3, SHAPE):
        result.append([patch.pixels() for patch in part])
    return result


def test_name_has_distinct_look_alikes_of_each_word() -> None:
    parts = word_pixels("LUIS LAU")
    assert [len(part) for part in parts] == [25, 25]
    all_pixels = [pixels for part in parts for pixels in part]
    assert len(set(all_pixels)) == 50
    assert Words("LUIS LAU", size=9).patch().pixels() not in all_pixels
    assert word_pixels("LUIS LAU") == parts
    shared = Words("LUIS", size=9).patch().cover
    for patch in look_alikes(Words("LUIS LAU", size=9), FEW, 3, SHAPE)[1]:
        assert (patch.cover[: len(shared), : shared.shape[1]] == shared).all()


@pytest.mark.parametrize(("words", "parts"), [("SMITH", 2), ("12.03.1961", 3), ("ROOM 5", 2), ("J DOE", 2), ("Q", 1)])
def test_word_and_digit_have_halves(words: str, parts: int) -> None:
    part_pixels = word_pixels(words)
    assert parts == len(part_pixels)
    assert all(len(part) > LEAST for part in part_pixels)


def test_listed_names_supply_words_of_each_position(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("ANN LEE\nANN MAO\nIDA LEE\nIDA RAY\nNOAH\n")
    file = pin(File(str(tmp_path / "names")))
    part_pixels = word_pixels("ANN LEE", AskedFamily(kind="names", names=file, look_alikes=9))
    expected = [["IDA LEE"], ["ANN MAO", "ANN RAY"]]
    assert [sorted(Words(name, size=9).patch().pixels() for name in part) for part in expected] == [
        sorted(part) for part in part_pixels
    ]
    assert word_pixels("NOAH", AskedFamily(kind="names", names=file, look_alikes=9)) == []


@pytest.mark.parametrize("glyph", [Glyph(), Glyph(kind="random", seed=5), Glyph(size=10)])
def test_glyph_keeps_ink_and_other_half(glyph: Glyph) -> None:
    step = glyph.size // 5
    ink = glyph.patch().colour.sum()
    parts = look_alikes(glyph, FEW, 3, SHAPE)
    assert [len(part) for part in parts] == [25, 25]
    assert {patch.colour.sum() for part in parts for patch in part} == {ink}
    assert [{row // step for row in differing_rows(glyph, part)} for part in parts] == [{0, 1, 2}, {2, 3, 4}]


def test_image_keeps_tones_and_other_half(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "stamp.png")
    stamp = Picture(pin(File(str(tmp_path / "stamp.png"))))
    parts = look_alikes(stamp, FEW, 3, SHAPE)
    assert [differing_rows(stamp, part) for part in parts] == [{0, 1, 2, 3}, {4, 5, 6, 7}]
    assert all(sorted(patch.colour.ravel()) == sorted(pixels.ravel()) for part in parts for patch in part)


def test_halves_need_enough_arrangements() -> None:
    tones = np.zeros((16, 1), np.uint8)
    tones[:2] = tones[8:11] = 255
    assert [len(half) for half in halves(tones)] == [8, 8]
    assert arrangement_count(tones[:8]) == 28
    assert arrangement_count(tones[8:]) == 56
    tones[0] = 0  # with 8 arrangements, rank 1 has p = 1/8
    assert halves(tones) == []
    assert arrangement_count(np.arange(40, dtype=np.uint8)[:, None]) == np.inf
