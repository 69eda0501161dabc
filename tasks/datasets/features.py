"""Features burnt into images: the same few pixels at the same place of every image they are put into.

A feature overwrites a square block in every channel: ink 255 on a background of 0. A letter is a 5 x 5 glyph of our own
drawing; a random feature is the same glyph with its cells permuted, so it has the letter's ink and no letter's shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tasks import seeds

Pixels = NDArray[np.uint8]  # (n, height, width, channels)
Kind = Literal["letter", "random"]

CELLS = 5  # a glyph is CELLS x CELLS
INK = 255

GLYPHS = {
    "A": ".###. #...# ##### #...# #...#",
    "B": "####. #...# ####. #...# ####.",
    "C": ".#### #.... #.... #.... .####",
    "D": "####. #...# #...# #...# ####.",
    "E": "##### #.... ####. #.... #####",
    "F": "##### #.... ####. #.... #....",
    "G": ".#### #.... #..## #...# .####",
    "H": "#...# #...# ##### #...# #...#",
    "I": "##### ..#.. ..#.. ..#.. #####",
    "J": "..### ...#. ...#. #..#. .##..",
    "K": "#...# #..#. ###.. #..#. #...#",
    "L": "#.... #.... #.... #.... #####",
    "M": "#...# ##.## #.#.# #...# #...#",
    "N": "#...# ##..# #.#.# #..## #...#",
    "O": ".###. #...# #...# #...# .###.",
    "P": "####. #...# ####. #.... #....",
    "Q": ".###. #...# #.#.# #..#. .##.#",
    "R": "####. #...# ####. #..#. #...#",
    "S": ".#### #.... .###. ....# ####.",
    "T": "##### ..#.. ..#.. ..#.. ..#..",
    "U": "#...# #...# #...# #...# .###.",
    "V": "#...# #...# #...# .#.#. ..#..",
    "W": "#...# #...# #.#.# ##.## #...#",
    "X": "#...# .#.#. ..#.. .#.#. #...#",
    "Y": "#...# .#.#. ..#.. ..#.. ..#..",
    "Z": "##### ...#. ..#.. .#... #####",
}


@dataclass(frozen=True)
class Feature:
    """A glyph and its place: `size` pixels a side, `top` and `left` pixels from the image's edges.

    `kind="random"` permutes the cells of the letter `text` by `seed`: a member of the letter's family of equal ink.
    """

    kind: Kind = "letter"
    text: str = "A"
    size: int = 5
    top: int = 1
    left: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind is {self.kind!r}; it must be one of {', '.join(get_args(Kind))}")
        if self.text not in GLYPHS:
            raise ValueError(f"text is {self.text!r}; it must be one letter from A to Z")
        if self.size < CELLS or self.size % CELLS:
            raise ValueError(f"size is {self.size}; it must be a multiple of {CELLS}, a letter being {CELLS} x {CELLS}")
        for name in ("top", "left", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        # A field that changes nothing would give one feature many keys.
        if self.kind == "letter" and self.seed:
            raise ValueError(f"seed is {self.seed}, but a letter has none; it must be 0 unless kind is random")


def pixels(feature: Feature) -> NDArray[np.uint8]:
    """The feature itself, (size, size): 255 where there is ink, else 0."""
    cells = np.array([[cell == "#" for cell in row] for row in GLYPHS[feature.text].split()])
    if feature.kind == "random":
        order = seeds.generator(feature.seed, "random feature").permutation(CELLS * CELLS)
        cells = cells.ravel()[order].reshape(CELLS, CELLS)
    scale = feature.size // CELLS
    return (cells.repeat(scale, axis=0).repeat(scale, axis=1) * INK).astype(np.uint8)


def burn(images: Pixels, feature: Feature) -> Pixels:
    """A copy of the images, (n, height, width, channels), each with the feature in every channel."""
    return burn_patches(images, pixels(feature)[None, :, :, None], feature)


def burn_patches(images: Pixels, patches: Pixels, place: Feature) -> Pixels:
    """A copy of the images with `patches`, one for each or one for all, where `place` says a feature lies.

    `patches` is (n or 1, size, size, channels or 1). ValueError where the feature does not fit the images.
    """
    check_fits(place, *images.shape[1:3])
    burnt = images.copy()
    burnt[:, place.top : place.top + place.size, place.left : place.left + place.size, :] = patches
    return burnt


def check_fits(feature: Feature, height: int, width: int) -> None:
    """ValueError where the feature would reach over the edge of an image."""
    if feature.top + feature.size > height or feature.left + feature.size > width:
        raise ValueError(
            f"a feature of {feature.size} x {feature.size} at top {feature.top}, left {feature.left} "
            f"does not fit an image of {height} x {width}"
        )


def random_patches(count: int, channels: int, place: Feature, seed: int, *names: str | int) -> Pixels:
    """Random features z_r, (count, size, size, channels): U[0, 1] per pixel and channel, one draw per image.

    Quantised to the 256 levels that an image has, all equally likely (mean 0.5, as U[0, 1]). The draws come from the
    stream called `names` below `seed`; the first k of them do not depend on `count`.
    """
    shape = (count, place.size, place.size, channels)
    return seeds.generator(seed, "random patches", *names).integers(0, INK + 1, size=shape, dtype=np.uint8)
