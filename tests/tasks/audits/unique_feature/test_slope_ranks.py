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
def test_subset_counts_agree_with_enumeration(count: int, inked: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    sums = [sum(values[list(cells)]) for cells in combinations(range(count), inked)]
    assert len(sums) == subset_count(count, inked)
    subsets = Subsets(values)
    for threshold in sums:
        assert sum(value >= threshold - 1e-12 for value in sums) == subsets.count_at_least(inked, threshold)
    assert len(sums) == subsets.count_at_least(inked, -math.inf)
    assert subsets.count_at_least(inked, math.inf) == 0


def test_equal_sums_in_any_order_are_ties() -> None:
    values = np.array([0.1, 0.2, 0.3] * 3)
    is_inked = np.zeros(9, bool)
    is_inked[[0, 1, 8]] = True  # 0.6, which equals 0.2 + 0.2 + 0.2 and 0.1 + 0.3 + 0.2
    all_sums = []
    for three in combinations(range(9), 3):
        all_sums.append(round(10 * sum(values[list(three)])))
    assert sum(value >= 6 for value in all_sums) / len(all_sums) == Subsets(values).p_value(is_inked)


def test_equal_cells_favour_no_glyph() -> None:
    assert Subsets(np.zeros(25)).p_value(inked_cells(Glyph())) == 1.0


def test_favoured_letter_is_first_of_its_ink() -> None:
    inked = inked_cells(Glyph())
    p_value = Subsets(inked.astype(float)).p_value(inked)
    assert p_value == 1 / 4_457_400
    assert math.log2(4_457_400) == pytest.approx(exposure(p_value))
    assert exposure(1.0) == 0.0


def test_drawn_glyphs_have_valid_p_values() -> None:
    draws = np.random.default_rng(3)
    values = [10.0, *draws.normal(size=12), *[0.0] * 12]  # one strong cell, and many ties
    subsets = Subsets(np.array(values))
    p_values = np.array([subsets.p_value(inked_cells(_glyph(seed))) for seed in range(600)])
    for level in (0.5, 0.05):
        spread = math.sqrt(level * (1 - level) / 600)
        assert np.mean(p_values <= level) <= level + 3 * spread
    assert np.mean(p_values <= 0.5) >= 0.5 - 3 * math.sqrt(0.25 / 600) - 0.05  # ties reduce the share


def test_feature_adds_ink_relative_to_clean_images() -> None:
    clean = np.full((2, 6, 6, 1), 51, np.uint8)
    brighter = clean.copy()
    darker = clean.copy()
    brighter[:, 2, 3], darker[0, 4, 1] = 255, 0  # the second feature is in one of two images
    region = feature_region(clean, [brighter, darker], np.full((3, 6, 6, 1), 255, np.uint8))
    assert region.indices.tolist() == [2 * 6 + 3, 4 * 6 + 1]
    assert [pytest.approx(added) for added in region.added.tolist()] == [[0.8, 0.0], [0.0, -0.1]]
    assert region.inked.tolist() == [3.0, 3.0]
    assert (slice(2, 5), slice(1, 4)) == region.block


def test_slopes_are_standardised_before_averaging() -> None:
    slopes = [np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array([0.0, 4.0])]  # spreads 1, none and 2
    assert pytest.approx(mean_standardised_slopes(slopes).tolist()) == [(1 + 2 + 0) / 3, (3 + 2 + 2) / 3]


def test_pixel_map_adds_up_channels() -> None:
    region = FeatureRegion((2, 2, 2), np.array([0, 1, 6]), np.zeros((1, 3)), np.zeros(3))
    assert region.pixel_map(np.array([1.0, 2.0, 4.0])).tolist() == [[3.0, 0.0], [0.0, 4.0]]


def test_cell_sums_are_at_the_glyphs_position() -> None:
    field = np.arange(20.0 * 20).reshape(20, 20)
    glyph = Glyph(top=3, left=6, size=10)
    expected = []
    for row, column in product(range(5), range(5)):
        expected.append(field[3 + 2 * row : 5 + 2 * row, 6 + 2 * column : 8 + 2 * column].sum())
    assert expected == cell_sums(field, glyph).tolist()


def test_rank_states_population_and_exposure() -> None:
    inked = np.array([True, True, False, False, False])
    rank = exact_rank(Subsets(np.array([3.0, 1.0, 2.0, 0.0, 0.0])), inked)  # 3 + 1 is second of ten, after 3 + 2
    assert rank == {"p_value": 2 / 10, "among": 10, "exposure": pytest.approx(math.log2(5)), "inked": 2}
    assert is_among_all(rank | {"ink": inked.tolist()})
    assert not is_among_all(rank | {"ink": None})
    assert not is_among_all(rank | {"ink": inked.tolist(), "among": 9})


DIGITS = pin(Dataset("digits"))
PHOTOS = pin(Dataset("photos"))


def relatives_of(feature: Feature = Glyph(), kind: Literal["alike", "letters"] = "alike") -> Relatives:
    return Relatives(PHOTOS, "test", 20, feature, AskedFamily(kind, count=3), seed=3)


def drawn_glyphs(stream: str, count: int) -> list[Feature]:
    stream_seed = seeds.derive(3, stream)
    glyphs = []
    for number in range(count):
        glyphs.append(draw_member(Glyph(), seeds.derive(stream_seed, number)))
    return glyphs


def test_slopes_are_fitted_to_glyphs_or_family() -> None:
    assert drawn_glyphs("fitted", 100) == slope_features(relatives_of(), (28, 28))
    letters = relatives_of(kind="letters")
    assert [Glyph(), *family(Glyph(), letters.family, 3, (28, 28))] == slope_features(letters, (28, 28))
    clean = np.zeros((2, 28, 28, 1), np.uint8)
    names, images = zip(*slope_sets(letters, clean), strict=True)
    assert names == ("slopes-000", "slopes-001", "slopes-002", "slopes-003")
    assert (burn(clean, Glyph()) == images[0]).all()


@pytest.mark.parametrize("was_drawn", [False, True])
def test_glyph_is_ranked_with_unseen_glyphs(was_drawn: bool) -> None:
    field = np.random.default_rng(4).normal(size=(28, 28))
    region = FeatureRegion((28, 28, 1), np.arange(28 * 28), np.zeros((1, 28 * 28)), np.zeros(28 * 28))
    own_row, *other_rows = rank_rows(relatives_of(), was_drawn, field.ravel(), region)
    values = cell_sums(field, Glyph())
    inked = inked_cells(Glyph())
    subsets = Subsets(values)
    assert own_row["p_value"] == subsets.p_value(inked)
    assert own_row["among"] == 4_457_400
    assert own_row["inked"] == 14
    assert len({*np.argsort(-values)[:14]} & {*np.flatnonzero(inked)}) == own_row["hits"]
    assert tuple(own_row[name] for name in ("hits_by_chance", "height", "width", "drawn", "feature")) == (
        14**2 / 25,
        5,
        5,
        was_drawn,
        "canary",
    )
    assert inked.tolist() == own_row["ink"]
    assert values.tolist() == own_row["slopes"]
    letters = [Glyph(text=text) for text in sorted(GLYPHS)]
    expected = letters if was_drawn else drawn_glyphs("others", len(GLYPHS))
    ranks = []
    for glyph in expected:
        if isinstance(glyph, Glyph):
            ranks.append(subsets.p_value(inked_cells(glyph)))
    assert ranks == [row["p_value"] for row in other_rows]
    assert {(row["feature"], row["drawn"]) for row in other_rows} == {("other", not was_drawn)}


def test_letter_is_ranked_among_its_family() -> None:
    # Three features in 2 x 3 of 4 x 5 pixels; a mark of half the maximum does not count.
    where = np.array([6, 7, 8, 11, 12])
    added = np.array([[1.0, 1.0, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0, 1.0]])
    region = FeatureRegion((4, 5, 1), where, added, np.zeros(5))
    assert (slice(1, 3), slice(1, 4)) == region.block
    slopes = np.array([3.0, 2.0, 0.5, 1.0, -1.0])  # scores 5.25, 2 and 0.5
    [row] = rank_rows(relatives_of(kind="letters"), False, slopes, region)
    assert row == {
        "p_value": 1 / 3,
        "among": 3,
        "exposure": pytest.approx(math.log2(3)),
        "feature": "canary",
        "drawn": False,
        "inked": 2,
        "hits": 2,
        "hits_by_chance": (1 + 0) / 2,
        "height": 2,
        "width": 3,
        "ink": [True, True, False, False, False, False],
        "slopes": [3.0, 2.0, 0.5, 1.0, -1.0, 0.0],
    }
    [picture] = rank_rows(relatives_of(Picture(File("mark.png"))), False, slopes, region)
    assert {"inked": 0} | {name: row[name] for name in ("p_value", "among", "exposure", "feature", "drawn")} == picture
    [last] = rank_rows(relatives_of(kind="letters"), True, -slopes, region)
    assert (last["p_value"], last["hits"], last["drawn"]) == (1.0, 0, True)


def test_halves_of_a_glyph_are_ranked_separately() -> None:
    inked = inked_cells(Glyph())
    field = np.zeros((28, 28))
    field[1:6, 1:6] = (np.where(np.arange(25) < 13, 1.0, -1.0) * inked).reshape(5, 5)  # favours only the upper half
    own_row = replace(relatives_of(), family=AskedFamily(count=3, look_alikes=2))
    region = FeatureRegion((28, 28, 1), np.arange(28 * 28), np.zeros((1, 28 * 28)), np.zeros(28 * 28))
    names = ["slopes-000", "slopes-001"]
    rank_rows_of_glyph = [
        *rank_alone(own_row, np.zeros((1, 28, 28, 1), np.uint8), names, lambda _: (field.ravel(), region))
    ]
    upper = int(inked[:13].sum())
    lower = int(inked[13:].sum())
    ways = math.comb(13, upper), math.comb(12, lower)
    common = {"feature": "look-alike", "drawn": False}
    assert [
        {"p_value": 1 / ways[0], "among": ways[0], "exposure": pytest.approx(math.log2(ways[0])), "inked": upper}
        | common,
        {"p_value": 1.0, "among": ways[1], "exposure": 0.0, "inked": lower} | common,
    ] == rank_rows_of_glyph[-2:]
    assert rank_rows_of_glyph[:-2] == [*rank_rows(own_row, False, field.ravel(), region)]
    assert rank_rows_of_glyph[:-2] == [
        *rank_alone(relatives_of(), np.zeros((1, 28, 28, 1), np.uint8), names, lambda _: (field.ravel(), region))
    ]


def test_name_is_ranked_with_family_and_look_alikes() -> None:
    name = replace(relatives_of(Words("JO AB", size=8)), family=AskedFamily(count=2, look_alikes=2))
    clean = np.zeros((1, 28, 48, 1), np.uint8)
    family_names = [f"slopes-{suffix}" for suffix in ("000", "001", "002")]
    first = [f"slopes-{suffix}" for suffix in ("look-alike-1-001", "look-alike-1-002")]
    second = []
    for suffix in ("look-alike-2-001", "look-alike-2-002"):
        second.append(f"slopes-{suffix}")
    names = [set_name for set_name, _ in slope_sets(name, clean)]
    assert [*family_names, *first, *second] == names
    scores = dict(zip(names, (2.0, 5.0, 6.0, 3.0, 1.0, 0.0, 1.0), strict=True))
    slopes = np.array([1.0, 0.0])
    fits = []

    def region(fitted: Sequence[str]) -> FeatureRegion:
        added = np.array([[scores[suffix], 1.0] for suffix in fitted])
        return FeatureRegion((1, 2, 1), np.arange(2), added, np.zeros(2))

    def fit_slopes(fitted: Sequence[str]) -> tuple[Array, FeatureRegion]:
        fits.append([*fitted])
        return slopes, region(fitted)

    own_row, *parts = rank_alone(name, clean, names, fit_slopes)
    assert [
        family_names,
        [family_names[0], *first, *family_names[1:]],
        [family_names[0], *second, *family_names[1:]],
    ] == fits
    assert [own_row] == [*rank_rows(name, False, slopes, region(family_names))]
    common = {"among": 3, "inked": 0, "feature": "look-alike", "drawn": False}
    assert [  # its score 2 is below 3 in one part, and it is first in the other part
        {"p_value": 2 / 3, "exposure": pytest.approx(math.log2(3 / 2))} | common,
        {"p_value": 1 / 3, "exposure": pytest.approx(math.log2(3))} | common,
    ] == parts


def test_response_uses_the_labels_first_hundred_images() -> None:
    data = load(DIGITS)
    images = probe_label_images(replace(relatives_of(), probe=DIGITS), (32, 32, 1), 4)
    of_label = data.test_images[data.test_labels == 4]
    assert slope_ranks.IMAGES == 100
    assert len(images) == min(100, len(of_label))
    assert (as_shape(of_label[:100], (32, 32, 1)) == images).all()


def _glyph(seed: int) -> Glyph:
    member = draw_member(Glyph(), seed)
    assert isinstance(member, Glyph)
    return member


def test_too_many_cells_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there are 41 cells; the choices of more than 40 cannot be counted"):
        Subsets(np.zeros(41))
    monkeypatch.setattr(slope_ranks, "sums_by_size", list)  # computing the sums of 20 cells takes a second
    assert len(Subsets(np.zeros(40)).values) == 40
