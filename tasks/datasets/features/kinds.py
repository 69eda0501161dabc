"""The kinds of features: a glyph, words in a typeface, or a picture. Each is converted to a patch.

A patch contains the pixels and the position of a feature. Features are put into images in this form.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.contract.ranges import AtLeast, Between, MultipleOf, OneOf, Ranged
from tasks.datasets.images import Pixels, luma
from tasks.datasets.pictures import PictureError, alpha, pixels
from tasks.numerics import seeds
from tasks.worker.files import WITHHELD, File, read

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont


OPAQUE = 255


@dataclass(frozen=True, eq=False)
class Patch:
    """`colour` (h, w, 1 or 3) blended with an image at a position by `cover` (h, w), from 0 (image) to 255 (colour)."""

    cover: NDArray[np.uint8]
    colour: NDArray[np.uint8]
    top: int
    left: int

    def trim(self) -> Patch:
        """Remove edges that cover no pixel. Raises ValueError if the whole patch covers no pixel."""
        rows = np.flatnonzero(self.cover.any(axis=1))
        columns = np.flatnonzero(self.cover.any(axis=0))
        if not len(rows):
            raise ValueError("the feature covers nothing")
        (top, bottom), (left, right) = ((int(ends[0]), int(ends[-1]) + 1) for ends in (rows, columns))
        here = np.s_[top:bottom, left:right]
        return Patch(self.cover[here], self.colour[here], self.top + top, self.left + left)

    def burn_into(self, images: Pixels, colours: Pixels | None = None) -> Pixels:
        """Return a copy of the images (n, height, width, channels) with the patch burnt into each.

        If given, `colours` (n, h, w, channels) replace the patch's colour, one per image. Blending uses integers
        rounded to nearest, so the bytes are the same on every machine. Raises ValueError if the patch does not fit.
        """
        self.check_fits(*images.shape[1:3])
        if colours is None:
            colours = self.convert_channels(images.shape[3])[None]
        height, width = self.cover.shape
        burnt = images.copy()
        region = burnt[:, self.top : self.top + height, self.left : self.left + width]
        if (self.cover == OPAQUE).all():
            region[...] = colours
        else:
            cover = self.cover[..., None].astype(np.uint16)  # 255 * 255 + 127 fits
            region[...] = (region * (OPAQUE - cover) + colours * cover + OPAQUE // 2) // OPAQUE
        return burnt

    def convert_channels(self, channels: int) -> Pixels:
        """Convert the colour to (h, w, channels): RGB to grey by luma, grey to RGB by repetition."""
        if channels == 1 and self.colour.shape[2] == 3:
            grey: Pixels = luma(self.colour[None])[0]
            return grey
        if self.colour.shape[2] == channels:
            return self.colour
        return self.colour.repeat(channels, axis=2)

    def fits(self, height: int, width: int) -> bool:
        """Return whether the patch lies entirely inside an image."""
        return bool(self.top + self.cover.shape[0] <= height and self.left + self.cover.shape[1] <= width)

    def check_fits(self, height: int, width: int) -> None:
        """Raise ValueError if the patch does not fit into an image."""
        if not self.fits(height, width):
            raise ValueError(
                f"a feature of {self.cover.shape[0]} x {self.cover.shape[1]} at top {self.top}, left {self.left} "
                f"does not fit an image of {height} x {width}"
            )

    def pixels(self) -> bytes:
        """Return bytes that distinguish this patch from others of the same kind."""
        return b"".join(
            (repr((self.top, self.left, self.colour.shape)).encode(), self.cover.tobytes(), self.colour.tobytes())
        )


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
class Glyph(Ranged):
    """A glyph and its position: a letter of 5 x 5 cells, or its cells permuted.

    The glyph overwrites a square block in every channel, with ink 255 on a background of 0. The letters were drawn for
    this project. Kind random permutes the cells of a letter, so it has the letter's ink but not its shape.
    """

    kind: Kind = "letter"
    """letter; or random: the letter with its cells permuted."""
    text: Annotated[str, OneOf(tuple(GLYPHS), "one letter from A to Z")] = "A"
    """The letter, A to Z."""
    size: Annotated[int, MultipleOf(CELLS, f"a letter being {CELLS} x {CELLS}")] = 5
    """Side, in pixels."""
    top: Annotated[int, AtLeast(0)] = 1
    """Pixels from the image's upper edge."""
    left: Annotated[int, AtLeast(0)] = 1
    """Pixels from the image's left edge."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Seed of the permutation for kind random; must be 0 for other kinds."""

    def conflicts(self) -> Iterator[str]:
        # A field without an effect would give the same feature several keys.
        if self.kind == "letter" and self.seed:
            yield f"seed is {self.seed}, but a letter has none; it must be 0 unless kind is random"

    @staticmethod
    def parse(text: str) -> Glyph:
        """Parse a single letter as its glyph."""
        return Glyph(text=text)

    def patch(self) -> Patch:
        pixels = glyph_pixels(self)
        return Patch(np.full_like(pixels, 255), pixels[..., None], self.top, self.left)

    def describe(self) -> str:
        if self.kind == "letter":
            return f"the letter {self.text}"
        return "the glyph"


def glyph_pixels(glyph: Glyph) -> NDArray[np.uint8]:
    """Return the glyph's pixels (size, size): 255 for ink, else 0."""
    return _render_glyph(glyph).copy()


@lru_cache(4096)  # a plan uses the same few glyphs repeatedly
def _render_glyph(glyph: Glyph) -> NDArray[np.uint8]:
    cells = np.array([[cell == "#" for cell in row] for row in GLYPHS[glyph.text].split()])
    if glyph.kind == "random":
        order = seeds.generator(glyph.seed, "random feature").permutation(CELLS * CELLS)
        cells = cells.ravel()[order].reshape(CELLS, CELLS)
    scale = glyph.size // CELLS
    return (cells.repeat(scale, axis=0).repeat(scale, axis=1) * INK).astype(np.uint8)


# This code point will never be a character. Fonts draw the same glyph for all characters that they lack.
NO_CHARACTER = "\uffff"


def word_pattern(words: str) -> str:
    """Describe words without revealing them, for example `4 and 3 letters` for JANE DOE."""
    lengths = [len(word) for word in words.split(" ")]
    joined = words.replace(" ", "")
    if joined.isalpha():
        unit = "letter"
    elif joined.isdigit():
        unit = "digit"
    else:
        unit = "character"
    return f"{' and '.join(map(str, lengths))} {unit}{'' if lengths == [1] else 's'}"


@dataclass(frozen=True)
class Words(Ranged):
    """A line of words (a name on an X-ray, a date) painted over the image, with soft edges or in a box.

    The key covers the words, the fields and the digest of the font file, but neither FreeType nor Pillow's built-in
    font. Other versions of Pillow may draw a few edge pixels in slightly different greys. To compare runs over years,
    set a font file, and use one version of Pillow on all machines of a run. Letters are placed one by one (Pillow's
    basic layout with kerning) and never shaped, so libraqm has no effect.
    """

    prefix: ClassVar[str] = "words:"  # in its text form

    words: str = field(metadata={WITHHELD: word_pattern})
    """The words: one line."""
    font: File | None = None
    """TrueType or OpenType file; by default, Pillow's built-in font (Aileron)."""
    size: Annotated[int, AtLeast(4)] = 12
    """Height of the font (its em), in pixels."""
    top: Annotated[int, AtLeast(0)] = 1
    """Pixels from the image's upper edge to the line of the font's ascenders."""
    left: Annotated[int, AtLeast(0)] = 1
    """Pixels from the image's left edge to the leftmost ink."""
    ink: Annotated[int, Between(0, OPAQUE)] = 255
    """Grey level of the words."""
    box: bool = False
    """Whether to overwrite the line, from ascender to descender, with a background of 0."""

    def conflicts(self) -> Iterator[str]:
        if not self.words or self.words != " ".join(self.words.split(" ")).strip() or not self.words.isprintable():
            yield f"words is {self.words!r}; it must be one line, without spaces at its ends"
        if any(unicodedata.bidirectional(character) in ("R", "AL") for character in self.words):
            yield f"words is {self.words!r}; it must be left-to-right text: use a picture instead"
        if self.box and not self.ink:
            yield "ink is 0, which is invisible in a box of 0; it must be at least 1"

    @staticmethod
    def parse(text: str) -> Words:
        """Parse words written as `words:JANE DOE`."""
        if not text.startswith(Words.prefix):
            raise ValueError(f"it must begin with {Words.prefix}")
        return Words(text.removeprefix(Words.prefix))

    def __str__(self) -> str:
        return f"{self.prefix}{self.words}"

    def patch(self) -> Patch:
        """Draw the words. Raises ValueError if the font cannot be read, lacks a character or draws no pixels."""
        font = self.typeface()
        self.check_drawable(font)
        ascent, descent = font.getmetrics()
        left, top, right, bottom = (round(edge) for edge in font.getbbox(self.words, anchor="ls"))
        if right <= left or bottom <= top:
            raise ValueError(f"words is {self.words!r}, for which the font draws no pixels")
        top, bottom = min(-ascent, top), max(descent, bottom)
        cover = render_words(self.words, font, (bottom - top, right - left), (-left, -top))
        if self.box:
            colour = (cover.astype(np.uint16) * self.ink + OPAQUE // 2) // OPAQUE
            return Patch(np.full_like(cover, OPAQUE), colour.astype(np.uint8)[..., None], self.top, self.left)
        return Patch(cover, np.full((*cover.shape, 1), self.ink, np.uint8), self.top, self.left).trim()

    def describe(self) -> str:
        return f"the words {self.words!r}"

    def typeface(self) -> FreeTypeFont:
        from PIL import ImageFont

        if self.font is None:
            font = ImageFont.load_default(self.size)
            if not isinstance(font, ImageFont.FreeTypeFont):
                raise ValueError("this Pillow cannot draw words: it was built without FreeType")
            return font
        try:
            return ImageFont.truetype(BytesIO(read(self.font)), self.size, layout_engine=ImageFont.Layout.BASIC)
        except OSError as error:
            raise ValueError(f"{self.font.path} is not a readable font: {error}") from None

    def check_drawable(self, font: FreeTypeFont) -> None:
        lacking = bytes(font.getmask(NO_CHARACTER))
        letters = (letter for letter in dict.fromkeys(self.words) if letter != " ")
        missing_letters = [letter for letter in letters if bytes(font.getmask(letter)) == lacking]
        if missing_letters:
            raise ValueError(f"words is {self.words!r}; the font has no {missing_letters[0]!r}")


def render_words(words: str, font: FreeTypeFont, shape: tuple[int, int], origin: tuple[int, int]) -> np.ndarray:
    """Return the cover of the words with this `shape` (h, w), with the baseline starting at `origin` (x, y)."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (shape[1], shape[0]), 0)
    ImageDraw.Draw(canvas).text(origin, words, fill=OPAQUE, font=font, anchor="ls")
    return np.array(canvas)


@dataclass(frozen=True)
class Picture(Ranged):
    """An image file (a stamp, a logo, a signature), used pixel for pixel.

    It covers its whole rectangle if it has neither a mask nor transparency.
    """

    prefix: ClassVar[str] = "picture:"  # in its text form

    image: File
    """The image file of the picture."""
    mask: File | None = None
    """Image file of the same size: white where the picture covers the image, grey where it covers it partly; by
    default, the picture's own transparency."""
    top: Annotated[int, AtLeast(0)] = 1
    """Pixels from the image's upper edge."""
    left: Annotated[int, AtLeast(0)] = 1
    """Pixels from the image's left edge."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Seed of a permutation of the pixels inside the mask, which yields a member of the picture's family with the same
    ink; 0 leaves the pixels in place."""

    @staticmethod
    def parse(text: str) -> Picture:
        """Parse a picture written as `picture:stamp.png`."""
        if not text.startswith(Picture.prefix):
            raise ValueError(f"it must begin with {Picture.prefix}")
        return Picture(File.parse(text.removeprefix(Picture.prefix)))

    def __str__(self) -> str:
        return f"{self.prefix}{self.image}"

    def patch(self) -> Patch:
        """Read the picture. Raises ValueError if a file is unreadable, or if the mask is empty or has another size."""
        colour = decode_picture_file(self.image)
        cover = self.cover(colour.shape[:2])
        if self.seed:
            inside = np.flatnonzero(cover)
            order = inside[seeds.generator(self.seed, "permuted picture").permutation(len(inside))]
            cover = cover.copy()
            colour = colour.copy()
            cover.ravel()[inside] = cover.ravel()[order]
            flat = colour.reshape(-1, colour.shape[2])
            flat[inside] = flat[order]
        return Patch(cover, colour, self.top, self.left).trim()

    def cover(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return the cover (h, w), from 0 (transparent) to 255 (opaque)."""
        if self.mask is None:
            opacity = alpha(read(self.image))
            return np.full(shape, OPAQUE, np.uint8) if opacity is None else opacity
        mask = decode_picture_file(self.mask, grey=True)[..., 0]
        if mask.shape != shape:
            sizes = f"{mask.shape[0]} x {mask.shape[1]}, {self.image.path} {shape[0]} x {shape[1]}"
            raise ValueError(f"the mask {self.mask.path} is {sizes}; they must be of one size")
        return mask

    def describe(self) -> str:
        return f"the picture {Path(self.image.path).name}"


def decode_picture_file(file: File, grey: bool = False) -> NDArray[np.uint8]:
    try:
        return pixels(read(file), channels=1 if grey else None)
    except PictureError as error:
        raise ValueError(f"{file.path} {error}") from None


Feature = Glyph | Words | Picture
