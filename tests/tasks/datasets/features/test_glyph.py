import string

import numpy as np
import pytest

from orchestrator.planning.identity import key_of
from tasks import seeds
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import GLYPHS, Glyph, burn, burn_random, pixels, random_patches
from tasks.job import Job
from tasks.training.classifier import Burnt, Training, train


def test_the_letter_a_is_drawn_one_pixel_from_the_top_left_corner() -> None:
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


def test_burning_leaves_the_given_images_alone() -> None:
    images = np.full((1, 8, 8, 1), 7, np.uint8)
    burn(images, Glyph())
    assert np.all(images == 7)


def test_a_feature_is_the_same_in_every_channel() -> None:
    burnt = burn(np.full((1, 32, 32, 3), 9, np.uint8), Glyph(text="Q", top=4, left=20))
    for channel in range(3):
        assert pixels(Glyph(text="Q")).tolist() == burnt[0, 4:9, 20:25, channel].tolist()


def test_there_are_26_different_letters_of_five_by_five() -> None:
    assert set(string.ascii_uppercase) == set(GLYPHS)
    drawn = {pixels(Glyph(text=letter)).tobytes() for letter in GLYPHS}
    assert 26 == len(drawn)
    assert all(pixels(Glyph(text=letter)).shape == (5, 5) for letter in GLYPHS)


def test_a_random_feature_has_the_letters_ink_in_other_places() -> None:
    letter = pixels(Glyph())
    family = [pixels(Glyph(kind="random", seed=seed)) for seed in range(50)]
    assert all(glyph.sum() == letter.sum() for glyph in family)
    assert all(set(np.unique(glyph)) == {0, 255} for glyph in family)
    assert 51 == len({letter.tobytes(), *(glyph.tobytes() for glyph in family)})


def test_a_random_feature_is_the_same_wherever_it_is_drawn() -> None:
    assert pixels(Glyph(kind="random", seed=3)).tolist() == pixels(Glyph(kind="random", seed=3, top=9)).tolist()


def test_a_bigger_letter_repeats_its_cells() -> None:
    doubled = pixels(Glyph(size=10))
    assert (10, 10) == doubled.shape
    assert pixels(Glyph()).tolist() == doubled[::2, ::2].tolist()
    assert pixels(Glyph()).tolist() == doubled[1::2, 1::2].tolist()


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
def test_a_feature_that_cannot_be_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        Glyph(**fields)  # type: ignore[arg-type]
    assert message == str(caught.value)


def test_a_feature_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit") as caught:
        burn(np.zeros((1, 8, 8, 1), np.uint8), Glyph(top=4))
    assert "a feature of 5 x 5 at top 4, left 1 does not fit an image of 8 x 8" == str(caught.value)


def test_random_patches_differ_per_image_pixel_and_channel_and_are_uniform() -> None:
    patches = random_patches(4000, 3, Glyph(), 1, "probe")
    assert (4000, 5, 5, 3) == patches.shape
    levels = np.bincount(patches.ravel(), minlength=256)
    # 300,000 draws: 1,172 a level, standard deviation 34.
    assert levels.min() > 1172 - 6 * 34
    assert levels.max() < 1172 + 6 * 34
    flat = patches.reshape(4000, -1).astype(float)
    assert abs(np.corrcoef(flat[0], flat[1])[0, 1]) < 0.5
    assert np.abs(np.corrcoef(flat, rowvar=False) - np.eye(75)).max() < 0.1


def test_random_patches_come_from_a_named_stream() -> None:
    first = random_patches(10, 1, Glyph(), 1, "probe")
    assert first.tolist() == random_patches(20, 1, Glyph(text="B"), 1, "probe")[:10].tolist()
    assert first.tolist() != random_patches(10, 1, Glyph(), 2, "probe").tolist()
    assert first.tolist() != random_patches(10, 1, Glyph(), 1, "train").tolist()


def test_each_image_gets_its_own_patch() -> None:
    images = np.zeros((6, 28, 28, 1), np.uint8)
    patches = random_patches(6, 1, Glyph(), 5)
    burnt = burn_random(images, Glyph(), 5)
    assert patches.tolist() == burnt[:, 1:6, 1:6].tolist()
    assert patches.astype(int).sum() == burnt.astype(int).sum()


def test_a_training_with_burnt_glyphs_keeps_its_key() -> None:
    """Stored trainings are found by it: a glyph's fields, and no other kind's, are what the key sees."""
    burnt = (Burnt(3, Glyph()), Burnt(5, Glyph(kind="random", seed=1)))
    training = Training(Dataset("digits", "ab" * 32), seed=7, burnt=burnt)
    assert "65c00359fc50523dfbc1f725a4106dd8fccf062db3bb1fe40fef00a1c26fca7d" == key_of(Job(train, training), [])


def test_an_image_keeps_its_random_feature_whichever_others_are_there() -> None:
    rows = np.array([5000, 3, 1024, 1023])
    images = np.full((4, 28, 28, 3), 9, np.uint8)
    whole = seeds.generator(4, "random patches", "probe").integers(0, 256, size=(5001, 5, 5, 3), dtype=np.uint8)
    burnt = burn_random(images, Glyph(), 4, "probe", rows=rows)
    assert whole[rows].tolist() == burnt[:, 1:6, 1:6].tolist()
    assert whole.tolist() == random_patches(5001, 3, Glyph(), 4, "probe").tolist()


def test_random_features_need_a_row_for_each_image() -> None:
    with pytest.raises(ValueError, match=r"rows has shape \(2,\); it must be \(3,\), one for each image"):
        burn_random(np.zeros((3, 8, 8, 1), np.uint8), Glyph(), 1, rows=[1, 2])
