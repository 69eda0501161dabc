"""A picture covers what its mask or transparency says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.features import Picture, burn, check_fits, describe_feature
from tasks.datasets.images import luma
from tasks.files import File
from tests.tasks.datasets.features.drawn import saved

COLOUR = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
IMAGES = np.full((2, 12, 12, 3), 100, np.uint8)


def test_a_picture_without_mask_covers_its_rectangle(tmp_path: Path) -> None:
    stamp = Picture(saved(COLOUR, tmp_path / "stamp.png"), top=2, left=3)
    assert COLOUR.tolist() == burn(IMAGES, stamp)[1, 2:6, 3:9].tolist()
    assert luma(COLOUR[None]).tolist() == burn(IMAGES[..., :1], stamp)[:1, 2:6, 3:9].tolist()
    assert "the picture stamp.png" == describe_feature(stamp)


def test_a_grey_picture_is_the_same_in_every_channel(tmp_path: Path) -> None:
    burnt = burn(IMAGES, Picture(saved(COLOUR[..., 0], tmp_path / "grey.png"), top=0, left=0))
    assert COLOUR[..., 0].tolist() == burnt[0, :4, :6, 2].tolist()


def test_transparency_says_what_is_covered(tmp_path: Path) -> None:
    alpha = np.zeros((4, 6, 1), np.uint8)
    alpha[1:3, 2:5] = 255
    alpha[2, 3] = 51  # a fifth
    stamp = Picture(saved(np.concatenate([COLOUR, alpha], 2), tmp_path / "stamp.png"), top=0, left=0)
    expected = IMAGES[0].copy()
    expected[1:3, 2:5] = COLOUR[1:3, 2:5]
    expected[2, 3] = np.round(100 * 0.8 + COLOUR[2, 3] * 0.2)
    assert expected.tolist() == burn(IMAGES, stamp)[0].tolist()
    check_fits(stamp, 3, 5)  # what covers nothing need not fit


def test_a_mask_goes_before_transparency(tmp_path: Path) -> None:
    mask = np.zeros((4, 6), np.uint8)
    mask[0, 0] = 255
    picture = saved(np.concatenate([COLOUR, np.zeros((4, 6, 1), np.uint8)], 2), tmp_path / "stamp.png")
    burnt = burn(IMAGES, Picture(picture, saved(mask, tmp_path / "mask.png"), top=0, left=0))[0]
    assert COLOUR[0, 0].tolist() == burnt[0, 0].tolist()
    assert {100} == set(burnt.reshape(-1, 3)[1:].ravel().tolist())


def test_a_seed_permutes_the_pixels_inside_the_mask(tmp_path: Path) -> None:
    alpha = np.full((4, 6, 1), 255, np.uint8)
    alpha[0] = 0
    file = saved(np.concatenate([COLOUR, alpha], 2), tmp_path / "stamp.png")
    whole, permuted, other = (Picture(file, seed=seed).patch() for seed in (0, 1, 2))
    assert whole.cover.tolist() == permuted.cover.tolist()
    pixels = [sorted(map(tuple, each.colour.reshape(-1, 3).tolist())) for each in (whole, permuted)]
    assert pixels[0] == pixels[1]
    assert 3 == len({each.pixels() for each in (whole, permuted, other)})


def test_pictures_that_cannot_be_are_refused(tmp_path: Path) -> None:
    stamp = saved(COLOUR, tmp_path / "stamp.png")
    with pytest.raises(ValueError, match=r"mask\.png is 3 x 6, .*stamp\.png 4 x 6; they must be of one size"):
        Picture(stamp, saved(COLOUR[:3], tmp_path / "mask.png")).patch()
    with pytest.raises(ValueError, match="the feature covers nothing"):
        Picture(stamp, saved(0 * COLOUR, tmp_path / "black.png")).patch()
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"text\.png cannot be read as a picture: cannot identify image file"):
        Picture(File(str(tmp_path / "text.png"))).patch()
    with pytest.raises(ValueError, match="seed is -1; it must be at least 0"):
        Picture(stamp, seed=-1)
