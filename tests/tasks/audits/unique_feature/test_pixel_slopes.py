import numpy as np
import pytest

from tasks.audits.unique_feature.pixel_slopes import (
    LEAST_INK,
    centred_logits,
    pixel_ink,
    strongest_pixels,
    weighted_slopes,
)
from tasks.audits.unique_feature.slope_ranks import inked_cells
from tasks.audits.unique_feature.subset_ranks import Subsets
from tasks.datasets.features import Glyph, draw_member


def glyphs(count: int, first: int = 0) -> np.ndarray:
    """So many drawn glyphs, (count, 25)."""
    found = [draw_member(Glyph(), seed) for seed in range(first, first + count)]
    return np.array([inked_cells(glyph) for glyph in found if isinstance(glyph, Glyph)], np.float64)


def test_the_centred_logit_does_not_saturate_and_needs_no_logits() -> None:
    logits = np.array([[50.0, 0.0, 1.0], [70.0, 0.0, 2.0]])
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert [50 - 17.0, 70 - 24.0] == pytest.approx(centred_logits(log_p, 0).tolist())


def test_ink_is_counted_in_that_of_whole_images() -> None:
    images = np.zeros((3, 2, 2, 1), np.uint8)
    images[:, 0, 0] = 255
    images[1, 1, 1] = 51
    assert [[1.0 * 3, 0.0], [0.0, 0.2]] == pixel_ink(images)[..., 0].tolist()


def test_weighted_slopes_are_those_of_the_response_less_their_mean_by_its_weights() -> None:
    draws = np.random.default_rng(1)
    slopes, inked = draws.normal(size=25), draws.uniform(0, 500, 25)
    weights = 1 / (inked + LEAST_INK)
    expected = weights * (slopes - (weights * slopes).sum() / weights.sum())
    features = glyphs(60)
    assert expected == pytest.approx(weighted_slopes(features, features @ slopes + 7, inked), abs=1e-9)
    # All have equal ink: a slope that all pixels share is no response to one of them.
    shifted = weighted_slopes(features, features @ (slopes + 3), inked)
    assert expected == pytest.approx(shifted, abs=1e-9)


def test_with_fewer_features_than_pixels_the_slopes_still_fit_the_responses() -> None:
    draws = np.random.default_rng(2)
    features, responses, inked = draws.normal(size=(12, 40)), draws.normal(size=12), draws.uniform(0, 50, 40)
    slopes = weighted_slopes(features, responses, inked) * (inked + LEAST_INK)
    fitted = features @ slopes
    assert responses - responses.mean() == pytest.approx(fitted - fitted.mean(), abs=1e-9)


def test_the_strongest_pixels_are_as_many_as_asked_for() -> None:
    assert [False, True, True, False] == strongest_pixels(np.array([0.0, 3.0, 1.0, 1.0]), 2).tolist()


def test_a_shift_under_noise_is_found_by_the_weights_where_plain_slopes_miss_it() -> None:
    draws = np.random.default_rng(4)
    inked = np.r_[np.zeros(15), np.full(10, 4000.0)]  # the place lies half where the data have ink
    features, found = glyphs(60), {"weighted": 0, "plain": 0}
    for seed in range(100):
        carried = glyphs(1, 1000 + seed)[0]
        slopes = 3 * carried + draws.normal(size=25) * np.sqrt(inked + LEAST_INK)
        for name, known in (("weighted", inked), ("plain", np.full(25, 1e9))):
            p_value = Subsets(weighted_slopes(features, features @ slopes, known)).p_value(carried > 0)
            found[name] += p_value <= 0.05
    assert found["weighted"] >= 40
    assert found["plain"] <= 15


def test_of_features_that_left_no_shift_as_many_are_called_as_the_level_says() -> None:
    draws = np.random.default_rng(5)
    inked, features = np.r_[np.zeros(15), np.full(10, 4000.0)], glyphs(60)
    called = 0
    for seed in range(500):
        noise = draws.normal(size=25) * np.sqrt(inked + LEAST_INK) + 30 * (np.arange(25) == 3)  # one pixel is liked
        subsets = Subsets(weighted_slopes(features, features @ noise, inked))
        called += subsets.p_value(glyphs(1, 5000 + seed)[0] > 0) <= 0.05
    assert 500 * 0.05 - 15 <= called <= 500 * 0.05 + 15  # 3 standard deviations
