"""How much a score changes with the training's seed, and with the drawing of the random patches."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.audits.unique_feature.replicates import evaluation_spread_rows, seed_range_rows
from tests.tasks.summary_rows import by_name, with_t, with_wilson


def score(canary: int, seed: int, m: float, twin: float, evaluation: int = 0) -> dict[str, Any]:
    about = {"canary": canary, "seed": seed, "evaluation": evaluation}
    return about | {"m": m, "twin_m": twin, "m_w_probe": 2 * m, "twin_m_w_probe": 2 * twin}


def test_seeds_change_a_score_by_its_range_and_may_change_its_sign() -> None:
    scores = [score(1, 1, -0.5, 0.125), score(2, 1, 0.25, -0.5), score(1, 2, 0.5, 0.25), score(2, 2, 0.0, 0.5)]
    scores += [score(1, 3, 0.25, 0.125), score(3, 1, -0.5, -0.125), score(3, 2, 0.0, -0.25), score(4, 1, 1.0, 1.0)]
    found = by_name(seed_range_rows(scores))
    for metric, size in (("M", 1), ("M_w on the probe images", 2)):
        ranges, twins = ([size * width for width in each] for each in ([1.0, 0.25, 0.5, 0.0], [0.125, 1.0, 0.125, 0.0]))
        expected = [*with_t(ranges), "canary", sum(twins) / 4, None, None]
        assert expected == pytest.approx(found[f"range of {metric} over seeds", "{}"])
        expected = [*with_wilson(1, 4), "canary", 0.25, None, None]
        assert expected == pytest.approx(found[f"rate of {metric} on both sides of 0", "{}"])


def test_evaluations_of_one_pair_are_one_training_and_no_range_over_seeds() -> None:
    scores = [score(1, 1, 0.1, 0.2), score(1, 1, 0.3, 0.2, evaluation=1), score(2, 1, 0.5, 0.5)]
    assert {} == by_name(seed_range_rows(scores))


def test_the_evaluations_are_averaged_before_the_range_over_seeds() -> None:
    scores = [score(1, 1, 0.0, 0.0), score(1, 1, 1.0, 0.0, evaluation=1), score(1, 2, 1.5, 0.25)]
    found = by_name(seed_range_rows(scores))
    assert [1.0, None, None, 1, "canary", 0.25, None, None] == found["range of M over seeds", "{}"]


def test_the_spread_over_evaluations_is_a_models_own() -> None:
    scores = [score(1, 1, 0.0, 0.5), score(2, 1, 8.0, 8.0), score(1, 1, 1.0, 1.0, evaluation=1)]
    scores += [score(1, 2, 0.0, 0.25), score(1, 2, 3.0, 0.25, evaluation=1), score(1, 2, 0.0, 1.0, evaluation=2)]
    found = by_name(evaluation_spread_rows(scores))
    spreads, twin = [0.5**0.5, 3.0**0.5], (0.125**0.5 + 0.1875**0.5) / 2
    for metric, size in (("M", 1), ("M_w on the probe images", 2)):
        expected = [*with_t([size * spread for spread in spreads]), "training", size * twin, None, None]
        assert expected == pytest.approx(found[f"sd of {metric} over evaluations", "{}"])
    assert {} == by_name(evaluation_spread_rows(scores[:2]))
