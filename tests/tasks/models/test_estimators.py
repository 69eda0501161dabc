"""Scikit-learn estimators by name: their seeds, their probabilities, and what is refused before any work."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.models.catalog import Network, check
from tasks.models.estimators import Estimator, check_estimator, log_probabilities

FOREST = "sklearn:sklearn.ensemble.RandomForestClassifier"
STREAM = np.random.default_rng(0)
VALUES = STREAM.normal(size=(60, 4)).astype(np.float32)
LABELS = STREAM.integers(0, 2, 60)


def trained(name: str, seed: int, classes: int = 2) -> Estimator:
    return Estimator(name, (1, 1, 4), VALUES, LABELS, classes, seed)


def test_seed_decides_random_state() -> None:
    tree = "sklearn:sklearn.tree.ExtraTreeClassifier"
    first, repeated, other = (trained(tree, seed).log_p(STREAM_ROWS) for seed in (1, 1, 2))
    assert np.array_equal(first, repeated)
    assert not np.array_equal(first, other)


STREAM_ROWS = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)


def test_probabilities_are_finite_and_sum_to_one() -> None:
    log_p = log_probabilities(np.array([[0.0, 1.0], [0.5, 0.5]]))
    assert np.exp(log_p).sum(axis=1) == pytest.approx([1, 1])
    assert log_p[0, 1] - log_p[0, 0] == pytest.approx(14.5, abs=0.01)


def test_absent_classes_have_the_lowest_probability() -> None:
    log_p = trained("sklearn:sklearn.tree.DecisionTreeClassifier", 0, classes=3).log_p(VALUES)
    assert log_p.shape == (60, 3)
    assert log_p[:, 2] == pytest.approx(np.log(1e-6 / 3))
    assert np.array_equal(log_p.argmax(axis=1), LABELS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sklearn:sklearn.svm.LinearSVC", "has no predict_proba; the audit needs the probabilities of the classes"),
        ("sklearn:sklearn.svm.SVC", "has no predict_proba"),
        ("sklearn:sklearn.ensemble.RandomForest", "is not in the installed scikit-learn: AttributeError"),
        ("sklearn:sklearn.nothing.Forest", "is not in the installed scikit-learn: ModuleNotFoundError"),
    ],
)
def test_unsuitable_estimators_are_refused(name: str, message: str) -> None:
    Network(name).check()
    with pytest.raises(ValueError, match=message):
        check_estimator(name)


def test_names_of_other_packages_need_a_factory() -> None:
    with pytest.raises(ValueError, match=r"write an estimator as sklearn:sklearn.ensemble.RandomForestClassifier, or"):
        Network("sklearn:xgboost.XGBClassifier").check()
    with pytest.raises(ValueError, match="only membership trains scikit-learn estimators"):
        check(FOREST)
