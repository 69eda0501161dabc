import math
from itertools import combinations, product

import numpy as np
import pytest

from tasks.audits.unique_feature.population import inked_cells, subset_count
from tasks.audits.unique_feature.slope_ranks import (
    FeatureRegion,
    Subsets,
    cell_sums,
    exact_rank,
    exposure,
    feature_region,
    is_among_all,
    mean_standardised_slopes,
)
from tasks.datasets.features import Glyph, draw_member


@pytest.mark.parametrize(("count", "inked"), [(1, 1), (2, 1), (7, 3), (9, 0), (10, 10), (11, 6)])
def test_every_choice_of_cells_is_counted_as_by_trying_them_all(count: int, inked: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    sums = [sum(values[list(chosen)]) for chosen in combinations(range(count), inked)]
    assert len(sums) == subset_count(count, inked)
    subsets = Subsets(values)
    for least in sums:
        assert sum(value >= least - 1e-12 for value in sums) == subsets.count_at_least(inked, least)
    assert len(sums) == subsets.count_at_least(inked, -math.inf)
    assert 0 == subsets.count_at_least(inked, math.inf)


def test_equal_sums_are_ties_though_they_are_added_up_in_another_order() -> None:
    values = np.array([0.1, 0.2, 0.3] * 3)
    chosen = np.zeros(9, bool)
    chosen[[0, 1, 8]] = True  # 0.6, which is also 0.2 + 0.2 + 0.2 and 0.1 + 0.3 + 0.2
    tried = [round(10 * sum(values[list(three)])) for three in combinations(range(9), 3)]
    assert sum(value >= 6 for value in tried) / len(tried) == Subsets(values).p_value(chosen)


def test_where_nothing_differs_between_cells_no_glyph_stands_out() -> None:
    assert 1.0 == Subsets(np.zeros(25)).p_value(inked_cells(Glyph()))


def test_the_letter_that_alone_is_favoured_is_the_first_of_all_glyphs_of_its_ink() -> None:
    inked = inked_cells(Glyph())
    p_value = Subsets(inked.astype(float)).p_value(inked)
    assert 1 / 4_457_400 == p_value
    assert math.log2(4_457_400) == pytest.approx(exposure(p_value))
    assert 0.0 == exposure(1.0)


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
    assert [2 * 6 + 3, 4 * 6 + 1] == region.where.tolist()
    assert [[0.8, 0.0], [0.0, -0.1]] == [pytest.approx(added) for added in region.added.tolist()]
    assert [3.0, 3.0] == region.inked.tolist()
    assert (slice(2, 5), slice(1, 4)) == region.block


def test_slopes_of_several_models_are_averaged_each_in_its_own_spread() -> None:
    slopes = [np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array([0.0, 4.0])]  # spreads 1, none and 2
    assert [(1 + 2 + 0) / 3, (3 + 2 + 2) / 3] == pytest.approx(mean_standardised_slopes(slopes).tolist())


def test_values_of_pixels_are_laid_out_as_an_image_whose_channels_are_added_up() -> None:
    region = FeatureRegion((2, 2, 2), np.array([0, 1, 6]), np.zeros((1, 3)), np.zeros(3))
    assert [[3.0, 0.0], [0.0, 4.0]] == region.pixel_map(np.array([1.0, 2.0, 4.0])).tolist()


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


def _glyph(seed: int) -> Glyph:
    found = draw_member(Glyph(), seed)
    assert isinstance(found, Glyph)
    return found


def test_more_cells_than_can_be_counted_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 41 cells; the choices of more than 40 cannot be counted"):
        Subsets(np.zeros(41))
    assert 1.0 == Subsets(np.zeros(26)).p_value(np.arange(26) < 3)
