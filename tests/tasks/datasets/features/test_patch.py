"""A patch covers an image at its place, partly where its cover is partial, in whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.datasets.features.patch import Patch

U8 = np.uint8
IMAGES = np.arange(2 * 4 * 5 * 3, dtype=U8).reshape(2, 4, 5, 3)


def patch(cover: list[list[int]], colour: list[list[list[int]]], top: int = 1, left: int = 2) -> Patch:
    return Patch(np.array(cover, U8), np.array(colour, U8), top, left)


TWO = patch([[255, 255]], [[[10, 20, 30], [40, 50, 60]]])


def test_an_opaque_patch_overwrites_its_place_alone() -> None:
    before = IMAGES.copy()
    burnt = TWO.burn_into(IMAGES)
    assert (burnt[:, 1, 2:4] == TWO.colour[0]).all()
    elsewhere = np.ones((4, 5), bool)
    elsewhere[1, 2:4] = False
    assert (burnt[:, elsewhere] == IMAGES[:, elsewhere]).all()
    assert (before == IMAGES).all()


def test_every_cover_blends_to_the_nearest_whole_number() -> None:
    images = np.repeat(np.arange(256, dtype=U8), 256).reshape(256, 1, 256, 1)  # image, cover
    cover = np.arange(256, dtype=U8)[None]
    for colour in (0, 77, 255):
        over = Patch(cover, np.full((1, 256, 1), colour, U8), 0, 0).burn_into(images)
        exact = (images * (255.0 - cover[..., None]) + colour * 1.0 * cover[..., None]) / 255
        assert (np.floor(exact + 0.5) == over).all()  # 255 is odd, so that none lies halfway


def test_images_may_have_colours_of_their_own() -> None:
    colours = np.array([[[[1, 2, 3], [4, 5, 6]]], [[[7, 8, 9], [10, 11, 12]]]], U8)
    assert (TWO.burn_into(IMAGES, colours)[:, 1:2, 2:4] == colours).all()
    half = patch([[51, 0]], [[[0, 0, 0], [0, 0, 0]]]).burn_into(IMAGES * 0, colours)
    assert [[0, 0, 1], [1, 2, 2]] == half[:, 1, 2].tolist()  # a fifth of 1, 2, 3 and of 7, 8, 9
    assert [0, 0, 0] == half[1, 1, 3].tolist()


def test_colours_are_grey_by_luma_and_grey_is_repeated() -> None:
    assert [[[18], [48]]] == TWO.convert_channels(1).tolist()  # 0.299 * 10 + 0.587 * 20 + 0.114 * 30, and 18 + 30
    grey = patch([[255]], [[[9]]])
    assert [[[9, 9, 9]]] == grey.convert_channels(3).tolist()
    assert [[[9]]] == grey.convert_channels(1).tolist()
    assert TWO.colour.tolist() == TWO.convert_channels(3).tolist()


def test_trimming_takes_away_the_edges_that_cover_nothing() -> None:
    cover = [[0, 0, 0, 0], [0, 5, 0, 9], [0, 0, 0, 0], [0, 7, 0, 0], [0, 0, 0, 0]]
    colour = np.arange(20, dtype=U8).reshape(5, 4, 1)
    found = Patch(np.array(cover, U8), colour, 3, 10).trim()
    assert (4, 11, [[5, 0, 9], [0, 0, 0], [7, 0, 0]]) == (found.top, found.left, found.cover.tolist())
    assert colour[1:4, 1:4].tolist() == found.colour.tolist()
    assert (TWO.cover.tolist(), 1, 2) == ((same := TWO.trim()).cover.tolist(), same.top, same.left)
    with pytest.raises(ValueError, match="the feature covers nothing"):
        patch([[0, 0]], [[[0], [0]]]).trim()


@pytest.mark.parametrize(("top", "left", "fits"), [(3, 3, True), (4, 3, False), (3, 4, False), (0, 0, True)])
def test_a_patch_must_lie_wholly_inside_the_image(top: int, left: int, fits: bool) -> None:
    found = Patch(TWO.cover, TWO.colour, top, left)
    assert fits is found.fits(4, 5)
    if fits:
        found.burn_into(IMAGES)
        return
    says = f"^a feature of 1 x 2 at top {top}, left {left} does not fit an image of 4 x 5$"
    with pytest.raises(ValueError, match=says):
        found.burn_into(IMAGES)


def test_patches_that_look_otherwise_or_lie_elsewhere_are_told_apart() -> None:
    others = [
        TWO,
        Patch(TWO.cover, TWO.colour, 2, 1),
        Patch(TWO.cover, TWO.colour[:, ::-1], 1, 2),
        patch([[255, 254]], TWO.colour.tolist()),
        Patch(TWO.cover, TWO.colour[..., :1], 1, 2),
    ]
    assert len(others) == len({each.pixels() for each in others})
    assert TWO.pixels() == patch([[255, 255]], TWO.colour.tolist()).pixels()
