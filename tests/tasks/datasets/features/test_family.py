"""Members of a family differ from the feature only in content."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.features import Family, Feature, Glyph, Picture, Words, draw_member, family
from tasks.datasets.features.family import named_lengths
from tasks.datasets.features.names import names
from tasks.worker.files import File
from tests.tasks.datasets.features.drawn import saved

JANE = Words("JANE DOE", size=8, box=True)


def looks(features: list[Feature]) -> set[bytes]:
    return {feature.patch().pixels() for feature in features}


@pytest.fixture
def stamp(tmp_path: Path) -> Picture:
    return Picture(saved(np.arange(24, dtype=np.uint8).reshape(4, 6), tmp_path / "stamp.png"))


def test_glyph_family_has_200_patterns_of_equal_ink() -> None:
    for feature in (Glyph(text="Q", top=4, size=10), Glyph(kind="random", seed=3)):
        members = family(feature, Family(), seed=1)
        assert len(members) == 200
        assert len(looks([feature, *members])) == 201
        ink = feature.patch().colour.sum()
        assert all(isinstance(member, Glyph) and member.kind == "random" for member in members)
        assert all(ink == member.patch().colour.sum() for member in members)
        assert {replace(member, kind="letter", seed=0) for member in members} == {
            replace(feature, kind="letter", seed=0)
        }


def test_smaller_family_is_prefix_of_larger_one() -> None:
    first = family(Glyph(), Family(count=9), seed=1)
    assert first == family(Glyph(), Family(), seed=1)[:9]
    assert not looks(first) & looks(family(Glyph(), Family(count=9), seed=2))


def test_letter_family_has_25_letters() -> None:
    letters = family(Glyph(text="C"), Family("letters", 25), seed=1)
    assert set(string.ascii_uppercase) - {"C"} == {letter.text for letter in letters if isinstance(letter, Glyph)}


def test_image_family_permutes_its_pixels(stamp: Picture) -> None:
    members = family(stamp, Family(count=50), seed=1)
    assert len(looks([stamp, *members])) == 51
    assert all(sorted(member.patch().colour.ravel().tolist()) == list(range(24)) for member in members)


def test_name_family_keeps_lengths_case_and_digits() -> None:
    feature = Words("Jane O'DOE, 12.03.", size=8, top=2, ink=99)
    members = family(feature, Family(), seed=1)
    assert len(looks([feature, *members])) == 201
    for member in members:
        assert isinstance(member, Words)
        assert re.fullmatch(r"[A-Z][a-z]{3} [A-Z]'[A-Z]{3}, \d\d\.\d\d\.", member.words)
        assert feature == replace(member, words=feature.words)


def test_names_are_drawn_letters_if_list_is_short() -> None:
    listed_names = set()
    for length in (3, 4):
        for names_of_length in names()[length]:
            listed_names.add("".join(names_of_length).upper())
    words_of_members = []
    for names_of_length in family(JANE, Family(), 1):
        if isinstance(names_of_length, Words):
            words_of_members.append(names_of_length.words.split())
    assert len(words_of_members) == 200
    assert {word for words in words_of_members for word in words} <= listed_names
    assert named_lengths(("JANE", "DOE"), 200) == {3, 4}
    assert named_lengths(("JANE",), 200) == {4}
    assert set() == named_lengths(("JANE",), 300)  # 416 names for more than 400 draws
    assert set() == named_lengths(("AB",), 200)
    assert set() == named_lengths(("ABCDEFGHIJKLM",), 200)
    # 167 x 30; with the rarer ones drawn, 167 x 26 x 26
    assert named_lengths(("DOE", "AB"), 3000) == {3}
    assert all(
        name.isascii() and name.isalpha() and name.islower()
        for names_of_length in names().values()
        for name in names_of_length
    )


def test_drawn_letters_have_english_frequencies() -> None:
    members = family(Words("a" * 30), Family(count=200), seed=1)
    text = "".join(member.words for member in members if isinstance(member, Words))
    share = text.count("e") / len(text)
    assert abs(0.127 - share) < 4 * np.sqrt(0.127 * 0.873 / 6000)
    assert text.count("z") < text.count("t")


def test_users_names_take_case_of_the_words(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("Ann Bee\n\n  Cy  Dee \nJane Doe\nAnn Bee\n")
    config = Family("names", 2, File(str(path)))
    members = family(JANE, config, seed=1)
    assert {member.words for member in members if isinstance(member, Words)} == {"ANN BEE", "CY DEE"}
    with pytest.raises(ValueError, match="count is 3; it must be at most 2: no more features of the family"):
        family(JANE, replace(config, count=3), seed=1)
    path.write_text("\n")
    with pytest.raises(ValueError, match=r"names\.txt has no names; it must have one per line"):
        family(JANE, config, seed=1)


def test_members_that_do_not_fit_are_left_out() -> None:
    width = JANE.patch().cover.shape[1] + JANE.left
    members = family(JANE, Family(count=50), 1, (20, width))
    assert all(member.patch().fits(20, width) for member in [*members, draw_member(JANE, 1, shape=(20, width))])
    with pytest.raises(ValueError, match="look different and fit an image of 20 x 9"):
        family(JANE, Family(), 1, (20, 9))
    with pytest.raises(ValueError, match="no feature of the family of the words 'JANE DOE' fits the images"):
        draw_member(JANE, 1, shape=(20, 9))


def test_rank_of_drawn_feature_is_uniform() -> None:
    """The rank is uniform for any fixed score, here a random linear one without training."""
    weights = np.random.default_rng(0).normal(size=25)

    def score(feature: Feature) -> float:
        return float(weights @ feature.patch().colour.ravel())

    ranks = []
    for seed in range(300):
        feature = draw_member(Glyph(), seed)
        ranks.append(sum(score(member) >= score(feature) for member in family(feature, Family(count=9), seed)))
    counts = np.bincount(ranks, minlength=10)
    assert ((counts - 30) ** 2 / 30).sum() < 27.9  # chi squared with 9 degrees of freedom: p = .001


def test_feature_is_drawn_from_its_family(stamp: Picture, tmp_path: Path) -> None:
    assert draw_member(Glyph(), 1) == draw_member(Glyph(), 1) != draw_member(Glyph(), 2)
    letter = draw_member(Glyph(), 1, Family("letters", 25))
    assert isinstance(letter, Glyph)
    assert letter.kind == "letter"
    picture = draw_member(stamp, 1)
    assert isinstance(picture, Picture)
    assert picture.seed > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "other"}, "kind is 'other'; it must be one of alike, letters, names"),
        ({"count": 0}, "count is 0; it must be at least 1"),
        ({"kind": "letters"}, "count is 200; it must be at most 25, a letter's other letters"),
        ({"kind": "names"}, "names is no file, but kind is names; kind must be names if and only if names is a file"),
        ({"names": File("a")}, "names is a file, but kind is alike; kind must be names if and only if names is a file"),
    ],
)
def test_invalid_family_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        Family(**fields)  # type: ignore[arg-type]
    assert message == str(caught.value)


def test_family_unavailable_for_feature_is_refused(stamp: Picture, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kind is letters, but the words 'JANE DOE' is not a letter; use alike"):
        family(JANE, Family("letters", 9), 1)
    with pytest.raises(ValueError, match=r"kind is names, but the picture stamp\.png is not words; use alike"):
        family(stamp, Family("names", 9, File("a")), 1)
    with pytest.raises(ValueError, match="'\u0436' is not a Latin letter; set kind=names and a file of names"):
        family(Words("\u0436"), Family(), 1)
    plain = Picture(saved(np.full((4, 4), 9, np.uint8), tmp_path / "plain.png"))
    with pytest.raises(ValueError, match="count is 200; it must be at most 0: no more features of the family"):
        family(plain, Family(), 1)
