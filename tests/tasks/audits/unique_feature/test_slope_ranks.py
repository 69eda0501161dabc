import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Literal

import numpy as np
import pytest

from tasks.audits.unique_feature import slope_ranks
from tasks.audits.unique_feature.population import Relatives, inked_cells, subset_count
from tasks.audits.unique_feature.slope_ranks import (
    FeatureRegion,
    Subsets,
    cell_sums,
    exact_rank,
    feature_region,
    is_among_all,
    mean_standardised_slopes,
    probe_label_images,
    rank_alone,
    rank_rows,
    slope_features,
    slope_sets,
)
from tasks.audits.unique_feature.slopes import Array
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import (
    GLYPHS,
    AskedFamily,
    Feature,
    Glyph,
    Picture,
    Words,
    burn,
    draw_member,
    family,
)
from tasks.datasets.images import as_shape
from tasks.numerics import seeds
from tasks.numerics.ranks import exposure
from tasks.worker.files import File


@pytest.mark.parametrize(("count", "inked"), [(1, 1), (2, 1), (7, 3), (9, 0), (10, 10), (11, 6)])
def test_every_choice_of_cells_is_counted_as_by_trying_them_all(count: int, inked: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    sums = [sum(values[list(chosen)]) for chosen in combinations(range(count), inked)]
    assert len(sums) == subset_count(count, inked)
    subsets = Subsets(values)
    for least in sums:
        assert sum(value >= least - 1e-12 for value in sums) == subsets.count_at_least(inked, least)
    assert len(sums) == subsets.count_at_least(inked, -math.inf)
    assert subsets.count_at_least(inked, math.inf) == 0


def test_equal_sums_are_ties_though_they_are_added_up_in_another_order() -> None:
    values = np.array([0.1, 0.2, 0.3] * 3)
    chosen = np.zeros(9, bool)
    chosen[[0, 1, 8]] = True  # 0.6, which is also 0.2 + 0.2 + 0.2 and 0.1 + 0.3 + 0.2
    tried = [round(10 * sum(values[list(three)])) for three in combinations(range(9), 3)]
    assert sum(value >= 6 for value in tried) / len(tried) == Subsets(values).p_value(chosen)


def test_where_nothing_differs_between_cells_no_glyph_stands_out() -> None:
    assert Subsets(np.zeros(25)).p_value(inked_cells(Glyph())) == 1.0


def test_the_letter_that_alone_is_favoured_is_the_first_of_all_glyphs_of_its_ink() -> None:
    inked = inked_cells(Glyph())
    p_value = Subsets(inked.astype(float)).p_value(inked)
    assert p_value == 1 / 4_457_400
    assert math.log2(4_457_400) == pytest.approx(exposure(p_value))
    assert exposure(1.0) == 0.0


def test_a_drawn_glyph_has_a_small_p_as_often_as_it_says_whatever_the_cells_favour() -> None:
    draws = np.random.default_rng(3)
    values = [10.0, *draws.normal(size=12), *[0.0] * 12]  # one strong cell, and many ties
    subsets = Subsets(np.array(values))
    p_values = np.array([subsets.p_value(inked_cells(_glyph(seed))) for seed in range(600)])
    for level in (0.5, 0.05):
        spread = math.sqrt(level * (1 - level) / 600)
        assert np.mean(p_values <= level) <= level + 3 * spread
    assert np.mean(p_values <= 0.5) >= 0.5 - 3 * math.sqrt(0.25 / 600) - 0.05  # ties alone make it less


def test_a_feature_adds_what_its_images_have_more_than_the_clean_ones() -> None:
    clean = np.full((2, 6, 6, 1), 51, np.uint8)
    brighter, darker = clean.copy(), clean.copy()
    brighter[:, 2, 3], darker[0, 4, 1] = 255, 0  # the second feature is in one of two images
    region = feature_region(clean, [brighter, darker], np.full((3, 6, 6, 1), 255, np.uint8))
    assert region.indices.tolist() == [2 * 6 + 3, 4 * 6 + 1]
    assert [pytest.approx(added) for added in region.added.tolist()] == [[0.8, 0.0], [0.0, -0.1]]
    assert region.inked.tolist() == [3.0, 3.0]
    assert (slice(2, 5), slice(1, 4)) == region.block


def test_slopes_of_several_models_are_averaged_each_in_its_own_spread() -> None:
    slopes = [np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array([0.0, 4.0])]  # spreads 1, none and 2
    assert pytest.approx(mean_standardised_slopes(slopes).tolist()) == [(1 + 2 + 0) / 3, (3 + 2 + 2) / 3]


def test_values_of_pixels_are_laid_out_as_an_image_whose_channels_are_added_up() -> None:
    region = FeatureRegion((2, 2, 2), np.array([0, 1, 6]), np.zeros((1, 3)), np.zeros(3))
    assert region.pixel_map(np.array([1.0, 2.0, 4.0])).tolist() == [[3.0, 0.0], [0.0, 4.0]]


def test_a_field_is_summed_over_the_cells_at_the_glyphs_place() -> None:
    field = np.arange(20.0 * 20).reshape(20, 20)
    glyph = Glyph(top=3, left=6, size=10)
    expected = [
        field[3 + 2 * row : 5 + 2 * row, 6 + 2 * column : 8 + 2 * column].sum()
        for row, column in product(range(5), range(5))
    ]
    assert expected == cell_sums(field, glyph).tolist()


def test_a_rank_says_among_how_many_and_how_far_it_shortens_the_search() -> None:
    inked = np.array([True, True, False, False, False])
    rank = exact_rank(Subsets(np.array([3.0, 1.0, 2.0, 0.0, 0.0])), inked)  # 3 + 1 is second of ten, after 3 + 2
    assert {"p_value": 2 / 10, "among": 10, "exposure": pytest.approx(math.log2(5)), "inked": 2} == rank
    assert is_among_all(rank | {"ink": inked.tolist()})
    assert not is_among_all(rank | {"ink": None})
    assert not is_among_all(rank | {"ink": inked.tolist(), "among": 9})


DIGITS, PHOTOS = pin(Dataset("digits")), pin(Dataset("photos"))


def asked(feature: Feature = Glyph(), kind: Literal["alike", "letters"] = "alike") -> Relatives:
    return Relatives(PHOTOS, "test", 20, feature, AskedFamily(kind, count=3), seed=3)


def drawn_glyphs(stream: str, count: int) -> list[Feature]:
    own = seeds.derive(3, stream)
    return [draw_member(Glyph(), seeds.derive(own, number)) for number in range(count)]


def test_slopes_are_fitted_to_a_hundred_drawn_glyphs_or_to_the_feature_and_its_family() -> None:
    assert drawn_glyphs("fitted", 100) == slope_features(asked(), (28, 28))
    letters = asked(kind="letters")
    assert [Glyph(), *family(Glyph(), letters.family, 3, (28, 28))] == slope_features(letters, (28, 28))
    clean = np.zeros((2, 28, 28, 1), np.uint8)
    names, images = zip(*slope_sets(letters, clean), strict=True)
    assert names == ("slopes-000", "slopes-001", "slopes-002", "slopes-003")
    assert (burn(clean, Glyph()) == images[0]).all()


@pytest.mark.parametrize("was_drawn", [False, True])
def test_a_glyph_is_ranked_among_all_and_beside_others_that_models_never_saw(was_drawn: bool) -> None:
    field = np.random.default_rng(4).normal(size=(28, 28))
    here = FeatureRegion((28, 28, 1), np.arange(28 * 28), np.zeros((1, 28 * 28)), np.zeros(28 * 28))
    own, *others = rank_rows(asked(), was_drawn, field.ravel(), here)
    values, inked = cell_sums(field, Glyph()), inked_cells(Glyph())
    subsets = Subsets(values)
    assert (subsets.p_value(inked), 4_457_400, 14) == (own["p_value"], own["among"], own["inked"])
    assert len({*np.argsort(-values)[:14]} & {*np.flatnonzero(inked)}) == own["hits"]
    assert (14**2 / 25, 5, 5, was_drawn, "canary") == tuple(
        own[name] for name in ("hits_by_chance", "height", "width", "drawn", "feature")
    )
    assert (inked.tolist(), values.tolist()) == (own["ink"], own["slopes"])
    letters = [Glyph(text=text) for text in sorted(GLYPHS)]
    expected = letters if was_drawn else drawn_glyphs("others", len(GLYPHS))
    ranks = [subsets.p_value(inked_cells(glyph)) for glyph in expected if isinstance(glyph, Glyph)]
    assert ranks == [row["p_value"] for row in others]
    assert {("other", not was_drawn)} == {(row["feature"], row["drawn"]) for row in others}


def test_a_letter_is_ranked_among_the_members_of_its_family_and_read_out_where_it_lies() -> None:
    # Three features in 2 x 3 of 4 x 5 pixels; a mark of half the strongest is none.
    where = np.array([6, 7, 8, 11, 12])
    added = np.array([[1.0, 1.0, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0, 1.0]])
    here = FeatureRegion((4, 5, 1), where, added, np.zeros(5))
    assert (slice(1, 3), slice(1, 4)) == here.block
    slopes = np.array([3.0, 2.0, 0.5, 1.0, -1.0])  # scores 5.25, 2 and 0.5
    [row] = rank_rows(asked(kind="letters"), False, slopes, here)
    assert {
        "p_value": 1 / 3, "among": 3, "exposure": pytest.approx(math.log2(3)), "feature": "canary", "drawn": False,
        "inked": 2, "hits": 2, "hits_by_chance": (1 + 0) / 2, "height": 2, "width": 3,
        "ink": [True, True, False, False, False, False], "slopes": [3.0, 2.0, 0.5, 1.0, -1.0, 0.0],
    } == row  # fmt: skip
    [picture] = rank_rows(asked(Picture(File("mark.png"))), False, slopes, here)
    assert {"inked": 0} | {name: row[name] for name in ("p_value", "among", "exposure", "feature", "drawn")} == picture
    [last] = rank_rows(asked(kind="letters"), True, -slopes, here)
    assert (last["p_value"], last["hits"], last["drawn"]) == (1.0, 0, True)


def test_each_half_of_a_glyph_is_ranked_among_all_that_differ_there_alone() -> None:
    inked, field = inked_cells(Glyph()), np.zeros((28, 28))
    field[1:6, 1:6] = (np.where(np.arange(25) < 13, 1.0, -1.0) * inked).reshape(5, 5)  # favours the upper half alone
    own = replace(asked(), family=AskedFamily(count=3, look_alikes=2))
    here = FeatureRegion((28, 28, 1), np.arange(28 * 28), np.zeros((1, 28 * 28)), np.zeros(28 * 28))
    names = ["slopes-000", "slopes-001"]
    found = [*rank_alone(own, np.zeros((1, 28, 28, 1), np.uint8), names, lambda _: (field.ravel(), here))]
    upper, lower = int(inked[:13].sum()), int(inked[13:].sum())
    ways = math.comb(13, upper), math.comb(12, lower)
    common = {"feature": "look-alike", "drawn": False}
    assert [
        {"p_value": 1 / ways[0], "among": ways[0], "exposure": pytest.approx(math.log2(ways[0])), "inked": upper}
        | common,
        {"p_value": 1.0, "among": ways[1], "exposure": 0.0, "inked": lower} | common,
    ] == found[-2:]
    assert found[:-2] == [*rank_rows(own, False, field.ravel(), here)]
    assert found[:-2] == [
        *rank_alone(asked(), np.zeros((1, 28, 28, 1), np.uint8), names, lambda _: (field.ravel(), here))
    ]


def test_a_name_is_ranked_beside_its_family_and_part_by_part_beside_its_look_alikes() -> None:
    name = replace(asked(Words("JO AB", size=8)), family=AskedFamily(count=2, look_alikes=2))
    clean = np.zeros((1, 28, 48, 1), np.uint8)
    kin, first, second = (
        [f"slopes-{each}" for each in names]
        for names in (
            ("000", "001", "002"),
            ("look-alike-1-001", "look-alike-1-002"),
            ("look-alike-2-001", "look-alike-2-002"),
        )
    )
    names = [set_name for set_name, _ in slope_sets(name, clean)]
    assert [*kin, *first, *second] == names
    scores = dict(zip(names, (2.0, 5.0, 6.0, 3.0, 1.0, 0.0, 1.0), strict=True))
    slopes, fits = np.array([1.0, 0.0]), []

    def region(fitted: Sequence[str]) -> FeatureRegion:
        added = np.array([[scores[each], 1.0] for each in fitted])
        return FeatureRegion((1, 2, 1), np.arange(2), added, np.zeros(2))

    def fit_slopes(fitted: Sequence[str]) -> tuple[Array, FeatureRegion]:
        fits.append([*fitted])
        return slopes, region(fitted)

    own, *parts = rank_alone(name, clean, names, fit_slopes)
    assert [kin, [kin[0], *first, *kin[1:]], [kin[0], *second, *kin[1:]]] == fits
    assert [own] == [*rank_rows(name, False, slopes, region(kin))]
    common = {"among": 3, "inked": 0, "feature": "look-alike", "drawn": False}
    assert [  # its 2 is below 3 of one part's, and the first beside the other's
        {"p_value": 2 / 3, "exposure": pytest.approx(math.log2(3 / 2))} | common,
        {"p_value": 1 / 3, "exposure": pytest.approx(math.log2(3))} | common,
    ] == parts


def test_a_response_is_the_mean_over_the_first_hundred_images_of_the_label() -> None:
    data = load(DIGITS)
    found = probe_label_images(replace(asked(), probe=DIGITS), (32, 32, 1), 4)
    of_label = data.test_images[data.test_labels == 4]
    assert (100, min(100, len(of_label))) == (slope_ranks.IMAGES, len(found))
    assert (as_shape(of_label[:100], (32, 32, 1)) == found).all()


def _glyph(seed: int) -> Glyph:
    found = draw_member(Glyph(), seed)
    assert isinstance(found, Glyph)
    return found


def test_more_cells_than_can_be_counted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there are 41 cells; the choices of more than 40 cannot be counted"):
        Subsets(np.zeros(41))
    monkeypatch.setattr(slope_ranks, "sums_by_size", list)  # the sums of 20 cells each are a second's work
    assert len(Subsets(np.zeros(40)).values) == 40
