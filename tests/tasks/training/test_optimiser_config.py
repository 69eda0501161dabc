"""Optimisers as values: which weights decay, ranges, and that no two of them are one key."""

from typing import get_args

import pytest

from orchestrator.planning.identity import canonical
from tasks.training.optimiser_config import LARS, SGD, Adafactor, AdamW, OptimiserConfig, WeightDecay


def test_matrices_decay_and_vectors_do_not_unless_all_are_to() -> None:
    shapes = {"dense.weight": (3, 4), "conv.weight": (2, 1, 3, 3), "dense.bias": (3,), "scale": ()}
    decay = WeightDecay(0.1)
    assert [0.1, 0.1, 0, 0] == [decay.of(name, shape) for name, shape in shapes.items()]
    decay = WeightDecay(0.1, "all")
    assert [0.1] * 4 == [decay.of(name, shape) for name, shape in shapes.items()]


def test_tensors_that_are_exempt_by_name_do_not_decay() -> None:
    decay = WeightDecay(0.1, "all", ("embedding.*", "*.gamma"))
    shapes = {"embedding.weight": (9, 2), "norm.gamma": (2,), "norm.beta": (2,), "head.weight": (2, 2)}
    assert [0, 0, 0.1, 0.1] == [decay.of(name, shape) for name, shape in shapes.items()]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (WeightDecay, {"coefficient": -0.1}, "coefficient is -0.1; it must be at least 0"),
        (WeightDecay, {"decayed": "biases"}, "decayed is 'biases'; it must be one of matrices, all"),
        (SGD, {"momentum": 1.0}, "momentum is 1.0; it must be a share from 0 to below 1"),
        (SGD, {"momentum": 0.0, "nesterov": True}, "nesterov is True and momentum is 0; Nesterov's step needs"),
        (SGD, {"name": "lars"}, "name is 'lars'; it must be one of sgd"),
        (LARS, {"trust": 0.0}, "trust is 0.0; it must be a finite number above 0"),
        (AdamW, {"beta2": -0.5}, "beta2 is -0.5; it must be a share from 0 to below 1"),
        (AdamW, {"epsilon": 0.0}, "epsilon is 0.0; it must be a finite number above 0"),
        (Adafactor, {"clip": -1.0}, "clip is -1.0; it must be a finite number above 0"),
    ],
)
def test_settings_out_of_range_are_refused(kind: type, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_no_two_optimisers_have_one_key() -> None:
    values = [str(canonical(kind())) for kind in get_args(OptimiserConfig)]
    assert len(values) == len(set(values))
