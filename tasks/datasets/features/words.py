"""Words drawn in a typeface: a name on an X-ray, a date, a signature in type."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tasks.datasets.features.patch import OPAQUE, Patch
from tasks.files import WITHHELD, File, read
from tasks.ranges import check_minimums

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

# A code point that will never be a character: what a font draws for it, it draws for all that it lacks.
NO_CHARACTER = "\uffff"


def pattern(words: str) -> str:
    """What of the words may be told to those who are not to read them: `4 and 3 letters` of JANE DOE."""
    lengths = [len(word) for word in words.split(" ")]
    joined = words.replace(" ", "")
    unit = "letter" if joined.isalpha() else "digit" if joined.isdigit() else "character"
    return f"{' and '.join(map(str, lengths))} {unit}{'' if lengths == [1] else 's'}"


@dataclass(frozen=True)
class Words:
    """A line of words, painted over the image, soft edges and all, or in a box.

    A key sees the words, the fields and the digest of the font's file. It does not see the FreeType that draws them,
    nor Pillow's own font: other versions of Pillow may draw a few edge pixels in other greys, so give a font file where
    runs are to be compared over years, and one Pillow on all machines of a run. Letters are set one by one (Pillow's
    basic layout, with the font's kerning), never shaped, so that whether libraqm is installed changes nothing.
    """

    prefix: ClassVar[str] = "words:"  # of its text form

    words: str = field(metadata={WITHHELD: pattern})
    """The words: one line."""
    font: File | None = None
    """A TrueType or OpenType file; none: Pillow's own (Aileron)."""
    size: int = 12
    """Height of the font (its em), in pixels."""
    top: int = 1
    """Pixels from the image's upper edge to the line of the font's ascenders."""
    left: int = 1
    """Pixels from the image's left edge to the leftmost ink."""
    ink: int = 255
    """Grey level of the words."""
    box: bool = False
    """Whether their line is overwritten, from ascender to descender, with a background of 0."""

    def __post_init__(self) -> None:
        if not self.words or self.words != " ".join(self.words.split(" ")).strip() or not self.words.isprintable():
            raise ValueError(f"words is {self.words!r}; it must be one line, without spaces at its ends")
        if any(unicodedata.bidirectional(character) in ("R", "AL") for character in self.words):
            raise ValueError(f"words is {self.words!r}; it must run from left to right: use a picture instead")
        check_minimums(self, {"size": 4, "top": 0, "left": 0, "ink": 0})
        if self.ink > OPAQUE:
            raise ValueError(f"ink is {self.ink}; it must be at most {OPAQUE}")
        if self.box and not self.ink:
            raise ValueError("ink is 0, which nobody sees in a box of 0; it must be at least 1")

    @staticmethod
    def parse(text: str) -> Words:
        """Words written `words:JANE DOE`."""
        if not text.startswith(Words.prefix):
            raise ValueError(f"it must begin with {Words.prefix}")
        return Words(text.removeprefix(Words.prefix))

    def __str__(self) -> str:
        return f"{self.prefix}{self.words}"

    def patch(self) -> Patch:
        """ValueError where the font cannot be read, lacks a character or draws nothing."""
        font = self.typeface()
        self.check_drawable(font)
        ascent, descent = font.getmetrics()
        left, top, right, bottom = (round(edge) for edge in font.getbbox(self.words, anchor="ls"))
        if right <= left or bottom <= top:
            raise ValueError(f"words is {self.words!r}, of which the font draws nothing")
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
            raise ValueError(f"{self.font.path} is no font that can be read: {error}") from None

    def check_drawable(self, font: FreeTypeFont) -> None:
        lacking = bytes(font.getmask(NO_CHARACTER))
        letters = (letter for letter in dict.fromkeys(self.words) if letter != " ")
        missing = [letter for letter in letters if bytes(font.getmask(letter)) == lacking]
        if missing:
            raise ValueError(f"words is {self.words!r}; the font has no {missing[0]!r}")


def render_words(words: str, font: FreeTypeFont, shape: tuple[int, int], at: tuple[int, int]) -> np.ndarray:
    """The words' cover, `shape` (h, w), their baseline beginning `at` (x, y)."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (shape[1], shape[0]), 0)
    ImageDraw.Draw(canvas).text(at, words, fill=OPAQUE, font=font, anchor="ls")
    return np.array(canvas)
