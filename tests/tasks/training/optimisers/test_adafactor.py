"""Adafactor: what it remembers, its first step, and squares too small for float32."""

import numpy as np
import torch

from tasks.training.optimiser_config import Adafactor
from tasks.training.optimisers.adafactor import AdafactorRule
from tasks.training.optimisers.rule_optimiser import RuleOptimiser
from tasks.training.parameter_buffer import ParameterBuffer
from tests.tasks.training.optimisers.models import CPU


def adafactor(config: Adafactor, weights: ParameterBuffer, rate: float) -> RuleOptimiser:
    optimiser = RuleOptimiser(weights, lambda weights, gradients: AdafactorRule(config, weights, gradients))
    optimiser.rates.fill_(rate)
    return optimiser


def test_it_remembers_rows_and_columns_of_matrices_and_all_of_vectors() -> None:
    weights = ParameterBuffer({"a": (9, 64), "b": (10,), "c": (3, 1, 2, 5)}, 2, CPU, torch.float32)
    rows, columns, squares = adafactor(Adafactor(), weights, 0.1).moments
    assert {"a": (9, 1), "c": (3, 1, 2, 1)} == rows.shapes
    assert {"a": (1, 64), "c": (3, 1, 1, 5)} == columns.shapes
    assert {"b": (10,)} == squares.shapes
    vectors = ParameterBuffer({"b": (10,)}, 2, CPU, torch.float32)
    assert [{"b": (10,)}] == [moment.shapes for moment in adafactor(Adafactor(), vectors, 0.1).moments]


def test_its_first_step_is_worked_out_by_hand() -> None:
    # g^2 is of rank one here, so that u is the gradient's sign, and RMS(u) = 1: nothing is clipped.
    gradient = torch.tensor([[[1.0, -2.0], [3.0, 6.0]]], dtype=torch.float64)
    for relative, size in ((True, 0.01 * 5.0), (False, 0.01)):  # the root mean square of the weights is 5
        weights = ParameterBuffer({"a": (2, 2)}, 1, CPU, torch.float64)
        weights.views["a"].fill_(-5.0)
        adafactor(Adafactor(relative_step=relative), weights, 0.01).step([gradient])
        np.testing.assert_allclose(weights.views["a"][0] + 5, -size * gradient[0].sign(), rtol=1e-12)


def test_steps_are_at_most_one_over_the_root_of_their_number() -> None:
    weights = ParameterBuffer({"b": (1,)}, 1, CPU, torch.float64)
    optimiser = adafactor(Adafactor(epsilon2=1.0), weights, 0.6)
    taken = []
    for _ in range(4):
        weights.views["b"].zero_()
        optimiser.step([torch.full((1, 1), 1e-3, dtype=torch.float64)])
        taken.append(-float(weights.views["b"]))
    np.testing.assert_allclose(taken, [0.6, 0.6, 3**-0.5, 0.5], rtol=1e-12)


def test_rows_and_columns_without_a_gradient_stay_where_they_are_in_float32() -> None:
    weights = ParameterBuffer({"a": (3, 3)}, 1, CPU, torch.float32)
    weights.views["a"].fill_(1.0)
    gradient = torch.zeros(1, 3, 3)
    gradient[0, 0, 0] = 1.0
    adafactor(Adafactor(), weights, 0.1).step([gradient])
    moved = weights.views["a"][0] != 1
    assert [[True, False, False], [False] * 3, [False] * 3] == moved.tolist()
    assert weights.buffer.isfinite().all()
