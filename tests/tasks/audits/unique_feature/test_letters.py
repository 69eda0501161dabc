import numpy as np
import pytest

from tasks.audits.unique_feature.letters import read_letters
from tasks.datasets.features import Family, Feature, Words, burn, family
from tasks.numerics import seeds

NAME = Words("Luis O'MOE 73", size=10, top=3, left=2)


def ink(feature: Words) -> np.ndarray:
    return np.asarray(burn(np.zeros((1, 32, 96, 1), np.uint8), feature)[0, ..., 0] / 255)


def others(feature: Words) -> list[Feature]:
    return family(feature, Family(count=10), 3, (32, 96))


@pytest.mark.parametrize("words", ["Luis O'MOE 73", "LUIS MOE", "of 1999", "I"])
def test_slopes_like_the_ink_of_a_name_spell_it_up_to_a_factor_and_a_shift(words: str) -> None:
    feature = Words(words, size=12, top=3, left=2)
    found = read_letters(feature, [], 0.01 * ink(feature) - 5)
    assert (words, found.letters) == (found.words, found.right)
    assert sum(letter.isalnum() for letter in words) == found.letters


def test_noise_spells_as_many_letters_of_a_name_as_of_others_of_its_family() -> None:
    found = [read_letters(NAME, others(NAME), seeds.generator(at, "noise").normal(size=(32, 96))) for at in range(60)]
    right = [each.right for each in found]
    error = np.std(right) / np.sqrt(len(right))
    assert np.mean([each.right_by_chance for each in found]) == pytest.approx(np.mean(right), abs=4 * error)
    assert all(each.words[4] == " " and each.words[6] == "'" for each in found)


def test_another_name_shares_the_letters_that_stand_at_the_same_place() -> None:
    found = read_letters(Words("LUIS MOE", size=10, top=3, left=2), [], ink(Words("LUIS LAU", size=10, top=3, left=2)))
    assert (found.words[:4], found.right) == ("LUIS", 4)


def test_a_name_at_the_edge_of_an_image_is_read_although_the_lines_of_its_font_end_beyond_it() -> None:
    feature = Words("gap", size=10, top=20, left=0)
    assert read_letters(feature, [], ink(feature)).words == "gap"
