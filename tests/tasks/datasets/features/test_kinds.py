"""A patch covers its position in an image, blended by its cover, in integers."""

from __future__ import annotations

import hashlib
import string
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.planning.identity import key_of
from tasks.contract.job import Job
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import (
    GLYPHS,
    Glyph,
    Picture,
    Words,
    burn,
    burn_random,
    check_fits,
    describe_feature,
    glyph_pixels,
)
from tasks.datasets.features.kinds import Patch
from tasks.datasets.images import luma
from tasks.numerics import seeds
from tasks.training.classifier import Burnt, Training, train
from tasks.worker.files import File, FileError
from tests.tasks.datasets.features.drawn import FONT, saved

U8 = np.uint8
IMAGES = np.arange(2 * 4 * 5 * 3, dtype=U8).reshape(2, 4, 5, 3)


def patch(cover: list[list[int]], colour: list[list[list[int]]], row: int = 1, column: int = 2) -> Patch:
    return Patch(np.array(cover, U8), np.array(colour, U8), row, column)


TWO = patch([[255, 255]], [[[10, 20, 30], [40, 50, 60]]])


def test_opaque_patch_changes_only_its_position() -> None:
    before = IMAGES.copy()
    burnt = TWO.burn_into(IMAGES)
    assert (burnt[:, 1, 2:4] == TWO.colour[0]).all()
    elsewhere = np.ones((4, 5), bool)
    elsewhere[1, 2:4] = False
    assert (burnt[:, elsewhere] == IMAGES[:, elsewhere]).all()
    assert (before == IMAGES).all()


def test_cover_blends_to_nearest_integer() -> None:
    images = np.repeat(np.arange(256, dtype=U8), 256).reshape(256, 1, 256, 1)  # image, cover
    cover = np.arange(256, dtype=U8)[None]
    for colour in (0, 77, 255):
        over = Patch(cover, np.full((1, 256, 1), colour, U8), 0, 0).burn_into(images)
        exact = (images * (255.0 - cover[..., None]) + colour * 1.0 * cover[..., None]) / 255
        assert (np.floor(exact + 0.5) == over).all()  # 255 is odd, so that no value is halfway


def test_images_may_have_their_own_colours() -> None:
    colours = np.array([[[[1, 2, 3], [4, 5, 6]]], [[[7, 8, 9], [10, 11, 12]]]], U8)
    assert (TWO.burn_into(IMAGES, colours)[:, 1:2, 2:4] == colours).all()
    half = patch([[51, 0]], [[[0, 0, 0], [0, 0, 0]]]).burn_into(IMAGES * 0, colours)
    assert half[:, 1, 2].tolist() == [[0, 0, 1], [1, 2, 2]]  # a fifth of 1, 2, 3 and of 7, 8, 9
    assert half[1, 1, 3].tolist() == [0, 0, 0]


def test_colours_become_grey_by_luma() -> None:
    assert TWO.convert_channels(1).tolist() == [[[18], [48]]]  # 0.299 * 10 + 0.587 * 20 + 0.114 * 30, and 18 + 30
    grey = patch([[255]], [[[9]]])
    assert grey.convert_channels(3).tolist() == [[[9, 9, 9]]]
    assert grey.convert_channels(1).tolist() == [[[9]]]
    assert TWO.colour.tolist() == TWO.convert_channels(3).tolist()


def test_trimming_removes_uncovered_edges() -> None:
    cover = [[0, 0, 0, 0], [0, 5, 0, 9], [0, 0, 0, 0], [0, 7, 0, 0], [0, 0, 0, 0]]
    colour = np.arange(20, dtype=U8).reshape(5, 4, 1)
    trimmed = Patch(np.array(cover, U8), colour, 3, 10).trim()
    assert trimmed.top == 4
    assert trimmed.left == 11
    assert trimmed.cover.tolist() == [[5, 0, 9], [0, 0, 0], [7, 0, 0]]
    assert colour[1:4, 1:4].tolist() == trimmed.colour.tolist()
    assert (same := TWO.trim()).cover.tolist() == TWO.cover.tolist()
    assert same.top == 1
    assert same.left == 2
    with pytest.raises(ValueError, match="the feature covers nothing"):
        patch([[0, 0]], [[[0], [0]]]).trim()


@pytest.mark.parametrize(("row", "column", "fits"), [(3, 3, True), (4, 3, False), (3, 4, False), (0, 0, True)])
def test_patch_must_be_inside_the_image(row: int, column: int, fits: bool) -> None:
    moved = Patch(TWO.cover, TWO.colour, row, column)
    assert fits is moved.fits(4, 5)
    if fits:
        moved.burn_into(IMAGES)
        return
    message = f"^a feature of 1 x 2 at top {row}, left {column} does not fit an image of 4 x 5$"
    with pytest.raises(ValueError, match=message):
        moved.burn_into(IMAGES)


def test_different_patches_have_different_pixels() -> None:
    patches = [
        TWO,
        Patch(TWO.cover, TWO.colour, 2, 1),
        Patch(TWO.cover, TWO.colour[:, ::-1], 1, 2),
        patch([[255, 254]], TWO.colour.tolist()),
        Patch(TWO.cover, TWO.colour[..., :1], 1, 2),
    ]
    assert len(patches) == len({one_patch.pixels() for one_patch in patches})
    assert TWO.pixels() == patch([[255, 255]], TWO.colour.tolist()).pixels()


def test_letter_a_is_one_pixel_from_corner() -> None:
    images = np.full((2, 8, 8, 1), 7, np.uint8)
    expected = np.full((8, 8), 7)
    expected[1:6, 1:6] = 255 * np.array(
        [
            [0, 1, 1, 1, 0],
            [1, 0, 0, 0, 1],
            [1, 1, 1, 1, 1],
            [1, 0, 0, 0, 1],
            [1, 0, 0, 0, 1],
        ]
    )
    burnt = burn(images, Glyph())
    assert expected.tolist() == burnt[0, :, :, 0].tolist()
    assert expected.tolist() == burnt[1, :, :, 0].tolist()


def test_feature_is_the_same_in_every_channel() -> None:
    burnt = burn(np.full((1, 32, 32, 3), 9, np.uint8), Glyph(text="Q", top=4, left=20))
    for channel in range(3):
        assert glyph_pixels(Glyph(text="Q")).tolist() == burnt[0, 4:9, 20:25, channel].tolist()


def test_letters_are_26_patterns_of_five_by_five() -> None:
    assert set(string.ascii_uppercase) == set(GLYPHS)
    patterns = {glyph_pixels(Glyph(text=letter)).tobytes() for letter in GLYPHS}
    assert len(patterns) == 26
    assert all(glyph_pixels(Glyph(text=letter)).shape == (5, 5) for letter in GLYPHS)


def test_random_glyph_has_ink_of_the_letter() -> None:
    letter = glyph_pixels(Glyph())
    family = [glyph_pixels(Glyph(kind="random", seed=seed)) for seed in range(50)]
    assert all(glyph.sum() == letter.sum() for glyph in family)
    assert all(set(np.unique(glyph)) == {0, 255} for glyph in family)
    assert len({letter.tobytes(), *(glyph.tobytes() for glyph in family)}) == 51


def test_random_glyph_is_independent_of_its_position() -> None:
    assert (
        glyph_pixels(Glyph(kind="random", seed=3)).tolist()
        == glyph_pixels(Glyph(kind="random", seed=3, top=9)).tolist()
    )


def test_bigger_letter_repeats_its_cells() -> None:
    doubled = glyph_pixels(Glyph(size=10))
    assert doubled.shape == (10, 10)
    assert glyph_pixels(Glyph()).tolist() == doubled[::2, ::2].tolist()
    assert glyph_pixels(Glyph()).tolist() == doubled[1::2, 1::2].tolist()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "word"}, "kind is 'word'; it must be one of letter, random"),
        ({"text": "AB"}, "text is 'AB'; it must be one letter from A to Z"),
        ({"text": ""}, "text is ''; it must be one letter from A to Z"),
        ({"size": 7}, "size is 7; it must be a multiple of 5, a letter being 5 x 5"),
        ({"size": 0}, "size is 0; it must be a multiple of 5, a letter being 5 x 5"),
        ({"top": -1}, "top is -1; it must be at least 0"),
        ({"left": -2}, "left is -2; it must be at least 0"),
        ({"kind": "random", "seed": -1}, "seed is -1; it must be at least 0"),
        ({"seed": 4}, "seed is 4, but a letter has none; it must be 0 unless kind is random"),
    ],
)
def test_invalid_glyph_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        Glyph(**fields)  # type: ignore[arg-type]
    assert message == str(caught.value)


def test_random_patches_are_independent_and_uniform() -> None:
    patches = burn_random(np.zeros((4000, 5, 5, 3), np.uint8), Glyph(top=0, left=0), 1, "probe")
    levels = np.bincount(patches.ravel(), minlength=256)
    # 300,000 draws: 1,172 a level, standard deviation 34.
    assert levels.min() > 1172 - 6 * 34
    assert levels.max() < 1172 + 6 * 34
    flat = patches.reshape(4000, -1).astype(float)
    assert abs(np.corrcoef(flat[0], flat[1])[0, 1]) < 0.5
    assert np.abs(np.corrcoef(flat, rowvar=False) - np.eye(75)).max() < 0.1


def test_random_patches_come_from_a_named_stream() -> None:
    def patches(feature: Glyph, *stream: int | str, count: int = 10) -> list[object]:
        return burn_random(np.zeros((count, 28, 28, 1), np.uint8), feature, *stream)[:10].tolist()

    first = patches(Glyph(), 1, "probe")
    assert first == patches(Glyph(text="B"), 1, "probe", count=20)
    assert first != patches(Glyph(), 2, "probe")
    assert first != patches(Glyph(), 1, "train")


def test_glyph_training_keeps_its_key() -> None:
    """Stored trainings are found by this key: it contains only the fields of a glyph."""
    burnt = (Burnt(3, Glyph()), Burnt(5, Glyph(kind="random", seed=1)))
    training = Training(Dataset("digits", "ab" * 32), seed=7, burnt=burnt)
    assert key_of(Job(train, training), []) == "bb29f4bca05785c30cb42d524f83fbbe2b3e46046b349f30f3f8a93c8c53e7b8"


def test_random_feature_of_image_is_independent_of_others() -> None:
    rows = np.array([5000, 3, 1024, 1023])
    images = np.full((4, 28, 28, 3), 9, np.uint8)
    all_patches = seeds.generator(4, "random patches", "probe").integers(0, 256, size=(5001, 5, 5, 3), dtype=np.uint8)
    burnt = burn_random(images, Glyph(), 4, "probe", rows=rows)
    assert all_patches[rows].tolist() == burnt[:, 1:6, 1:6].tolist()
    assert burnt.astype(int).sum() - burnt[:, 1:6, 1:6].astype(int).sum() == 9 * (28 * 28 - 25) * 3 * 4


def test_random_features_need_a_row_for_each_image() -> None:
    with pytest.raises(ValueError, match=r"rows has shape \(2,\); it must be \(3,\), one for each image"):
        burn_random(np.zeros((3, 8, 8, 1), np.uint8), Glyph(), 1, rows=[1, 2])


JANE = Words("JANE DOE", size=10, top=3, left=2)
GREY = np.full((2, 28, 64, 1), 40, np.uint8)


def cover_by_pillow(words: Words) -> np.ndarray:
    """The words on a large black canvas, straight from Pillow."""
    from PIL import Image, ImageDraw, ImageFont

    canvas = Image.new("L", (200, 60))
    font = ImageFont.truetype(FONT.path, words.size, layout_engine=ImageFont.Layout.BASIC)
    ImageDraw.Draw(canvas).text((20, 20), words.words, fill=255, font=font)
    ink = np.asarray(canvas)
    return ink[ink.any(axis=1)][:, ink.any(axis=0)]


def test_words_match_pillows_drawing() -> None:
    for text in ("JANE DOE", "Grijp", "12.03."):
        words = replace(JANE, words=text, font=FONT)
        cover = words.patch().cover
        expected = cover_by_pillow(words)
        # The helper drops columns and rows without ink, so drop them here too.
        inked = cover[cover.any(axis=1)][:, cover.any(axis=0)]
        assert expected.tolist() == inked.tolist()


def test_words_blend_into_image_by_their_cover() -> None:
    patch = JANE.patch()
    height, width = patch.cover.shape
    region = burn(GREY, JANE)[1, patch.top : patch.top + height, patch.left : patch.left + width, 0].astype(float)
    cover = patch.cover / 255
    assert np.abs(40 * (1 - cover) + 255 * cover - region).max() <= 0.5
    assert region.max() == pytest.approx(40 + 215 * cover.max(), abs=0.5)
    assert region.min() == 40
    outside = burn(GREY, JANE)
    outside[:, patch.top : patch.top + height, patch.left : patch.left + width] = 40
    assert GREY.tolist() == outside.tolist()


def test_words_start_at_requested_position() -> None:
    for text in ("JANE", "ago", "Ago"):
        boxed = Words(text, top=5, left=7, box=True).patch()
        assert boxed.top == 5
        assert boxed.left == 7
        assert boxed.colour[:, 0].any()
    # The height of the line is independent of the letters, so a family of names has one position.
    assert Words("ace", box=True).patch().cover.shape[0] == Words("Ag", box=True).patch().cover.shape[0]


def test_box_overwrites_its_line_with_black() -> None:
    boxed = replace(JANE, box=True, ink=200)
    patch = boxed.patch()
    here = burn(GREY, boxed)[0, 3 : 3 + patch.cover.shape[0], 2 : 2 + patch.cover.shape[1], 0]
    assert here.min() == 0
    assert here.max() == round(200 * int(JANE.patch().cover.max()) / 255)
    assert (patch.cover == 255).all()


def test_words_are_independent_of_channels_and_process() -> None:
    colour = np.repeat(GREY, 3, axis=3)
    assert burn(GREY, JANE).repeat(3, axis=3).tolist() == burn(colour, JANE).tolist()
    script = (
        "import sys, hashlib; from tasks.datasets.features import Words;"
        "print(hashlib.sha256(Words('JANE DOE', size=10, top=3, left=2).patch().pixels()).hexdigest())"
    )
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert hashlib.sha256(JANE.patch().pixels()).hexdigest() == done.stdout.strip()


def test_random_words_keep_cover_and_vary_colours() -> None:
    patch = JANE.patch()
    here = np.s_[:, patch.top : patch.top + patch.cover.shape[0], patch.left : patch.left + patch.cover.shape[1]]
    burnt = burn_random(GREY, JANE, 1, "probe")
    solid = patch.cover == 255
    colours = seeds.generator(1, "random patches", "probe").integers(0, 256, (2, *solid.shape, 1), np.uint8)
    assert colours[:, solid].tolist() == burnt[here][:, solid].tolist()
    assert set(burnt[here][:, patch.cover == 0].ravel().tolist()) == {40}
    assert burnt[1:].tolist() == burn_random(GREY[1:], JANE, 1, "probe", rows=[1]).tolist()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"words": ""}, "words is ''; it must be one line, without spaces at its ends"),
        ({"words": " J"}, "words is ' J'; it must be one line, without spaces at its ends"),
        ({"words": "J\nD"}, r"words is 'J\nD'; it must be one line, without spaces at its ends"),
        ({"words": "\u05d0"}, "words is '\u05d0'; it must be left-to-right text: use a picture instead"),
        ({"size": 3}, "size is 3; it must be at least 4"),
        ({"top": -1}, "top is -1; it must be at least 0"),
        ({"ink": 256}, "ink is 256; it must be from 0 to 255"),
        ({"ink": 0, "box": True}, "ink is 0, which is invisible in a box of 0; it must be at least 1"),
    ],
)
def test_invalid_words_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        replace(JANE, **fields)  # type: ignore[arg-type]
    assert message == str(caught.value)


def test_unavailable_glyphs_and_fonts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="words is 'J\u4e2d'; the font has no '\u4e2d'"):
        replace(JANE, words="J\u4e2d", font=FONT).patch()
    (tmp_path / "no.ttf").write_text("no font")
    with pytest.raises(ValueError, match=r"no\.ttf is not a readable font: "):
        replace(JANE, font=File(str(tmp_path / "no.ttf"))).patch()
    with pytest.raises(FileError, match="there is no file"):
        replace(JANE, font=File(str(tmp_path / "gone.ttf"))).patch()
    with pytest.raises(ValueError, match="does not fit an image of 28 x 28"):
        check_fits(JANE, 28, 28)


def test_words_are_described_unchanged() -> None:
    assert describe_feature(JANE) == "the words 'JANE DOE'"
    assert Words("JANE: DOE") == Words.parse("words:JANE: DOE")


COLOUR = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
GREY_IMAGES = np.full((2, 12, 12, 3), 100, np.uint8)


def test_image_without_mask_covers_its_rectangle(tmp_path: Path) -> None:
    stamp = Picture(saved(COLOUR, tmp_path / "stamp.png"), top=2, left=3)
    assert COLOUR.tolist() == burn(GREY_IMAGES, stamp)[1, 2:6, 3:9].tolist()
    assert luma(COLOUR[None]).tolist() == burn(GREY_IMAGES[..., :1], stamp)[:1, 2:6, 3:9].tolist()
    assert describe_feature(stamp) == "the picture stamp.png"


def test_grey_image_is_the_same_in_every_channel(tmp_path: Path) -> None:
    burnt = burn(GREY_IMAGES, Picture(saved(COLOUR[..., 0], tmp_path / "grey.png"), top=0, left=0))
    assert COLOUR[..., 0].tolist() == burnt[0, :4, :6, 2].tolist()


def test_transparency_defines_the_cover(tmp_path: Path) -> None:
    alpha = np.zeros((4, 6, 1), np.uint8)
    alpha[1:3, 2:5] = 255
    alpha[2, 3] = 51  # a fifth
    stamp = Picture(saved(np.concatenate([COLOUR, alpha], 2), tmp_path / "stamp.png"), top=0, left=0)
    expected = GREY_IMAGES[0].copy()
    expected[1:3, 2:5] = COLOUR[1:3, 2:5]
    expected[2, 3] = np.round(100 * 0.8 + COLOUR[2, 3] * 0.2)
    assert expected.tolist() == burn(GREY_IMAGES, stamp)[0].tolist()
    check_fits(stamp, 3, 5)  # uncovered edges need not fit


def test_mask_overrides_transparency(tmp_path: Path) -> None:
    mask = np.zeros((4, 6), np.uint8)
    mask[0, 0] = 255
    picture = saved(np.concatenate([COLOUR, np.zeros((4, 6, 1), np.uint8)], 2), tmp_path / "stamp.png")
    burnt = burn(GREY_IMAGES, Picture(picture, saved(mask, tmp_path / "mask.png"), top=0, left=0))[0]
    assert COLOUR[0, 0].tolist() == burnt[0, 0].tolist()
    assert set(burnt.reshape(-1, 3)[1:].ravel().tolist()) == {100}


def test_seed_permutes_pixels_inside_the_mask(tmp_path: Path) -> None:
    alpha = np.full((4, 6, 1), 255, np.uint8)
    alpha[0] = 0
    file = saved(np.concatenate([COLOUR, alpha], 2), tmp_path / "stamp.png")
    original = Picture(file, seed=0).patch()
    permuted = Picture(file, seed=1).patch()
    other_seed = Picture(file, seed=2).patch()
    assert original.cover.tolist() == permuted.cover.tolist()
    pixels = []
    for pixel_patch in (original, permuted):
        pixels.append(sorted(map(tuple, pixel_patch.colour.reshape(-1, 3).tolist())))
    assert pixels[0] == pixels[1]
    assert len({pixel_patch.pixels() for pixel_patch in (original, permuted, other_seed)}) == 3


def test_invalid_images_are_refused(tmp_path: Path) -> None:
    stamp = saved(COLOUR, tmp_path / "stamp.png")
    with pytest.raises(ValueError, match=r"mask\.png is 3 x 6, .*stamp\.png 4 x 6; they must be of one size"):
        Picture(stamp, saved(COLOUR[:3], tmp_path / "mask.png")).patch()
    with pytest.raises(ValueError, match="the feature covers nothing"):
        Picture(stamp, saved(0 * COLOUR, tmp_path / "black.png")).patch()
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"text\.png cannot be read as an image: cannot identify image file"):
        Picture(File(str(tmp_path / "text.png"))).patch()
    with pytest.raises(ValueError, match="seed is -1; it must be at least 0"):
        Picture(stamp, seed=-1)
