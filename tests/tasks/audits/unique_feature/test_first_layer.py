import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from tasks.audits.unique_feature.first_layer import (
    BANDWIDTH,
    FirstLayer,
    inked_at_all,
    shift_score,
    trained_first_layer,
)
from tasks.audits.unique_feature.population import inked_cells
from tasks.audits.unique_feature.slope_ranks import Subsets
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, draw_member
from tasks.models.networks import Architecture, architecture_of, weights_of_model
from tests.tasks.audits.unique_feature.made_up import LABEL, reads_the_letter

SIDE = 28
CELLS = np.array([SIDE * row + column for row in range(1, 6) for column in range(1, 6)])
NOTHING = np.zeros(SIDE * SIDE, bool)


def test_the_score_of_a_normal_density_is_linear() -> None:
    sample = norm.ppf((np.arange(400_000) + 0.5) / 400_000, 0, 2)
    at, variance = np.array([-3.0, -1.0, 1.0, 3.0]), 4 * (1 + BANDWIDTH**2)  # the kernel's added to the sample's
    score = shift_score(sample)
    assert score(at) == pytest.approx(at / variance, rel=0.02)
    rarest = np.sqrt(2 * np.log(1000) * variance)  # where the density is a thousandth of its peak
    assert score(np.array([-50.0, 50.0])) == pytest.approx([-rarest / variance, rarest / variance], rel=0.02)


def test_the_score_of_a_uniform_density_lies_at_its_ends() -> None:
    score = shift_score(np.linspace(-1, 1, 400_001))
    width = 0.05 / np.sqrt(3)  # of the kernel, in units of the weights
    ends = score(np.array([-1.0, 1.0]))
    assert ends == pytest.approx(np.array([-1, 1]) * 2 * norm.pdf(0) / width, rel=0.02)
    assert np.abs(score(np.array([-0.5, 0.0, 0.5]))).max() < 1
    rarest = norm.pdf(norm.isf(1e-3)) / 1e-3 / width  # what no weight elsewhere reaches counts as the rarest
    assert score(np.array([-1.5, 1.5])) == pytest.approx([-rarest, rarest], rel=0.03)


@pytest.mark.parametrize(
    ("pixels", "inked", "noise"),
    [
        (12, [], range(2, 12)),  # those of another place without ink
        (13, [0, 2], range(3, 13)),
        (12, [11], range(2, 12)),  # of too few without ink those with ink are taken, too
        (2, [1], range(2)),  # an image has no other place
    ],
)
def test_the_null_is_that_of_weights_elsewhere(pixels: int, inked: list[int], noise: range) -> None:
    weights = np.random.default_rng(pixels).normal(size=(40, pixels)) * (1 + np.arange(pixels))
    found, where = FirstLayer(weights, np.linspace(-1, 2, 40)), np.array([0, 1])
    ink = np.isin(np.arange(pixels), inked)
    expected = found.gradients @ shift_score(weights[:, noise].ravel())(weights[:, :2]) / np.where(ink[:2], 11, 1)
    assert found.pixel_scores(where, ink) == pytest.approx(expected)


def test_the_faintest_ink_counts() -> None:
    images = np.zeros((3, 1, 2, 2), np.uint8)
    images[1, 0, 1, 0] = 1
    assert [False, False, True, False] == inked_at_all(images).tolist()


def test_weights_that_do_not_vary_have_a_score() -> None:
    assert np.isfinite(shift_score(np.zeros(10))(np.array([0.0, 1.0]))).all()


def layer(shift: float, glyph: Glyph, seed: int) -> FirstLayer:
    """Uniform weights, and in the cells of the glyph a shift in the direction of the gradients, half of it noise."""
    generator = np.random.default_rng(seed)
    weights, gradients = generator.uniform(-0.07, 0.07, (512, SIDE * SIDE)), generator.normal(size=512)
    weights[:, CELLS] += np.outer(shift * (gradients + generator.normal(size=512)), inked_cells(glyph))
    return FirstLayer(weights, gradients)


def drawn(seed: int) -> Glyph:
    glyph = draw_member(Glyph(), seed)
    assert isinstance(glyph, Glyph)
    return glyph


def p_value(found: FirstLayer, inked: NDArray[np.bool_], glyph: Glyph) -> float:
    return Subsets(found.pixel_scores(CELLS, inked)).p_value(inked_cells(glyph))


def test_a_small_shift_is_found_among_all_glyphs_where_the_mean_of_the_weights_shows_less() -> None:
    by_ends, by_mean = [], []
    for seed in range(10):
        glyph = drawn(seed)
        found = layer(0.002, glyph, seed)
        by_ends.append(p_value(found, NOTHING, glyph))
        by_mean.append(Subsets(found.gradients @ found.weights[:, CELLS]).p_value(inked_cells(glyph)))
    assert max(by_ends) < 0.01
    assert np.median(by_ends) < np.median(by_mean)


def test_of_weights_without_a_shift_as_many_glyphs_are_called_as_the_level_says() -> None:
    glyphs = [drawn(100 + seed) for seed in range(20)]
    called = [p_value(layer(0.0, glyphs[0], seed), NOTHING, glyph) <= 0.05 for seed in range(10) for glyph in glyphs]
    assert sum(called) <= 22  # P[more of 200 at 5 %] is 0.1 %


def test_a_first_layer_is_in_the_order_of_images() -> None:
    model, images = reads_the_letter(2.0), load(pin(Dataset("digits"))).test_images[:3]
    found = trained_first_layer(architecture_of(model), weights_of_model(model), images, LABEL)
    assert (512, SIDE * SIDE) == found.weights.shape
    assert inked_cells(Glyph()).tolist() == (found.weights[0, CELLS] > 0).tolist()


def test_a_network_without_a_dense_first_layer_is_refused() -> None:
    network = Architecture("cnn1", (SIDE, SIDE, 1), 10)
    with pytest.raises(ValueError, match="network is cnn1; its first layer must be dense, with biases"):
        trained_first_layer(network, network.initial(0), np.zeros((1, SIDE, SIDE, 1), np.uint8), LABEL)
