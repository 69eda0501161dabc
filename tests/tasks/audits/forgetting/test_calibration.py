"""How often the audit is wrong of a target: confidences of known distances, the summary's code, the answer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.about import About
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.measures.ratios import Ratios, ratios
from tasks.audits.forgetting.summary import summary
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.verdict import verdict
from tests.support.calibration import assert_rate, bounds
from tests.tasks.audits.forgetting.made_up import Array, models, tables

TARGETS = (NamedTarget("theirs", "training"),)
REPLICATES, IMAGES = 4, 500
DISTANCE, SPREAD = 0.5, 0.04  # of calibration models to query models, whose KS differs from one to another by chance


def answer(query: Array, calibration: Array, target: Array, seed: int) -> str:
    """The answer to what models said (models, images), by way of the tables of a run."""
    table = ratios(Ratios(TARGETS, resamples=20, seed=seed), tables(query, calibration, target))
    return verdict(Forgetting(), summary(About(TARGETS), [table])).answer


def distances(chance: np.random.Generator, rho: float, runs: int) -> Array:
    """KS of calibration and of target models to query models (runs, 2, models)."""
    means = np.array([DISTANCE, rho * DISTANCE])[:, None]
    return means + SPREAD * chance.normal(size=(runs, 2, REPLICATES))


def at(distances: Array) -> Array:
    """Confidences (models, images) whose KS to models that are always sure are these, to half an image."""
    return np.where(np.arange(IMAGES) < np.round(IMAGES * distances)[:, None], 0.0, 1.0)


def ends(drawn: Array) -> tuple[Array, Array]:
    """The interval of each rho by hand: Welch's for a quotient, where query models do not differ."""
    calibration, target = drawn.mean(axis=2).T
    terms = (drawn.var(axis=2, ddof=1) / drawn.mean(axis=2) ** 2 / REPLICATES).T
    images = np.abs(1 / target - 1 / calibration) / IMAGES  # the surer images of one are those of another
    variance = terms.sum(axis=0) + images
    freedom = variance**2 / ((terms**2).sum(axis=0) / (REPLICATES - 1) + images**2 / (IMAGES - 1))
    reach = stats.t.ppf(0.975, freedom) * np.sqrt(variance)
    return target / calibration * (1 - reach), target / calibration * (1 + reach)


@pytest.mark.slow  # hundreds of summaries each
@pytest.mark.parametrize(
    ("rho", "forgotten", "not_forgotten", "runs"),
    [
        (1.0, (0.05, 0.9), (0.0, 0.002), 400),
        (0.9, (0.01, 0.025), (0.01, 0.025), 1000),
        (0.75, (0.0, 0.002), (0.05, 0.9), 400),
    ],
)
def test_each_answer_is_given_as_often_as_welchs_interval_lies_beside_the_margin(
    rho: float, forgotten: tuple[float, float], not_forgotten: tuple[float, float], runs: int
) -> None:
    # At the margin itself each is wrong, in 2.5 % of runs or a little less: of four and four models Welch's interval is
    # wide. A distance from it on either side, the wrong answer is hardly ever given.
    low, high = ends(distances(np.random.default_rng(100), rho, 200_000))
    rates = {"forgotten": float((low > 0.9).mean()), "not forgotten": float((high < 0.9).mean())}
    for kind, (least, most) in {"forgotten": forgotten, "not forgotten": not_forgotten}.items():
        assert least <= rates[kind] <= most
    sure = np.ones((2, IMAGES))
    found: Counter[str] = Counter()
    for seed, (calibration, target) in enumerate(distances(np.random.default_rng(0), rho, runs)):
        found[answer(sure, at(calibration), at(target), seed)] += 1
    for kind, rate in rates.items():
        assert_rate(rate, found[kind], runs)
    assert runs == found.total()


@pytest.mark.slow  # 500 summaries each
@pytest.mark.parametrize(
    ("share", "right", "wrong", "rate"),
    [(0.0, "forgotten", "not forgotten", 0.310), (0.25, "not forgotten", "forgotten", 0.398)],
)
def test_models_whose_images_vary_too_are_hardly_ever_told_the_wrong_way_round(
    share: float, right: str, wrong: str, rate: float
) -> None:
    # So few images and models leave most runs undecided. The rates are of 3,000 simulations with another seed, none of
    # which was wrong.
    chance = np.random.default_rng(0)
    found = Counter(answer(*models(chance, 3, 3, 60, share), seed) for seed in range(500))
    assert_rate(rate, found[right], 500)
    assert found[wrong] <= bounds(0.001, 500)[1]
