"""Training functions of scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.models.estimators import log_probabilities, set_random_states
from tasks.programs.function import TrainingJob

Losses = NDArray[np.float64]


def sklearn_training(estimator: Any, x: Any, y: Any) -> Callable[[TrainingJob], Losses]:
    """Return a training function that fits copies of a scikit-learn estimator to rows of `x` and `y`.

    `x` and `y` are arrays, sparse matrices or pandas objects. Each copy gets its random states from the job's seed. The
    function returns the loss of each record, which is the default of `training.returns`: the cross-entropy of
    classifiers and the squared error of regressors.

    Raises ValueError if the estimator is a classifier without `predict_proba`.
    """
    from sklearn.base import clone, is_classifier

    classifies = is_classifier(estimator)
    if classifies and not hasattr(estimator, "predict_proba"):
        raise ValueError(
            f"{type(estimator).__name__} has no predict_proba; use CalibratedClassifierCV around it, or write a "
            "training function that returns a loss per record"
        )

    def train(job: TrainingJob) -> Losses:
        model = clone(estimator)
        set_random_states(model, job.seed)
        model.fit(_take(x, job.rows), _take(y, job.rows))
        records, targets = _take(x, job.ask), np.asarray(_take(y, job.ask))
        if not classifies:
            return _squared_errors(model.predict(records), targets)
        return _cross_entropies(model.predict_proba(records), model.classes_, targets)

    return train


def _take(values: Any, rows: NDArray[np.int64]) -> Any:
    return values.iloc[rows] if hasattr(values, "iloc") else values[rows]


def _squared_errors(predicted: Any, targets: NDArray[Any]) -> Losses:
    errors: Losses = (np.asarray(predicted, np.float64) - targets) ** 2
    means: Losses = errors.reshape(len(errors), -1).mean(axis=1)
    return means


def _cross_entropies(p: Losses, classes: NDArray[Any], labels: NDArray[Any]) -> Losses:
    """Return the losses of the labels. A label that was not among the training rows gets the largest loss."""
    order = np.argsort(classes)
    places = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
    columns = order[places]
    log_p = log_probabilities(p)[np.arange(len(labels)), columns]
    unseen: float = log_probabilities(np.zeros((1, p.shape[1])))[0, 0]
    return -np.where(classes[columns] == labels, log_p, unseen)
