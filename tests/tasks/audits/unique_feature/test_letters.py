import numpy as np
import pytest

from tasks.audits.unique_feature.letters import read_letters
from tasks.datasets.features import Family, Feature, Words, burn, family
from tasks.numerics import seeds

NAME = Words("Luis O'MOE 73", size=10, top=3, left=2)


def ink(feature: Words) -> np.ndarray:
    return np.asarray(burn(np.zeros((1, 32, 96, 1), np.uint8), feature)[0, ..., 0] / 255)


def other_names(feature: Words) -> list[Feature]:
    return family(feature, Family(count=10), 3, (32, 96))


@pytest.mark.parametrize("words", ["Luis O'MOE 73", "LUIS MOE", "of 1999", "I"])
def test_slopes_like_ink_spell_the_name(words: str) -> None:
    feature = Words(words, size=12, top=3, left=2)
    reading = read_letters(feature, [], 0.01 * ink(feature) - 5)
    assert words == reading.words
    assert reading.letters == reading.right
    assert sum(letter.isalnum() for letter in words) == reading.letters


def test_noise_spells_as_many_letters_as_chance() -> None:
    reading = []
    for seed in range(60):
        reading.append(read_letters(NAME, other_names(NAME), seeds.generator(seed, "noise").normal(size=(32, 96))))
    right = [reading_of_noise.right for reading_of_noise in reading]
    error = np.std(right) / np.sqrt(len(right))
    assert np.mean([reading_of_noise.right_by_chance for reading_of_noise in reading]) == pytest.approx(
        np.mean(right), abs=4 * error
    )
    assert all(reading_of_noise.words[4] == " " and reading_of_noise.words[6] == "'" for reading_of_noise in reading)


def test_another_name_shares_letters_at_the_same_position() -> None:
    reading = read_letters(
        Words("LUIS MOE", size=10, top=3, left=2), [], ink(Words("LUIS LAU", size=10, top=3, left=2))
    )
    assert reading.words[:4] == "LUIS"
    assert reading.right == 4


def test_name_at_the_image_edge_is_read() -> None:
    feature = Words("gap", size=10, top=20, left=0)
    assert read_letters(feature, [], ink(feature)).words == "gap"
