"""Equation 6 for samples and validation images at known distances; the ratios by score in synthetic tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.density.measures.neighbours import (
    NEIGHBOURS,
    RATIOS,
    Neighbouring,
    Ratios,
    copied_share,
    correlations,
    neighbours,
    ratio_rows,
    ratios,
    rows,
)
from tasks.contract.measure import Tables
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.numerics.statistics import proportion
from tasks.training.density import fit
from tasks.training.density_config import DensityTraining
from tests.tasks.audits.density import made_up
from tests.tasks.audits.density.made_up import fitted_table
from tests.tasks.summary_rows import by_name, with_wilson

DIGITS = pin(Dataset("digits"))


@pytest.fixture
def digits() -> Images:
    return load(DIGITS)


def downsample(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Another implementation: reshaped, in float64."""
    count, height, width, channels = images.shape
    return images.astype(np.float64).reshape(count, height // 2, 2, width // 2, 2, channels).mean((2, 4))


def noise(images: Images) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random(images.test_images.shape, dtype=np.float32)


def test_ratio_divides_the_two_closest_distances(digits: Images) -> None:
    samples = noise(digits)
    table = neighbours(Neighbouring(DIGITS, examples=50), [fitted_table(samples)])
    assert table.schema == NEIGHBOURS
    rows = downsample(digits.train_images[:50] / 255)
    distances = []
    for images in (digits.test_images / 255, samples):
        distances.append(np.sqrt(np.square(rows[:, None] - downsample(images)[None]).sum((2, 3, 4))))
    frame = table.to_pandas()
    assert list(range(50)) == frame["row"].tolist()
    assert distances[0].argmin(1).tolist() == frame["validation_row"].tolist()
    assert distances[1].argmin(1).tolist() == frame["sample"].tolist()
    np.testing.assert_allclose(frame["to_validation"], distances[0].min(1), rtol=1e-5)
    np.testing.assert_allclose(frame["to_sample"], distances[1].min(1), rtol=1e-5)
    np.testing.assert_allclose(frame["ratio"], distances[0].min(1) / distances[1].min(1), rtol=1e-5)


def test_samples_twice_as_close_have_ratio_2(digits: Images) -> None:
    """One grey level per image: V at 0.2 and S at 0.6, against white images at 1."""
    images = Images(
        np.full((3, 4, 4, 1), 255, np.uint8),
        np.zeros(3, np.int64),
        np.full((2, 4, 4, 1), 51, np.uint8),
        np.zeros(2, np.int64),
        classes=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.audits.density.measures.neighbours.load", lambda data: images)
        neighbour_rows = neighbours(Neighbouring(DIGITS), [fitted_table(np.full((2, 4, 4, 1), 0.6))]).to_pylist()
    # 2 x 2 pixels remain: distances 2 (1 - 0.2) and 2 (1 - 0.6).
    assert pytest.approx([row["to_validation"] for row in neighbour_rows]) == [1.6] * 3
    assert pytest.approx([row["to_sample"] for row in neighbour_rows]) == [0.8] * 3
    assert pytest.approx([row["ratio"] for row in neighbour_rows]) == [2.0] * 3


def test_distances_are_from_the_image_itself(digits: Images) -> None:
    """The released analysis takes the first image's distance for every other of its batch."""
    frame = neighbours(Neighbouring(DIGITS, examples=30), [fitted_table(noise(digits))]).to_pandas()
    distances = np.sqrt(
        np.square(downsample(digits.train_images[29:30] / 255) - downsample(noise(digits))).sum((1, 2, 3))
    )
    assert distances.min() == pytest.approx(frame["to_sample"][29], rel=1e-5)
    assert frame["to_sample"].nunique() == 30


def test_samples_of_a_trained_model_are_used(digits: Images) -> None:
    training = DensityTraining(DIGITS, examples=60, epochs=1, recorded=(), samples=2, drawn=len(digits.test_images))
    table = neighbours(Neighbouring(DIGITS, examples=60), [fit(training, ())]).to_pandas()
    assert len(table) == 60
    assert table["ratio"].isna().sum() == 0
    # After one epoch, no sample is as close to a digit as another digit is.
    assert (table["ratio"] < 1).all()


def test_equal_sample_has_no_ratio_and_is_counted(digits: Images) -> None:
    samples = noise(digits)
    samples[7] = digits.train_images[3] / np.float32(255)
    table = neighbours(Neighbouring(DIGITS, examples=10), [fitted_table(samples)])
    row = table.to_pylist()[3]
    assert row["to_sample"] == 0.0
    assert row["sample"] == 7
    assert row["ratio"] is None
    assert row["to_validation"] > 0
    assert proportion(1, 10) == copied_share(table)


def test_image_is_not_its_own_neighbour(digits: Images) -> None:
    table = neighbours(Neighbouring(DIGITS, asked="test"), [fitted_table(noise(digits))]).to_pandas()
    assert len(digits.test_images) == len(table)
    assert (table["validation_row"] != table["row"]).all()
    assert (table["to_validation"] > 0).all()


def test_missing_or_too_few_samples_are_refused(digits: Images) -> None:
    with pytest.raises(ValueError, match="no images were drawn from the model of all data"):
        neighbours(Neighbouring(DIGITS, 10), [fitted_table(None)])
    with pytest.raises(ValueError, match=r"359 images of shape .* were drawn; expected 360"):
        neighbours(Neighbouring(DIGITS, 10), [fitted_table(noise(digits)[1:])])


def test_impossible_examples_and_split_are_refused() -> None:
    with pytest.raises(ValueError, match="examples is 1438; it must be at most 1437"):
        neighbours(Neighbouring(DIGITS, 1438), [fitted_table(noise(load(DIGITS)))])
    with pytest.raises(ValueError, match="examples is -1; it must be at least 0"):
        Neighbouring(DIGITS, -1)
    with pytest.raises(ValueError, match="asked is 'all'; it must be one of train, test"):
        Neighbouring(DIGITS, asked="all")  # type: ignore[arg-type]


def test_score_and_ratio_have_two_correlations() -> None:
    rng = np.random.default_rng(0)
    m = rng.normal(size=300)
    rho = np.exp(0.3 * m + rng.normal(size=300))
    tables = made_up.scores([0.0] * 302, [*m, np.inf, 2.0]), made_up.neighbours([*rho, 1.0, None])
    by_method = correlations(*tables)
    assert stats.pearsonr(m, rho).statistic == pytest.approx(by_method["Pearson"].estimate.value)
    assert stats.spearmanr([*m, 99.0], [*rho, 1.0]).statistic == pytest.approx(by_method["Spearman"].estimate.value)


def test_summary_has_both_correlations() -> None:
    m = [0.1, 0.9, 0.3, 2.0, 0.5, np.inf]
    rho = [1.0, 1.25, 0.75, 1.5, 1.75, 9.0]
    neighbour_table = made_up.neighbours([*rho[::-1], None], [5, 4, 3, 2, 1, 0, 6])
    summary_rows = by_name(rows(Tables([neighbour_table, made_up.scores([0.0] * 6, m)]), None))
    row = summary_rows["correlation of M and the neighbour ratio", '{"by": "Pearson"}']
    assert [row[0], row[4], row[5]] == pytest.approx([stats.pearsonr(m[:5], rho[:5]).statistic, "repetition", None])
    row = summary_rows["correlation of M and the neighbour ratio", '{"by": "Spearman"}']
    # An infinite score is the highest of all.
    assert [row[0], row[6]] == pytest.approx([stats.spearmanr([*m[:5], 99.0], rho).statistic, None])
    copies = [*with_wilson(1, 7), "observation", 0.0, None, None]
    assert copies == pytest.approx(summary_rows["observations that a sample equals", "{}"])


def ratio_table(
    width: float,
    m: Sequence[float | None],
    rho: Sequence[float | None],
    rows_of_m: Sequence[int] | None = None,
    rows_of_rho: Sequence[int] | None = None,
) -> pa.Table:
    neighbour_table = made_up.neighbours(rho, rows_of_rho)
    return ratios(Ratios(width), [made_up.scores([0.0] * len(m), m, rows_of_m), neighbour_table])


def test_bins_have_mean_and_standard_error() -> None:
    table = ratio_table(2, [-0.5, 0.0, 1.9, 2.0, 7.0], [1.0, 0.8, 1.0, 1.2, 0.9])
    assert table.schema == RATIOS
    bins = [row for row in table.to_pylist() if row["group"] == "bin"]
    assert [(row["low"], row["high"], row["n"]) for row in bins] == [(-2, 0, 1), (0, 2, 2), (2, 4, 1), (6, 8, 1)]
    assert pytest.approx([row["mean"] for row in bins]) == [1.0, 0.9, 1.2, 0.9]
    # 0.8 and 1.0: s = sqrt(0.02), over sqrt(2).
    assert [row["standard_error"] for row in bins] == [None, pytest.approx(0.1), None, None]
    assert all(row["quantiles"] is None for row in bins)


def test_groups_split_at_the_quantile_of_the_score() -> None:
    rho = [0.5 + 0.01 * row for row in range(100)]
    rows_by_group = {}
    for row in ratio_table(50, [10.0 + row for row in range(100)], rho).to_pylist():
        rows_by_group[row["group"]] = row
    high = rows_by_group["memorised"]
    regular = rows_by_group["regular"]
    assert high["n"] == 5
    assert regular["n"] == 95
    assert pytest.approx((high["mean"], regular["mean"])) == (1.47, 0.97)
    assert len(high["quantiles"]) == 101
    assert len(regular["quantiles"]) == 101
    assert pytest.approx([high["quantiles"][index] for index in (0, 50, 100)]) == [1.45, 1.47, 1.49]
    assert pytest.approx([regular["quantiles"][index] for index in (0, 25, 100)]) == [0.5, 0.735, 1.44]
    assert high["low"] is None
    assert high["high"] is None
    assert high["standard_error"] == pytest.approx(np.std(rho[95:], ddof=1) / math.sqrt(5))


def test_rows_are_matched_by_number() -> None:
    table = ratio_table(2, [1.0, 3.0, None, 5.0], [0.1, 0.2, 0.4, None, 0.9], [9, 2, 4, 6], [0, 2, 4, 6, 9])
    ratio_rows_by_bin = table.to_pylist()
    assert [(row["low"], row["mean"]) for row in ratio_rows_by_bin if row["group"] == "bin"] == [(0, 0.9), (2, 0.2)]
    # The row with the largest of the three scores has no ratio, so no highly memorised row is left.
    groups = []
    for row in ratio_rows_by_bin:
        if row["group"] != "bin":
            groups.append((row["group"], row["n"], row["quantiles"] is None))
    assert groups == [("memorised", 0, True), ("regular", 2, False)]


def test_infinite_score_is_in_no_bin() -> None:
    rows_by_group = ratio_table(2, [1.0, math.inf, -math.inf], [0.5, 0.7, 0.9]).to_pylist()
    assert [row["n"] for row in rows_by_group if row["group"] == "bin"] == [1]
    assert [row["n"] for row in rows_by_group if row["group"] != "bin"] == [1, 2]
    assert rows_by_group[1]["mean"] == 0.7


def test_scores_without_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="observation 2 has a score but no neighbours in their table"):
        ratio_table(2, [1.0, 2.0, 3.0], [1.0, 1.0])


def test_summary_has_the_mean_ratio_of_both_groups() -> None:
    score_table = made_up.scores([0.0] * 40, [float(row) for row in range(40)])
    neighbour_table = made_up.neighbours([1.0] * 38 + [1.5, 2.0])
    summary_rows = by_name(
        ratio_rows(Tables([score_table, neighbour_table, ratios(Ratios(), [score_table, neighbour_table])]), None)
    )
    assert summary_rows == {
        ("neighbour ratio", '{"observations": "memorised"}'): [1.75, None, None, 0, "repetition", *[None] * 3],
        ("neighbour ratio", '{"observations": "regular"}'): [1.0, None, None, 0, "repetition", *[None] * 3],
    }
    assert by_name(ratio_rows(Tables([score_table, neighbour_table]), None)) == {}
