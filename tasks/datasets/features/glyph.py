"""A glyph: a letter of 5 x 5 cells, or its cells permuted.

It overwrites a square block in every channel: ink 255 on a background of 0. The letters are of our own drawing; a
random glyph is a letter with its cells permuted, so it has the letter's ink and no letter's shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.datasets.features.patch import Patch
from tasks.ranges import check_minimums, one_of

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
class Glyph:
    """A glyph and its place. One of kind random is a member of the letter's family of equal ink."""

    kind: Kind = "letter"
    """letter, or random: the letter with its cells permuted."""
    text: str = "A"
    """The letter, A to Z."""
    size: int = 5
    """Side, in pixels."""
    top: int = 1
    """Pixels from the image's upper edge."""
    left: int = 1
    """Pixels from the image's left edge."""
    seed: int = 0
    """Of kind random, the permutation."""

    def __post_init__(self) -> None:
        one_of(self, "kind", Kind)
        if self.text not in GLYPHS:
            raise ValueError(f"text is {self.text!r}; it must be one letter from A to Z")
        if self.size < CELLS or self.size % CELLS:
            raise ValueError(f"size is {self.size}; it must be a multiple of {CELLS}, a letter being {CELLS} x {CELLS}")
        check_minimums(self, {"top": 0, "left": 0, "seed": 0})
        # A field that changes nothing would give one feature many keys.
        if self.kind == "letter" and self.seed:
            raise ValueError(f"seed is {self.seed}, but a letter has none; it must be 0 unless kind is random")

    @staticmethod
    def parse(text: str) -> Glyph:
        """The glyph of one letter, written as that letter."""
        return Glyph(text=text)

    def patch(self) -> Patch:
        drawn = pixels(self)
        return Patch(np.full_like(drawn, 255), drawn[..., None], self.top, self.left)

    def describe(self) -> str:
        return f"the letter {self.text}" if self.kind == "letter" else "the glyph"


def pixels(glyph: Glyph) -> NDArray[np.uint8]:
    """The glyph itself, (size, size): 255 where there is ink, else 0."""
    return _render_glyph(glyph).copy()


@lru_cache(4096)  # a plan asks for the same few again and again
def _render_glyph(glyph: Glyph) -> NDArray[np.uint8]:
    cells = np.array([[cell == "#" for cell in row] for row in GLYPHS[glyph.text].split()])
    if glyph.kind == "random":
        order = seeds.generator(glyph.seed, "random feature").permutation(CELLS * CELLS)
        cells = cells.ravel()[order].reshape(CELLS, CELLS)
    scale = glyph.size // CELLS
    return (cells.repeat(scale, axis=0).repeat(scale, axis=1) * INK).astype(np.uint8)
