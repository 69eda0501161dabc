import numpy as np
import pytest
from scipy.stats import norm

from tasks.audits.unique_feature.population import inked_cells
from tasks.audits.unique_feature.single_models.first_layer import (
    ASSUMED_SHIFT,
    BANDWIDTH,
    SPREAD,
    TILT,
    Counts,
    FirstLayer,
    compare_evidence,
    comparison,
    ink_class,
    ink_counts,
    shift_evidence,
    trained_first_layer,
)
from tasks.audits.unique_feature.slope_ranks import Subsets
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, draw_member
from tasks.models.networks import Architecture, architecture_of, weights_of_model
from tests.tasks.audits.unique_feature.made_up import LABEL, letter_model

SIDE = 28
CELLS = np.array([SIDE * row + column for row in range(1, 6) for column in range(1, 6)])
NO_INK = np.zeros(SIDE * SIDE, np.int64)


def test_evidence_in_normal_weights_is_their_likelihood_ratio() -> None:
    sample = norm.ppf((np.arange(400_000) + 0.5) / 400_000, 0, 2)
    # with a root mean square of 7
    weights = np.array([[-3.0, -1.0, 0.5, 4.0]])
    gradients = np.array([7.0])
    null = norm.logpdf(weights, 0, 2 * np.hypot(1, BANDWIDTH))
    shifted = norm.logpdf(weights, 2 * TILT, 2 * np.sqrt(1 + BANDWIDTH**2 + SPREAD**2))
    assert shift_evidence(weights, gradients, sample) == pytest.approx((shifted - null)[0], abs=0.01)


def test_uniform_weights_show_a_shift_beyond_their_ends() -> None:
    sample = np.linspace(-1, 1, 400_001)
    inside, near, outside = shift_evidence(np.array([[0.0, 0.99, 1.04]]), np.zeros(1), sample)
    assert inside == pytest.approx(0, abs=1e-3)
    assert near < -0.1
    assert outside > 3


def test_weights_that_do_not_vary_show_nothing() -> None:
    weights = np.array([[0.0, 1.0], [2.0, -1.0]])
    assert shift_evidence(weights, np.ones(2), np.zeros(10)).tolist() == [0.0, 0.0]
    layer = FirstLayer(np.zeros((3, SIDE * SIDE)), np.ones(3))
    assert layer.pixel_scores(CELLS, NO_INK).tolist() == [0.0] * 25


@pytest.mark.parametrize(
    ("blank", "inked", "ink", "expected"),
    [
        (10, 10, 0, range(10)),  # enough pixels of this class
        (10, 10, 3, range(10, 20)),
        (9, 10, 0, range(19)),  # too few: the nearest class is added
        (9, 10, 3, range(9, 19)),
        (2, 3, 3, range(5)),  # an image of few pixels
    ],
)
def test_pixels_are_compared_with_equally_inked_ones(blank: int, inked: int, ink: int, expected: range) -> None:
    evidence = np.random.default_rng(blank).normal(size=blank + inked)
    classes = np.repeat([0, 3], [blank, inked])
    mean, spread = comparison(evidence, classes, ink)
    assert mean == pytest.approx(evidence[list(expected)].mean())
    assert spread == pytest.approx(evidence[list(expected)].std(ddof=1))


def test_ink_classes_are_powers_of_two() -> None:
    counts = np.array([0, 1, 2, 3, 4, 5, 8, 9, 60_000])
    assert ink_class(counts).tolist() == [0, 1, 2, 3, 3, 4, 4, 5, 17]


def test_scores_are_likelihood_ratios_of_the_assumed_shift() -> None:
    generator = np.random.default_rng(0)
    blank = generator.normal(-20, 3, 50)
    inked = generator.normal(100, 60, 50)
    counts = np.repeat([0, 4, 0, 4], [50, 50, 2, 1])
    tested_evidence = np.array([-20.0, 10.0, 200.0])
    scores = compare_evidence(
        np.concatenate([blank, inked, tested_evidence]), counts, np.arange(100, 103), np.arange(100)
    )
    expected = []
    for value, controls in zip(tested_evidence, (blank, blank, inked), strict=True):
        shift = ASSUMED_SHIFT * blank.std(ddof=1)
        with_shift = norm.logpdf(value, controls.mean() + shift, controls.std(ddof=1))
        without_shift = norm.logpdf(value, controls.mean() + 0, controls.std(ddof=1))
        expected.append(with_shift - without_shift)
    assert scores == pytest.approx(expected)
    assert scores[0] < -3
    assert scores[1] > 10
    assert abs(scores[2]) < 1  # the ink of other images hides it


def test_faintest_ink_counts() -> None:
    images = np.zeros((3, 1, 2, 2), np.uint8)
    images[1, 0, 1, 0] = 1
    images[2, 0, 1] = 255
    assert ink_counts(images).tolist() == [0, 0, 2, 1]


def layer(shift: float, glyph: Glyph, seed: int) -> FirstLayer:
    """Uniform weights, plus a shift in the cells of the glyph that is independent of the gradients."""
    generator = np.random.default_rng(seed)
    weights = generator.uniform(-0.07, 0.07, (512, SIDE * SIDE))
    gradients = generator.normal(size=512)
    weights[:, CELLS] += np.outer(shift * generator.normal(size=512), inked_cells(glyph))
    return FirstLayer(weights, gradients)


def draw_glyph(seed: int) -> Glyph:
    glyph = draw_member(Glyph(), seed)
    assert isinstance(glyph, Glyph)
    return glyph


def p_value(first_layer: FirstLayer, counts: Counts, glyph: Glyph) -> float:
    return Subsets(first_layer.pixel_scores(CELLS, counts)).p_value(inked_cells(glyph))


def test_small_shift_is_detected_in_any_direction() -> None:
    by_evidence = []
    by_gradient = []
    for seed in range(10):
        glyph = draw_glyph(seed)
        first_layer = layer(0.003, glyph, seed)
        by_evidence.append(p_value(first_layer, NO_INK, glyph))
        by_gradient.append(Subsets(first_layer.gradients @ first_layer.weights[:, CELLS]).p_value(inked_cells(glyph)))
    assert max(by_evidence) < 0.001
    assert np.median(by_gradient) > 0.05


def test_others_ink_does_not_hide_the_rest() -> None:
    glyph = draw_glyph(0)
    generator = np.random.default_rng(0)
    first_layer = layer(0.003, glyph, 0)
    counts = NO_INK.copy()
    counts[CELLS[10:]] = 5
    counts[-200:] = 7
    inked = np.flatnonzero(counts)
    first_layer.weights[:, inked] += generator.normal(0, 0.05, (512, len(inked)))  # the effect of other images' updates
    assert p_value(first_layer, counts, glyph) < 0.01


def test_glyphs_without_shift_are_called_at_the_level() -> None:
    glyphs = [draw_glyph(100 + seed) for seed in range(20)]
    is_called = []
    for seed in range(10):
        subsets = Subsets(layer(0.0, glyphs[0], seed).pixel_scores(CELLS, NO_INK))
        for glyph in glyphs:
            is_called.append(subsets.p_value(inked_cells(glyph)) <= 0.05)
    assert sum(is_called) <= 22  # P[more of 200 at 5 %] is 0.1 %


def test_first_layer_has_the_order_of_images() -> None:
    model = letter_model(2.0)
    images = load(pin(Dataset("digits"))).test_images[:3]
    first_layer = trained_first_layer(architecture_of(model), weights_of_model(model), images, LABEL)
    assert first_layer.weights.shape == (512, SIDE * SIDE)
    assert inked_cells(Glyph()).tolist() == (first_layer.weights[0, CELLS] > 0).tolist()


def test_network_without_dense_first_layer_is_refused() -> None:
    network = Architecture("cnn1", (SIDE, SIDE, 1), 10)
    with pytest.raises(ValueError, match="network is cnn1; its first layer must be dense, with biases"):
        trained_first_layer(network, network.initial(0), np.zeros((1, SIDE, SIDE, 1), np.uint8), LABEL)
