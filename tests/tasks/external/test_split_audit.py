"""One call with a model and two sets: overfitted models are distinguishable, different sets not assessable."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.external.split_audit import blind_control, evaluate, interval_of_area, low_rates
from tasks.numerics.ranks import area_under_curve
from tests.support.split_audits import audit_sets, score, verdict_of

Records = tuple[NDArray[Any], NDArray[np.int64]]


@cache
def digits() -> Records:
    images = load(Dataset("digits"))
    return images.train_images.astype(np.float32) / 255, images.train_labels.astype(np.int64)


def drawn_halves(count: int, seed: int) -> tuple[Records, Records]:
    """Two random sets of `count` digits each."""
    images, labels = digits()
    rows = np.random.default_rng(seed).permutation(len(labels))
    first, second = rows[:count], rows[count : 2 * count]
    return (images[first], labels[first]), (images[second], labels[second])


def overfit(records: Records, seed: int) -> torch.nn.Module:
    """A network trained until it fits all of its records."""
    torch.manual_seed(seed)
    images, labels = map(torch.as_tensor, records)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Dropout(0.1))
    model.append(torch.nn.Linear(128, 10))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(150):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    return model


def mislabel(records: Records) -> Records:
    images, labels = records
    return images, np.where(np.arange(len(labels)) % 5 == 0, (labels + 1) % 10, labels)


@pytest.mark.trained
def test_overfitted_model_is_distinguishable_with_low_error_rates() -> None:
    members, non_members = map(mislabel, drawn_halves(250, 1))
    model = overfit(members, 0)
    scores = score(model, members, non_members)
    result = evaluate(scores)
    assert verdict_of(scores).answer == "distinguishable"
    assert model.training  # unchanged
    assert result.auc.value is not None
    assert result.auc.value > 0.6
    assert [rate.nominal for rate in result.rates] == [0.01, 0.1]  # 125 non-members set no threshold of .1 %
    assert all(rate.false_positive.low <= rate.nominal for rate in result.rates if rate.false_positive.low is not None)
    repeated = audit_sets(model.eval(), torch.utils.data.TensorDataset(*map(torch.as_tensor, members)), non_members)
    assert result == repeated


def untrained(images: NDArray[Any]) -> NDArray[Any]:
    return images.reshape(len(images), -1)[:, :780].reshape(len(images), 10, -1).sum(2)


def test_model_trained_on_neither_set_is_not_accused() -> None:
    results = []
    for seed in range(3):
        results.append(verdict_of(score(untrained, *drawn_halves(150, seed), seed=seed)).answer)
    assert "distinguishable" not in results


def only_round(records: Records) -> Records:
    images, labels = records
    return images[labels >= 5], labels[labels >= 5]


def without_three_classes(records: Records) -> Records:
    images, labels = records
    return images[labels < 7], labels[labels < 7]


@pytest.mark.parametrize(
    "shift",
    [
        lambda records: (records[0] * 0.9, records[1]),
        lambda records: (np.roll(records[0], 1, axis=2), records[1]),
        only_round,
        without_three_classes,
    ],
    ids=["darker", "moved", "other labels", "missing classes"],
)
def test_sets_that_differ_without_model_are_not_assessable(shift: Callable[[Records], Records]) -> None:
    members, non_members = drawn_halves(300, 2)
    verdict = verdict_of(score(untrained, members, shift(non_members)))
    assert verdict.answer == "not assessable"


@pytest.mark.slow
def test_blind_control_is_silent_on_random_sets() -> None:
    def p_value(seed: int) -> float:
        stream = np.random.default_rng(seed)
        sets = [(stream.normal(size=(60, 3)), stream.integers(0, 3, 60)) for _ in range(2)]
        return blind_control(*sets, seed)[1]

    assert (
        sum(p_value(seed) <= 0.05 for seed in range(30)) <= 5
    )  # of 30 at 5 %: more than 5 occur with probability 1 in 300


@pytest.mark.parametrize("counts", [(30, 30), (40, 400)])
@pytest.mark.parametrize("apart", [0.0, 1.0, 2.5])
def test_interval_of_area_has_stated_coverage(counts: tuple[int, int], apart: float) -> None:
    true = float(stats.norm.cdf(apart / np.sqrt(2)))

    def holds(seed: int) -> bool:
        stream = np.random.default_rng(seed)
        area = area_under_curve(stream.normal(apart, 1, counts[0]), stream.normal(0, 1, counts[1]))
        interval = interval_of_area(area, *counts)
        assert interval.low is not None
        assert interval.high is not None
        return interval.low <= true <= interval.high

    assert np.mean([holds(seed) for seed in range(400)]) >= 0.92
    perfect = interval_of_area(1.0, *counts)
    assert (perfect.high, (perfect.low or 0) < 0.98) == (1.0, True)


def test_thresholds_come_from_other_non_members() -> None:
    stream = np.random.default_rng(3)
    few = stream.normal(size=30)
    many = stream.normal(size=20_001)
    assert [rate.nominal for rate in low_rates(few, few[::2], few[1::2])] == [0.1]
    by_rate = {rate.nominal: rate for rate in low_rates(many + 2, many[1::2], many[2::2])}
    for nominal, rate in by_rate.items():
        expected = stats.norm.sf(stats.norm.isf(nominal) - 2)
        assert rate.true_positive.value == pytest.approx(expected, abs=0.06)
        assert rate.false_positive.value == pytest.approx(nominal, abs=4 * np.sqrt(2 * nominal / 10_000))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (None, "members is NoneType; expected (images, labels), a data set or loader"),
        ((np.zeros((30, 4)), np.zeros(29)), "members has images float64 (30, 4) and labels (29,)"),
        ((np.zeros((5, 4)), np.zeros(5)), "members has 5 records; expected at least 20"),
        ((np.zeros((30, 4)), np.full(30, 0.5)), "expected class numbers"),
        ((np.zeros((30, 5)), np.zeros(30)), "members have shape (5,) and nonmembers (4,)"),
        ((np.ones((30, 4)), np.zeros(30)), "30 of 30 nonmembers are also members"),
    ],
)
def test_invalid_sets_are_refused(members: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the line is compared
        audit_sets(untrained, members, (np.ones((30, 4)), np.zeros(30)))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_probabilities_and_too_few_classes_are_refused() -> None:
    members, non_members = drawn_halves(30, 4)
    with pytest.raises(ValueError, match="these are probabilities, not logits"):
        audit_sets(
            lambda images: np.random.default_rng(len(images)).dirichlet([1] * 10, len(images)), members, non_members
        )
    with pytest.raises(ValueError, match="model returns 3 classes, but the labels reach up to 9"):
        audit_sets(lambda images: untrained(images)[:, :3], members, non_members)
