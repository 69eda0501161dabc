"""Scikit-learn estimators as classifiers: made by name, trained with a seed, and evaluated to log-probabilities.

An estimator takes rows of numbers: the features of a table, or the pixels of an image in [0, 1]. It must have `fit` and
`predict_proba`. Every parameter `random_state`, including those of the steps of a pipeline, is derived from the seed of
the model. Estimators are never stored or unpickled; the outputs that an audit needs are computed right after training.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.contract.extras import SCIKIT_LEARN
from tasks.models.catalog import input_shape
from tasks.models.custom import ESTIMATOR, Factory, is_own
from tasks.models.factory_import import import_factory, one_line
from tasks.numerics import seeds

Floats = NDArray[np.float64]
Values = NDArray[np.float32]  # (rows, features)

# Weight of the uniform distribution in every output. Without it, log-odds of 0 and 1 would be infinite, and forests
# often return both. Log-odds are then at most 14.5 for two classes and 13.8 for many.
UNIFORM = 1e-6
STATE = "random_state"


@cache
def check_estimator(name: str) -> None:
    """Raise ValueError unless this estimator of scikit-learn exists and returns probabilities.

    A user's factory is not called, because planning imports no code of the user.
    """
    if not is_own(name):
        _check_methods(name, make_estimator(name, (1, 1, 1), 2))


def make_estimator(name: str, shape: tuple[int, int, int], classes: int) -> Any:
    """Return a new, untrained estimator. Raises ValueError if its class or factory does not exist or fails."""
    if is_own(name):
        factory = Factory.parse(name)
        make = import_factory(factory)
        arguments: tuple[Any, ...] = (input_shape(shape), classes)
    else:
        make = _estimator_class(name)
        arguments = ()
    try:
        return make(*arguments)
    except Exception as error:  # a user's factory may raise anything
        raise ValueError(f"network {name} cannot be made: {one_line(error)}") from error


def _estimator_class(name: str) -> Any:
    module, _, class_name = name.removeprefix(ESTIMATOR).rpartition(".")
    if not SCIKIT_LEARN.is_installed:
        raise ValueError(f"network {name} needs {SCIKIT_LEARN.advice}")
    try:
        return getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"network {name} is not in the installed scikit-learn: {one_line(error)}") from None


def _check_methods(name: str, estimator: Any) -> None:
    for method in ("fit", "predict_proba"):
        if not callable(getattr(estimator, method, None)):
            raise ValueError(
                f"network {name} has no {method}; the audit needs the probabilities of the classes. Use an estimator "
                "that returns them, such as CalibratedClassifierCV around this one in a function of your own"
            )


class Estimator:
    """A trained estimator. Raises ValueError if it cannot be trained on these rows and labels."""

    def __init__(
        self, name: str, shape: tuple[int, int, int], values: Values, labels: NDArray[np.int64], classes: int, seed: int
    ) -> None:
        self.name = name
        self.classes = classes
        self._estimator = make_estimator(name, shape, classes)
        _check_methods(name, self._estimator)
        set_random_states(self._estimator, seed)
        try:
            self._estimator.fit(values, labels)
        except Exception as error:
            raise ValueError(f"network {name} cannot be trained: {one_line(error)}") from error

    def log_p(self, values: Values) -> Floats:
        """Return the log-probabilities (rows, classes). Classes that were not in the training data have the lowest."""
        p = np.zeros((len(values), self.classes))
        p[:, np.asarray(self._estimator.classes_, np.int64)] = self._estimator.predict_proba(values)
        if not np.isfinite(p).all():
            raise ValueError(f"network {self.name} returns probabilities that are not finite")
        return log_probabilities(p)


def log_probabilities(p: Floats) -> Floats:
    """Return the logarithms of probabilities (rows, classes), mixed with a little of the uniform distribution."""
    mixed: Floats = np.log((1 - UNIFORM) * p + UNIFORM / p.shape[1])
    return mixed


def set_random_states(estimator: Any, seed: int) -> None:
    """Derive every `random_state` of an estimator and of its parts from this seed."""
    states = {}
    for parameter in sorted(estimator.get_params(deep=True)) if hasattr(estimator, "get_params") else ():
        if parameter == STATE or parameter.endswith(f"__{STATE}"):
            states[parameter] = seeds.derive(seed, "random state", parameter) % 2**32
    if states:
        estimator.set_params(**states)
