"""Canaries judged one by one: exact ranks, and how many of those called are called wrongly."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.canary_verdicts import (
    CANARY_VERDICTS,
    CanaryVerdicts,
    beyond,
    canary_verdicts,
    has_family,
    of_canaries,
    plan,
)
from tasks.audits.unique_feature.measures.detection import of_families
from tasks.audits.unique_feature.trainings import trainings
from tasks.audits.unique_feature.verdict import BEYOND, CALLED, FDR, SHARED, verdict
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph
from tasks.schemas import SUMMARY
from tasks.statistics import false_discovery_adjusted, mean
from tasks.summaries import Row, row
from tests.tasks.audits.unique_feature.made_up import family, trained_family
from tests.tasks.summary_rows import by_name

A = Glyph()


def test_a_canary_has_the_rank_of_its_difference_and_the_shift_in_nats() -> None:
    twin = np.zeros((5, 2))
    models = [twin.copy(), twin.copy()]
    models[0][:, 1] = [0.5, 0.1, 0.2, 0.6, -0.1]
    models[1][:, 1] = [0.9, 0.1, 0.2, 0.3, -0.2]
    tables = [family(canary, {"canary": model, "twin": twin}, 1, canary) for canary, model in enumerate(models)]
    found = canary_verdicts(CanaryVerdicts(), tables[::-1])
    assert CANARY_VERDICTS == found.schema
    first, second = found.to_pylist()
    assert (1, 1, 1, 5, 1 / 5, 2 / 5) == tuple(
        first[name] for name in ("canary", "pairs", "rank", "members", "p_value", "adjusted_p")
    )
    assert (0, 2, 2 / 5, False) == tuple(second[name] for name in ("canary", "rank", "p_value", "called"))
    assert [0.9 - 0.1, 0.5 - 0.2] == pytest.approx([first["shift"], second["shift"]])


def test_the_seeds_of_a_canary_are_ranked_together_and_their_rank_is_the_detection_tables() -> None:
    alone = trained_family(3, 0.5)
    (one,) = canary_verdicts(CanaryVerdicts(), [alone]).to_pylist()
    words = {(word["estimator"], word["model"]): word for word in of_families(alone)}
    assert words["paired family rank", "canary"]["p_value"] == one["p_value"]
    tables = [trained_family(3, 0.35).set_column(2, "seed", pa.array([seed] * 84)) for seed in range(3)]
    (canary,) = canary_verdicts(CanaryVerdicts(), tables).to_pylist()
    assert 3 == canary["pairs"]
    assert 41 == canary["members"]


def test_a_pair_that_lost_a_model_and_no_pairs_have_no_verdict() -> None:
    alone = trained_family(1, 9.0).filter(pa.compute.field("model") == "canary")
    nothing = canary_verdicts(CanaryVerdicts(), [alone])
    assert 0 == nothing.num_rows
    assert [] == list(of_canaries(nothing.to_pylist()))


def test_the_canaries_called_and_those_beyond_chance_are_counted() -> None:
    p_values = [1 / 201] * 3 + [0.04] + [0.5] * 16
    found = by_name(of_canaries(rows_of(p_values)))
    called = found[CALLED, '{"false discovery rate": 0.05, "others": 200}']
    assert pytest.approx([3 / 20, None, None, 20, "canary", 0.0, 20 / 201 / 3, None]) == called
    share = found[BEYOND, '{"p": 0.05}']
    assert (0.2 - 0.05) / 0.95 == pytest.approx(share[0])
    assert 0 < share[1] < share[0] < share[2] < 1
    assert (0.0, 0.0) == (beyond(0, 20).value, beyond(0, 20).low)


def rows_of(p_values: list[float], members: int = 201) -> list[Row]:
    adjusted = false_discovery_adjusted(p_values)
    return [
        {"canary": at, "members": members, "p_value": p, "adjusted_p": float(q), "called": bool(q <= FDR)}
        | {"shared_seeds": False}
        for at, (p, q) in enumerate(zip(p_values, adjusted, strict=True))
    ]


def drawn(rng: np.random.Generator, remembered: int, canaries: int, shift: float = 3.0) -> np.ndarray:
    """Ranks' p-values: of canaries that nobody remembers, and of some whose feature stands `shift` sds above."""
    scores = rng.normal(0, 1, (canaries, 201))
    scores[:remembered, 0] += shift
    return np.asarray((scores >= scores[:, :1]).mean(axis=1))


def answered(rng: np.random.Generator, remembered: int, canaries: int, draws: int) -> list[tuple[str, bool]]:
    """The answers to runs whose effects are those of the remembered alone, and whether any canary was called."""
    answers = []
    for _ in range(draws):
        effects = rng.normal(0, 0.1, canaries)
        effects[:remembered] += 0.3
        first = row("M_w effect", {"images": "probe"}, mean(effects), "pair of trainings", 0.0)
        calls = list(of_canaries(rows_of(drawn(rng, remembered, canaries).tolist())))
        answer = verdict(A, A, pa.Table.from_pylist([first, *calls], SUMMARY)).answer
        answers.append((answer, calls[0]["estimate"] > 0))
    return answers


def test_where_nothing_is_remembered_a_run_accuses_in_at_most_seven_and_a_half_percent() -> None:
    found = answered(np.random.default_rng(20), 0, 12, 400)
    assert sum(answer == "memorised" for answer, _ in found) / 400 <= 0.075 + 0.02
    assert sum(called for _, called in found) / 400 <= 0.05 + 0.02


def test_a_minority_is_found_in_eight_of_ten_runs_and_never_said_to_be_not_seen() -> None:
    found = answered(np.random.default_rng(21), 6, 20, 200)
    assert sum(called for _, called in found) / 200 >= 0.8
    assert not any(answer == "not seen" and called for answer, called in found)


def test_a_minority_too_small_to_be_called_is_never_said_to_be_not_seen() -> None:
    found = answered(np.random.default_rng(24), 9, 100, 50)
    assert not any(answer == "not seen" for answer, _ in found)


def test_among_few_others_those_that_are_first_are_counted() -> None:
    # Of 11 members none has p below 1/11: 12 firsts of 40 are far more than the 3.6 that chance brings.
    found = by_name(of_canaries(rows_of([1 / 11] * 12 + [0.5] * 28, 11)))
    share = found[BEYOND, json.dumps({"p": 1 / 11})]
    assert (12 / 40 - 1 / 11) / (10 / 11) == pytest.approx(share[0])
    assert share[6] < 0.001


def test_canaries_of_one_training_seed_have_no_interval_and_no_p_value() -> None:
    tables = [trained_family(canary, 9.0) for canary in range(3)]
    shared = [table.set_column(2, "seed", pa.array([7] * 84)) for table in tables]
    apart, together = (canary_verdicts(CanaryVerdicts(), each).to_pylist() for each in (tables, shared))
    assert [False, True] == [each[0]["shared_seeds"] for each in (apart, together)]
    for (metric, setting), (_, low, high, *_, p_value, _) in by_name(of_canaries(together)).items():
        assert (True, None, None, None) == (json.loads(setting)[SHARED], low, high, p_value), metric
    assert all(p_value is not None for *_, p_value, _ in by_name(of_canaries(apart)).values())


def test_of_the_called_canaries_at_most_a_twentieth_is_called_wrongly() -> None:
    rng = np.random.default_rng(22)
    wrong = []
    for _ in range(400):
        called = np.array([each["called"] for each in rows_of(drawn(rng, 10, 20).tolist())])
        wrong.append(called[10:].sum() / max(1, called.sum()))
    assert np.mean(wrong) <= 0.05


@pytest.mark.parametrize(("remembered", "shift"), [(0, 0.0), (20, 9.0)])
def test_the_share_beyond_chance_covers_the_share_that_is_remembered(remembered: int, shift: float) -> None:
    rng = np.random.default_rng(23)
    covered = 0
    for _ in range(300):
        found = beyond(int((drawn(rng, remembered, 40, shift) <= 0.05).sum()), 40)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= remembered / 40 <= found.high
    assert covered / 300 >= 0.9


def test_without_others_to_rank_it_among_no_canary_is_judged() -> None:
    config = UniqueFeature(Dataset("digits"), Dataset("photos"), canaries=2, family=Family("letters", count=25))
    assert has_family(config)
    assert 1 == len(plan(config, trainings(config)))
    glyph = replace(config, feature=Glyph(kind="random", seed=3))  # no letter has others
    assert not has_family(glyph)
    assert () == plan(glyph, trainings(glyph))
