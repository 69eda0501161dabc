"""False alarm rates of the audit on simulated tables without memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.pairs.canary_scores import CANARY_SCORES, white_box_rows
from tasks.audits.unique_feature.pairs.canary_verdicts import count_rows
from tasks.audits.unique_feature.pairs.units import effect_row, units
from tasks.audits.unique_feature.population import Population
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.single_models.sentences import PARTLY
from tasks.audits.unique_feature.summary import summary
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Row
from tasks.contract.verdict import BELOW_RELEVANT_SIZE
from tests.support.calibration import DRAWS, assert_rate
from tests.tasks.audits.unique_feature.made_up import family

PAIRS = 6


def uncalled_rows() -> Iterator[Row]:
    """The rows of ranks without any call."""
    about = {"p_value": 0.5, "adjusted_p": 0.5, "called": False, "shared_seeds": False} | {
        "reduced_p": 0.5,
        "memorised": False,
        "tied": 0.0,
    }
    yield from count_rows([about] * PAIRS, Population(201))


def answers_of(effects: np.ndarray) -> list[str]:
    """The answers for tables of canary scores with these effects on M_w (tables, pairs)."""
    answers_by_table = []
    row: dict[str, Any] = dict.fromkeys(CANARY_SCORES.names)
    for effects_of_table in effects.tolist():
        scores = []
        for canary, effect in enumerate(effects_of_table):
            scores.append(
                row
                | {"canary": canary, "seed": canary, "evaluation": 0}
                | {f"m_w_{images}": 0.3 + effect for images in ("probe", "train")}
                | {f"twin_m_w_{images}": 0.3 for images in ("probe", "train")}
                | {f"m_w_{images}_effect": effect for images in ("probe", "train")}
            )
        table = pa.Table.from_pylist([*white_box_rows(units(scores)), *uncalled_rows()], SUMMARY)
        answers_by_table.append(verdict(UniqueFeature(), table).answer)
    return answers_by_table


def test_canary_without_effect_is_rarely_memorised() -> None:
    # The 95 % interval is two-sided; one side finds an effect, in 2.5 % of cases. The upper limit is below SMALLEST,
    # 4 standard errors away, if a t with 5 degrees of freedom around -4 is below minus its quantile. Accusations are
    # much rarer than 2.5 %.
    error = SMALLEST / 4
    effects = np.random.default_rng(0).normal(0, error * np.sqrt(PAIRS), (DRAWS, PAIRS))
    edge = stats.t.ppf(0.975, PAIRS - 1)
    means = effects.mean(axis=1)
    halves = edge * effects.std(axis=1, ddof=1) / np.sqrt(PAIRS)
    above = means - halves > 0
    below = means + halves < SMALLEST
    assert_rate(0.025, int(above.sum()))
    assert_rate(stats.nct.cdf(-edge, PAIRS - 1, -4.0), int(below.sum()))
    excluded = below & (halves < SMALLEST)
    expected = np.where(excluded, np.where(above, BELOW_RELEVANT_SIZE, "not detected"), "undecided")
    expected[means - halves > SMALLEST] = "memorised"
    assert expected[:400].tolist() == answers_of(effects[:400])
    assert set(expected[:400].tolist()) >= {BELOW_RELEVANT_SIZE, "not detected", "undecided"}


def test_effect_on_m_keeps_the_test_level() -> None:
    # Both models of a pair share their seed's part of M; the rest differs only by chance.
    rng = np.random.default_rng(5)
    seeds, canary, control = rng.normal(0.05, [[[0.05]], [[0.02]], [[0.02]]], (3, DRAWS, PAIRS))
    covered = 0
    detections = 0
    for m, control_m in zip(seeds + canary, seeds + control, strict=True):
        pairs = []
        for a, b in zip(m, control_m, strict=True):
            pairs.append({"m": a, "twin_m": b, "m_effect": a - b})
        effect_summary = effect_row("M effect", {}, pairs, "m", "pair of trainings")
        covered += effect_summary["low"] <= 0 <= effect_summary["high"]
        detections += effect_summary["p_value"] <= 0.05
    assert_rate(0.95, covered)
    assert_rate(0.05, detections)


@pytest.mark.parametrize("label", [None, 1])
def test_unseen_feature_is_called_at_the_family_level(
    label: int | None,
) -> None:
    # Of 41 equally likely members, the first two have p <= 5 %: 2 / 41.
    for log_p in np.random.default_rng(1).normal(0, 1, (3, 41, 2)):
        calls = 0
        for member in range(41):
            table = summary(PublishedCell(), [family(None, {"canary": np.roll(log_p, -member, axis=0)}, label)])
            calls += verdict(UniqueFeature(Panel()), table).answer == PARTLY  # look-alikes are not evaluated
        assert calls == 2
