"""Words look the same wherever they are drawn."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.features import Words, burn, burn_random, check_fits, describe_feature, random_patches
from tasks.files import File, FileError
from tests.tasks.datasets.features.drawn import FONT

JANE = Words("JANE DOE", size=10, top=3, left=2)
GREY = np.full((2, 28, 64, 1), 40, np.uint8)


def cover_by_pillow(words: Words) -> np.ndarray:
    """The words on a large black canvas, straight from Pillow."""
    from PIL import Image, ImageDraw, ImageFont

    canvas = Image.new("L", (200, 60))
    font = ImageFont.truetype(FONT.path, words.size, layout_engine=ImageFont.Layout.BASIC)
    ImageDraw.Draw(canvas).text((20, 20), words.words, fill=255, font=font)
    found = np.asarray(canvas)
    return found[found.any(axis=1)][:, found.any(axis=0)]


def test_words_are_what_pillow_draws_of_the_font() -> None:
    for text in ("JANE DOE", "Grijp", "12.03."):
        words = replace(JANE, words=text, font=FONT)
        cover = words.patch().cover
        expected = cover_by_pillow(words)
        # Columns and rows of gaps between letters are dropped by the helper alone.
        kept = cover[cover.any(axis=1)][:, cover.any(axis=0)]
        assert expected.tolist() == kept.tolist()


def test_words_are_painted_over_the_image_by_their_cover() -> None:
    patch = JANE.patch()
    height, width = patch.cover.shape
    region = burn(GREY, JANE)[1, patch.top : patch.top + height, patch.left : patch.left + width, 0].astype(float)
    cover = patch.cover / 255
    assert np.abs(40 * (1 - cover) + 255 * cover - region).max() <= 0.5
    assert (pytest.approx(40 + 215 * cover.max(), abs=0.5), 40) == (region.max(), region.min())
    outside = burn(GREY, JANE)
    outside[:, patch.top : patch.top + height, patch.left : patch.left + width] = 40
    assert GREY.tolist() == outside.tolist()


def test_the_leftmost_ink_and_the_ascenders_are_where_they_are_asked_for() -> None:
    for text in ("JANE", "ago", "Ago"):
        boxed = Words(text, top=5, left=7, box=True).patch()
        assert (5, 7) == (boxed.top, boxed.left)
        assert boxed.colour[:, 0].any()
    # The same line whatever the letters: a family of names lies in one place.
    assert Words("ace", box=True).patch().cover.shape[0] == Words("Ag", box=True).patch().cover.shape[0]


def test_a_box_overwrites_its_line_with_black() -> None:
    boxed = replace(JANE, box=True, ink=200)
    patch = boxed.patch()
    here = burn(GREY, boxed)[0, 3 : 3 + patch.cover.shape[0], 2 : 2 + patch.cover.shape[1], 0]
    assert (0, round(200 * int(JANE.patch().cover.max()) / 255)) == (here.min(), here.max())
    assert (patch.cover == 255).all()


def test_words_are_the_same_on_grey_and_colour_images_and_in_another_process() -> None:
    colour = np.repeat(GREY, 3, axis=3)
    assert burn(GREY, JANE).repeat(3, axis=3).tolist() == burn(colour, JANE).tolist()
    script = (
        "import sys, hashlib; from tasks.datasets.features import Words;"
        "print(hashlib.sha256(Words('JANE DOE', size=10, top=3, left=2).patch().pixels()).hexdigest())"
    )
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert hashlib.sha256(JANE.patch().pixels()).hexdigest() == done.stdout.strip()


def test_random_words_have_the_cover_and_another_colour_in_every_pixel() -> None:
    patch = JANE.patch()
    here = np.s_[:, patch.top : patch.top + patch.cover.shape[0], patch.left : patch.left + patch.cover.shape[1]]
    burnt = burn_random(GREY, JANE, 1, "probe")
    solid = patch.cover == 255
    assert random_patches(2, 1, JANE, 1, "probe")[:, solid].tolist() == burnt[here][:, solid].tolist()
    assert {40} == set(burnt[here][:, patch.cover == 0].ravel().tolist())
    assert burnt[1:].tolist() == burn_random(GREY[1:], JANE, 1, "probe", rows=[1]).tolist()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"words": ""}, "words is ''; it must be one line, without spaces at its ends"),
        ({"words": " J"}, "words is ' J'; it must be one line, without spaces at its ends"),
        ({"words": "J\nD"}, r"words is 'J\nD'; it must be one line, without spaces at its ends"),
        ({"words": "\u05d0"}, "words is '\u05d0'; it must run from left to right: use a picture instead"),
        ({"size": 3}, "size is 3; it must be at least 4"),
        ({"top": -1}, "top is -1; it must be at least 0"),
        ({"ink": 256}, "ink is 256; it must be at most 255"),
        ({"ink": 0, "box": True}, "ink is 0, which nobody sees in a box of 0; it must be at least 1"),
    ],
)
def test_words_that_cannot_be_are_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        replace(JANE, **fields)  # type: ignore[arg-type]
    assert says == str(caught.value)


def test_words_that_cannot_be_drawn_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="words is 'J\u4e2d'; the font has no '\u4e2d'"):
        replace(JANE, words="J\u4e2d", font=FONT).patch()
    (tmp_path / "no.ttf").write_text("no font")
    with pytest.raises(ValueError, match=r"no\.ttf is no font that can be read: "):
        replace(JANE, font=File(str(tmp_path / "no.ttf"))).patch()
    with pytest.raises(FileError, match="there is no file"):
        replace(JANE, font=File(str(tmp_path / "gone.ttf"))).patch()
    with pytest.raises(ValueError, match="does not fit an image of 28 x 28"):
        check_fits(JANE, 28, 28)


def test_words_are_told_as_they_are() -> None:
    assert "the words 'JANE DOE'" == describe_feature(JANE)
    assert Words("JANE: DOE") == Words.parse("words:JANE: DOE")
