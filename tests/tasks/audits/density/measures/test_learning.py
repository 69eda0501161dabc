"""Whether density models have learnt: the best constant, computed by hand, and a model that is no better than it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tasks.audits.density.config import About
from tasks.audits.density.measures.learning import (
    Constant,
    bernoulli_log_p,
    constant_log_p,
    learning,
    normal_log_p,
    rows,
    sees_binary,
)
from tasks.audits.density.measures.scores import Scores, scores
from tasks.contract.learning import LOG_P, is_at_chance
from tasks.contract.measure import Tables
from tasks.datasets.catalog import load
from tasks.models.catalog import DensityModel
from tests.tasks.audits.density import made_up

CONSTANT = Constant(made_up.DIGITS, DensityModel("vae"), 60, "train")
MODELS = made_up.folds()


def test_constant_is_a_mean_over_draws() -> None:
    pixels = np.array([[0.0, 51.0, 255.0]])
    draws = np.random.default_rng(1)
    q = np.array([0.1, 0.3, 0.8])
    expected = math.log(0.9) + 0.2 * math.log(0.3) + 0.8 * math.log(0.7) + math.log(0.8)
    assert bernoulli_log_p(pixels, q) == pytest.approx([expected])
    mean = np.array([10.0, 40.0, 200.0])
    variance = np.array([90.0, 400.0, 2500.0])
    sampled = pixels + draws.random((200_000, 3))
    log_p = stats.norm.logpdf(sampled, mean + 0.5, np.sqrt(variance)).sum(axis=1)
    error = log_p.std() / math.sqrt(len(sampled))
    assert normal_log_p(pixels, mean, variance) == pytest.approx([log_p.mean()], abs=4 * error)


@pytest.mark.parametrize(
    ("model", "binary"),
    [
        ("vae", True),
        ("tests.tasks.models.own_densities:Gaussian", False),
        ("tests.tasks.models.own_densities:Binary", True),
        ("tests.tasks.models.own_densities:Bound", False),
    ],
)
def test_constant_matches_the_models_input(model: str, binary: bool) -> None:
    assert sees_binary(DensityModel(model), load(made_up.DIGITS)) == binary


@pytest.mark.parametrize(("lead", "at_chance"), [(2.0, False), (0.0, True), (-5.0, True)])
def test_model_like_the_constant_is_at_chance(lead: float, at_chance: bool) -> None:
    constant = constant_log_p(CONSTANT, load(made_up.DIGITS), np.arange(60))
    spread = np.random.default_rng(2).normal(0, 1, (60, 3, 4))
    log_p = constant[:, None, None] + spread - spread.mean() + lead
    score_table = scores(Scores(MODELS, 1, permutations=9, draws=2), made_up.fold_tables(MODELS, {1: log_p}))
    (row,) = rows(Tables([learning(CONSTANT, [score_table])]), About(12, 0.1))
    assert row["metric"] == LOG_P
    assert row["n"] == 60
    assert row["null"] == pytest.approx(constant.mean())
    assert row["estimate"] == pytest.approx(constant.mean() + lead, abs=0.3)
    assert is_at_chance(row) == at_chance
